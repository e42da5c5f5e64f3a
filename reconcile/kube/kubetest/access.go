package kubetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// Kubectl does what kubectl does as the admin and returns its standard output; the commands
// create namespace, patch, delete and wait may print nothing. The error holds its standard
// error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := c.inside(ctx, args)
	if errors.Is(err, errElsewhere) {
		return c.kubectl(ctx, nil, args...)
	}
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// KubectlPath returns the path of the program kubectl.
func (c *Cluster) KubectlPath() string { return c.programs.path(kubectl) }

// Apply creates or updates the objects of a YAML stream, as the field manager
// "kubectl".
func (c *Cluster) Apply(ctx context.Context, yaml string) error {
	err := c.put(ctx, yaml)
	if !errors.Is(err, errElsewhere) {
		return err
	}
	_, err = c.kubectl(ctx, strings.NewReader(yaml), "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

func (c *Cluster) kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.programs.path(kubectl), args...)
	// ApplySets are behind a gate in kubectl.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HOME="+c.Dir, "KUBECTL_APPLYSET=true")
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		// What a context ended is reported as killed.
		err = cmp.Or(context.Cause(ctx), err)
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// ServiceAccount returns access as an existing service account, with a token
// of one hour, and a kubeconfig file with the same.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, string, error) {
	token, err := c.Kubectl(ctx, "create", "token", name, "--namespace", namespace)
	if err != nil {
		return nil, "", err
	}
	config := rest.CopyConfig(c.Config)
	config.BearerToken = strings.TrimSpace(token)
	// No namespace has a dot in its name.
	path := filepath.Join(c.Dir, namespace+"."+name+".kubeconfig")
	return config, path, c.writeKubeconfig(path, config)
}

func (c *Cluster) writeKubeconfig(path string, config *rest.Config) error {
	authority, err := os.ReadFile(config.CAFile)
	if err != nil {
		return err
	}
	// JSON is YAML, and encoding/json quotes for us.
	data, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "trueup",
		"clusters": []any{map[string]any{"name": "trueup", "cluster": map[string]any{
			"server": config.Host, "certificate-authority-data": base64.StdEncoding.EncodeToString(authority),
		}}},
		"users":    []any{map[string]any{"name": "trueup", "user": map[string]any{"token": config.BearerToken}}},
		"contexts": []any{map[string]any{"name": "trueup", "context": map[string]any{"cluster": "trueup", "user": "trueup"}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
