package userdata

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// The types of parts.
const (
	shellScript = "text/x-shellscript"
	cloudConfig = "text/cloud-config"
	nodeConfig  = "application/node.eks.aws"
)

type part struct {
	header textproto.MIMEHeader
	body   []byte
}

func newPart(kind, body string) part {
	header := textproto.MIMEHeader{"Content-Type": {kind}}
	if kind == nodeConfig {
		return part{header, []byte(body)}
	}
	header.Set("Content-Type", kind+`; charset="utf-8"`)
	if strings.ContainsFunc(body, func(r rune) bool { return r > '~' }) {
		// cloud-init reads other letters wrongly without it.
		header.Set("Content-Transfer-Encoding", "base64")
		body = base64.StdEncoding.EncodeToString([]byte(body))
	}
	return part{header, []byte(body)}
}

// multipart returns what AL2023 and AL2 read: the parts of the class, how to join, and
// the first boot.
func (c Config) multipart(labels map[string]string, taints []corev1.Taint) (string, error) {
	parts, err := c.custom()
	if err != nil {
		return "", err
	}
	flags, err := c.flags(labels, taints)
	if err != nil {
		return "", err
	}
	if c.Bootstrap == v1alpha1.AL2023 {
		text, err := c.nodeConfig(flags)
		if err != nil {
			return "", err
		}
		parts = append(parts, newPart(nodeConfig, text))
	} else {
		parts = append(parts, newPart(shellScript, c.bootstrap(flags)))
	}
	script, err := c.script()
	if err != nil {
		return "", err
	}
	return join(append(parts, newPart(shellScript, script)))
}

// nodeConfig returns what nodeadm of AL2023 reads. Its keys are sorted.
func (c Config) nodeConfig(flags []string) (string, error) {
	kubelet := map[string]any{}
	if len(flags) > 0 {
		kubelet["flags"] = flags
	}
	if c.Kubelet.MaxPods != nil {
		kubelet["config"] = map[string]any{"maxPods": *c.Kubelet.MaxPods}
	}
	spec := map[string]any{"cluster": map[string]any{
		"name": c.ClusterName, "apiServerEndpoint": c.Endpoint, "certificateAuthority": c.CA, "cidr": c.CIDR,
	}}
	if len(kubelet) > 0 {
		spec["kubelet"] = kubelet
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec})
	return string(text), err
}

// bootstrap returns the script that joins with AL2.
func (c Config) bootstrap(flags []string) string {
	words := []string{
		"/etc/eks/bootstrap.sh",
		quote(c.ClusterName),
		"--b64-cluster-ca",
		quote(c.CA),
		"--apiserver-endpoint",
		quote(c.Endpoint),
	}
	if dns := c.dns(); dns.Is6() {
		words = append(words, "--ip-family ipv6 --service-ipv6-cidr", quote(c.CIDR))
	} else if dns.IsValid() {
		words = append(words, "--dns-cluster-ip", quote(dns.String()))
	}
	if c.Kubelet.MaxPods != nil {
		words = append(words, "--use-max-pods", "false")
		flags = append(flags, "--max-pods="+strconv.Itoa(int(*c.Kubelet.MaxPods)))
	}
	if len(flags) > 0 {
		// The script puts them into a setting of systemd, which has escapes of its own.
		words = append(words, "--kubelet-extra-args", quote(strings.NewReplacer(`\`, `\\`, "%", "%%").Replace(strings.Join(flags, " "))))
	}
	return "#!/bin/sh\nset -e\n" + strings.Join(words, " ") + "\n"
}

var isNodeConfig = regexp.MustCompile(`(?m)^apiVersion:\s*["']?node\.eks\.aws/`)

// custom returns the parts of the class, as they are.
func (c Config) custom() ([]part, error) {
	text := c.Custom
	switch first := strings.ToLower(strings.TrimLeft(text, "\r\n\t ")); {
	case first == "":
		return nil, nil
	case strings.HasPrefix(text, "#!"):
		return []part{newPart(shellScript, text)}, nil
	case strings.HasPrefix(text, "#cloud-config"):
		return []part{newPart(cloudConfig, text)}, nil
	case strings.HasPrefix(first, "mime-version:"), strings.HasPrefix(first, "content-type:"):
		parts, err := split(text)
		if err != nil {
			return nil, fmt.Errorf("spec.customUserData is not a MIME multipart: %w", err)
		}
		return parts, nil
	case isNodeConfig.MatchString(text):
		if c.Bootstrap != v1alpha1.AL2023 {
			return nil, errors.New("spec.customUserData is a NodeConfig, which only AL2023 reads: give a script or a cloud-config")
		}
		if err := yaml.Unmarshal([]byte(text), &map[string]any{}); err != nil {
			return nil, fmt.Errorf("spec.customUserData is not YAML: %w", err)
		}
		return []part{newPart(nodeConfig, text)}, nil
	}
	return nil, errors.New("spec.customUserData must begin with #! or #cloud-config, or be a NodeConfig of node.eks.aws or a MIME multipart")
}

func split(text string) ([]part, error) {
	message, err := mail.ReadMessage(strings.NewReader(strings.TrimLeft(text, "\r\n\t ")))
	if err != nil {
		return nil, err
	}
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" {
		return nil, fmt.Errorf("its Content-Type is %q: it must be multipart/mixed with a boundary", kind)
	}
	var parts []part
	for reader := multipart.NewReader(message.Body, params["boundary"]); ; {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) && len(parts) > 0 {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{p.Header, body})
	}
}

// join returns a multipart. Its boundary is of its content, so that it is the same each
// time and is in no part.
func join(parts []part) (string, error) {
	hash := sha256.New()
	for _, p := range parts {
		hash.Write(p.body)
	}
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	if err := writer.SetBoundary("stratos-" + hex.EncodeToString(hash.Sum(nil)[:12])); err != nil {
		return "", err
	}
	for _, p := range parts {
		into, err := writer.CreatePart(p.header)
		if err != nil {
			return "", err
		}
		if _, err := into.Write(p.body); err != nil {
			return "", err
		}
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	return "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"" + writer.Boundary() + "\"\r\n\r\n" + body.String(), nil
}
