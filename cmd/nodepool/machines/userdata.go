package machines

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"regexp"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// launch is what the user data of a machine says.
type launch struct {
	joins   bool
	labels  map[string]string
	taints  []corev1.Taint
	maxPods int
	// warms is whether there is a script for the first boot.
	warms, stops bool
	images       []string
}

// parse reads what the package userdata writes. An error names what a machine could not
// read.
func parse(text string) (launch, error) {
	l := launch{labels: map[string]string{}}
	var err error
	switch {
	case strings.HasPrefix(text, "MIME-Version:"):
		err = l.multipart(text)
	case strings.Contains(text, "[settings.kubernetes]"):
		err = l.toml(text)
	default:
		err = errors.New("the user data is of no known kind")
	}
	if err == nil && !l.joins {
		err = errors.New("the user data joins no cluster")
	}
	return l, err
}

var (
	extraArgs = regexp.MustCompile(`(?m)^/etc/eks/bootstrap\.sh .*?(?:--kubelet-extra-args '([^']*)')?$`)
	imageLine = regexp.MustCompile(`(?m)^image '((?:[^']|'\\'')*)' `)
)

func (l *launch) multipart(text string) error {
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return err
	}
	_, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	for reader := multipart.NewReader(message.Body, params["boundary"]); ; {
		p, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return err
		}
		if err := l.part(p.Header.Get("Content-Type"), string(body)); err != nil {
			return err
		}
	}
}

func (l *launch) part(kind, body string) error {
	if strings.HasPrefix(kind, "application/node.eks.aws") {
		var node struct {
			Spec struct {
				Cluster struct{ Name string }
				Kubelet struct {
					Config struct{ MaxPods int }
					Flags  []string
				}
			}
		}
		if err := yaml.Unmarshal([]byte(body), &node); err != nil {
			return err
		}
		l.joins = l.joins || node.Spec.Cluster.Name != ""
		l.maxPods = max(l.maxPods, node.Spec.Kubelet.Config.MaxPods)
		return l.flags(node.Spec.Kubelet.Flags)
	}
	if found := extraArgs.FindStringSubmatch(body); found != nil {
		l.joins = true
		return l.flags(strings.Fields(found[1]))
	}
	if !strings.Contains(body, v1alpha1.AnnotationAttested) {
		return nil
	}
	l.warms, l.stops = true, strings.Contains(body, "\nsystemctl poweroff\n")
	for _, found := range imageLine.FindAllStringSubmatch(body, -1) {
		var name string
		if err := json.Unmarshal([]byte(strings.ReplaceAll(found[1], `'\''`, "'")), &name); err != nil {
			return err
		}
		l.images = append(l.images, name)
	}
	return nil
}

func (l *launch) flags(flags []string) error {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--node-labels":
			for pair := range strings.SplitSeq(value, ",") {
				key, value, found := strings.Cut(pair, "=")
				if !found {
					return fmt.Errorf("the label %q has no value", pair)
				}
				l.labels[key] = value
			}
		case "--register-with-taints":
			for word := range strings.SplitSeq(value, ",") {
				if err := l.taint(word); err != nil {
					return err
				}
			}
		case "--max-pods":
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			l.maxPods = n
		}
	}
	return nil
}

// taint adds one that is written as key=value:effect or key:effect.
func (l *launch) taint(word string) error {
	rest, effect, found := strings.Cut(word, ":")
	if !found {
		return fmt.Errorf("the taint %q has no effect", word)
	}
	key, value, _ := strings.Cut(rest, "=")
	l.taints = append(l.taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	return nil
}

func (l *launch) toml(text string) error {
	var all struct {
		Settings struct {
			Kubernetes struct {
				ClusterName string              `toml:"cluster-name"`
				Labels      map[string]string   `toml:"node-labels"`
				Taints      map[string][]string `toml:"node-taints"`
				MaxPods     int                 `toml:"max-pods"`
			} `toml:"kubernetes"`
		} `toml:"settings"`
	}
	if _, err := toml.Decode(text, &all); err != nil {
		return err
	}
	k := all.Settings.Kubernetes
	l.joins, l.maxPods = k.ClusterName != "", k.MaxPods
	if k.Labels != nil {
		l.labels = k.Labels
	}
	for key, words := range k.Taints {
		for _, word := range words {
			if err := l.taint(key + "=" + word); err != nil {
				return err
			}
		}
	}
	return nil
}
