package kubelet

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

// Launch is what the user data of a machine says. The zero value joins no cluster.
type Launch struct {
	// Joins is whether it joins a cluster, with Labels, Taints and, unless it is 0, MaxPods.
	Joins   bool
	Labels  map[string]string
	Taints  []corev1.Taint
	MaxPods int
	// Warms is whether a script pulls Images at the first boot; with Stops it ends with the
	// machine off.
	Warms, Stops bool
	Images       []string
}

// Read reads what the package userdata writes. An error names what a machine could not
// read; the launch is zero then.
func Read(text string) (Launch, error) {
	l := Launch{Labels: map[string]string{}}
	var err error
	switch {
	case strings.HasPrefix(text, "MIME-Version:"):
		err = l.multipart(text)
	case strings.Contains(text, "[settings.kubernetes]"):
		err = l.toml(text)
	default:
		err = errors.New("the user data is of no known kind")
	}
	if err == nil && !l.Joins {
		err = errors.New("the user data joins no cluster")
	}
	if err != nil {
		return Launch{}, err
	}
	return l, nil
}

var (
	extraArgs = regexp.MustCompile(`(?m)^/etc/eks/bootstrap\.sh .*?(?:--kubelet-extra-args '([^']*)')?$`)
	imageLine = regexp.MustCompile(`(?m)^image '((?:[^']|'\\'')*)' `)
)

func (l *Launch) multipart(text string) error {
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

func (l *Launch) part(kind, body string) error {
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
		l.Joins = l.Joins || node.Spec.Cluster.Name != ""
		l.MaxPods = max(l.MaxPods, node.Spec.Kubelet.Config.MaxPods)
		return l.flags(node.Spec.Kubelet.Flags)
	}
	if found := extraArgs.FindStringSubmatch(body); found != nil {
		l.Joins = true
		return l.flags(strings.Fields(found[1]))
	}
	if !strings.Contains(body, v1alpha1.AnnotationAttested) {
		return nil
	}
	l.Warms, l.Stops = true, strings.Contains(body, "\nsystemctl poweroff\n")
	for _, found := range imageLine.FindAllStringSubmatch(body, -1) {
		var name string
		if err := json.Unmarshal([]byte(strings.ReplaceAll(found[1], `'\''`, "'")), &name); err != nil {
			return err
		}
		l.Images = append(l.Images, name)
	}
	return nil
}

func (l *Launch) flags(flags []string) error {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--node-labels":
			for pair := range strings.SplitSeq(value, ",") {
				key, value, found := strings.Cut(pair, "=")
				if !found {
					return fmt.Errorf("the label %q has no value", pair)
				}
				l.Labels[key] = value
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
			l.MaxPods = n
		}
	}
	return nil
}

// taint adds one that is written as key=value:effect or key:effect.
func (l *Launch) taint(word string) error {
	rest, effect, found := strings.Cut(word, ":")
	if !found {
		return fmt.Errorf("the taint %q has no effect", word)
	}
	key, value, _ := strings.Cut(rest, "=")
	l.Taints = append(l.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	return nil
}

func (l *Launch) toml(text string) error {
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
	l.Joins, l.MaxPods = k.ClusterName != "", k.MaxPods
	if k.Labels != nil {
		l.Labels = k.Labels
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
