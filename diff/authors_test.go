package diff_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestAuthorsShowsEachFieldWithItsOwners(t *testing.T) {
	t.Parallel()
	authors := func(text string) []string {
		t.Helper()
		var live map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &live))
		fields, err := diff.Authors(live)
		require.NoError(t, err)
		var lines []string
		for _, f := range fields {
			line := []string{f.Path + " = " + f.Live.String()}
			for _, w := range f.By {
				line = append(line, w.Operation+" "+w.String())
			}
			lines = append(lines, strings.Join(line, " | "))
		}
		return lines
	}
	require.Equal(t, []string{
		`.metadata.annotations["example.com/a"] = "1" | Apply "trueup" 2026-11-20T10:00:00Z`,
		`.metadata.finalizers[="example.com/f"] = "example.com/f" | Update "kubectl-edit" 2026-11-21T10:00:00Z`,
		`.spec.containers[name="main"].image = "b" | Update "kubectl-edit" 2026-11-21T10:00:00Z | Apply "trueup" 2026-11-20T10:00:00Z`,
		`.spec.containers[name="main"].name = "main" | Apply "trueup" 2026-11-20T10:00:00Z`,
		`.spec.gone = (absent) | Apply "trueup" 2026-11-20T10:00:00Z`,
		`.status.ready = 1 | Update "kubelet" on status`,
	}, authors(`{"apiVersion": "v1", "kind": "Pod",
		"metadata": {"annotations": {"example.com/a": "1"}, "finalizers": ["example.com/f"], "managedFields": [
			{"manager": "trueup", "operation": "Apply", "time": "2026-11-20T10:00:00Z", "fieldsV1": {
				"f:metadata": {"f:annotations": {"f:example.com/a": {}}},
				"f:spec": {"f:gone": {}, "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}}}}}},
			{"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-21T10:00:00Z", "fieldsV1": {
				"f:metadata": {"f:finalizers": {".": {}, "v:\"example.com/f\"": {}}},
				"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {"f:image": {}}}}}},
			{"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:ready": {}}}}]},
		"spec": {"containers": [{"name": "other", "image": "a"}, {"name": "main", "image": "b"}]}, "status": {"ready": 1}}`))

	require.Equal(t, []string{
		`.data.password = "(masked)" | Update "helm"`,
		`.metadata.labels.a = "1" | Update "helm"`,
	}, authors(`{"apiVersion": "v1", "kind": "Secret", "data": {"password": "aHVudGVyMg=="}, "metadata": {"labels": {"a": "1"}, "managedFields": [
		{"manager": "helm", "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:password": {}}, "f:metadata": {"f:labels": {"f:a": {}}}}}]}}`))

	require.Empty(t, authors(`{"kind": "Pod"}`))
	_, err := diff.Authors(map[string]any{"metadata": map[string]any{"managedFields": "text"}})
	require.ErrorContains(t, err, "managedFields: is a string; want a list")
}
