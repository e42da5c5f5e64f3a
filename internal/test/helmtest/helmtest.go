// Package helmtest renders Helm charts in tests.
package helmtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
)

// Run runs helm, and returns its standard output; its standard error is in the error. Helm is built the
// first time, which takes minutes: a short test is skipped.
func Run(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: it builds Helm")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	program, err := modbuild.Helm(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if err != nil {
		err = errors.Join(err, errors.New(stderr.String()))
	}
	return stdout.String(), err
}

// Objects returns the objects of a stream of YAML by kind and name, such as "Deployment krane".
func Objects(t *testing.T, stream string) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	for text := range strings.SplitSeq("\n"+stream, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			found[o.GetKind()+" "+o.GetName()] = o
		}
	}
	return found
}
