package servertest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// TestPairsOfAnotherToolAgreeWithTheServer takes what gitops-engine's own tests
// compare, a live object and the configuration that it came from, out of that
// module; nothing of it is kept here. Another manager has made the object; we take
// it over, and the other manager puts it back as it was.
func TestPairsOfAnotherToolAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	require.NoError(t, s.define(t, "bitnami.com", "SealedSecret", []any{map[string]any{
		"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": anything},
	}}))
	left := map[string]string{
		"mutatingwebhookconfig": "of a version that is no longer served, and lacks what the served one requires",
		"elasticsearch":         "privileged, which the test's server forbids",
		"wordpress":             "a Secret: its fields are masked, and so cannot be laid over the live object",
	}
	configs, err := filepath.Glob(
		filepath.Join(moduleAt(t, "github.com/argoproj/gitops-engine@v0.7.3"), "pkg", "diff", "testdata", "*-config.json"),
	)
	require.NoError(t, err)
	questions := 0
	for _, config := range configs {
		name := strings.TrimSuffix(filepath.Base(config), "-config.json")
		if why, ok := left[name]; ok {
			t.Logf("left out: %s: %s", name, why)
			continue
		}
		desired, live := s.pairObject(t, name, config), s.pairObject(t, name, strings.Replace(config, "-config", "-live", 1))
		r := &replay{server: s, name: name, applied: map[string]*applied{}}
		_, err := s.resource(live).Create(t.Context(), live, metav1.CreateOptions{FieldManager: "other"})
		require.NoError(t, err, name)
		require.NoError(t, r.judge(t, manager, desired, false), name)
		answer, err := s.tryApply(t.Context(), manager, desired, metav1.ApplyOptions{Force: true})
		require.NoError(t, err, name)
		a := &applied{}
		a.digest, a.owned = diff.Digest(answer, manager)
		r.applied[manager] = a
		require.NoError(t, r.judge(t, manager, desired, true), name)
		again := s.get(t, live)
		for key, v := range live.Object {
			if key != "metadata" {
				again.Object[key] = v
			}
		}
		_, err = s.resource(again).Update(t.Context(), again, metav1.UpdateOptions{FieldManager: "other"})
		require.NoError(t, err, name)
		require.NoError(t, r.judge(t, manager, desired, true), name)
		questions += 3
	}
	require.GreaterOrEqual(t, questions, 18)
	t.Logf("figure gitops_engine_pairs_agreed %d questions", questions)
}

// pairObject reads one side of a pair, without what only a server sets.
func (s *server) pairObject(t *testing.T, name, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(data, &u.Object))
	if u.GetAPIVersion() == "apps/v1beta1" {
		u.SetAPIVersion("apps/v1")
	}
	metadata := map[string]any{"name": name}
	for _, kept := range []string{"labels", "annotations"} {
		if v, ok, err := unstructured.NestedMap(u.Object, "metadata", kept); ok && err == nil {
			metadata[kept] = v
		}
	}
	u.Object["metadata"] = metadata
	delete(u.Object, "status")
	if u.GetKind() != "ClusterRole" {
		u.SetNamespace(s.namespace)
	}
	return u
}

// moduleAt returns the folder of a module at a version, downloaded if need be.
func moduleAt(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", path)
	cmd.Dir = t.TempDir() // outside of any module
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if decodeErr := json.Unmarshal(out, &answer); err != nil || decodeErr != nil || answer.Error != "" {
		if os.Getenv("TRUEUP_REQUIRE_SERVICES") == "1" {
			t.Fatalf("%s cannot be downloaded: %v %s", path, err, answer.Error)
		}
		t.Skipf("%s cannot be downloaded: %v %s", path, err, answer.Error)
	}
	return answer.Dir
}
