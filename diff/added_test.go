package diff_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestAddedByOthersShowsTheItemsBesideOurs(t *testing.T) {
	t.Parallel()
	added := func(text string) (lines []string) {
		t.Helper()
		var live map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &live))
		fields, err := diff.AddedByOthers(live, "trueup")
		require.NoError(t, err)
		for _, f := range fields {
			require.Equal(t, diff.Added, f.Difference)
			require.Empty(t, f.Desired)
			lines = append(lines, f.String()+" | "+f.Live.String())
		}
		return lines
	}
	const entries = `"managedFields": [
		{"manager": "trueup", "operation": "Apply", "time": "2026-11-20T10:00:00Z", "fieldsV1": {
			"f:metadata": {"f:finalizers": {"v:\"example.com/a\"": {}}}, "f:status": {"f:list": {"v:1": {}}},
			"f:spec": {"f:replicas": {}, "f:tags": {"v:\"a\"": {}}, "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:env": {
				"k:{\"name\":\"A\"}": {".": {}, "f:name": {}}}}}}}},
		{"manager": "injector", "operation": "Update", "time": "2026-11-21T10:00:00Z", "fieldsV1": {
			"f:metadata": {"f:finalizers": {"v:\"example.com/b\"": {}}, "f:labels": {"f:b": {}}}, "f:status": {"f:list": {"v:2": {}}},
			"f:spec": {"f:paused": {}, "f:tags": {"v:\"b\"": {}}, "f:volumes": {".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:name": {}}}, "f:containers": {
				"k:{\"name\":\"web\"}": {"f:image": {}, "f:env": {"k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}, "f:ports": {"k:{\"port\":1}": {".": {}}}},
				"k:{\"name\":\"mesh\"}": {".": {}, "f:name": {}, "f:image": {}}}}}},
		{"manager": "other", "operation": "Apply", "time": "2026-11-22T10:00:00Z", "fieldsV1": {
			"f:spec": {"f:containers": {"k:{\"name\":\"mesh\"}": {"f:image": {}}}}}},
		{"manager": "trueup", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:list": {"v:1": {}, "v:2": {}}}}}]`
	const image = `{"image":"mesh:1","name":"mesh"}`
	require.Equal(t, []string{
		`.spec.containers[name="mesh"]: added, stays (by "other" 2026-11-22T10:00:00Z, "injector" 2026-11-21T10:00:00Z) | ` + image,
		`.spec.containers[name="web"].env[name="B"]: added, stays (by "injector" 2026-11-21T10:00:00Z) | {"name":"B"}`,
		`.spec.tags[="b"]: added, stays (by "injector" 2026-11-21T10:00:00Z) | "b"`,
	}, added(`{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {`+entries+`}, "spec": {"replicas": 1, "paused": true, "tags": ["b", "a"],
		"volumes": [{"name": "v"}], "containers": [`+image+`, {"name": "web", "image": "x", "ports": [{"port": 1}], "env": [{"name": "A"}, {"name": "B"}]}]}}`),
		"of lists in which we own nothing, fields, the metadata and the status nothing is shown")
	require.Equal(t, []string{
		`.spec.containers[name="mesh"]: added, stays (by "other" 2026-11-22T10:00:00Z, "injector" 2026-11-21T10:00:00Z) | (absent)`,
		`.spec.containers[name="web"].env[name="B"]: added, stays (by "injector" 2026-11-21T10:00:00Z) | (absent)`,
		`.spec.tags[="b"]: added, stays (by "injector" 2026-11-21T10:00:00Z) | (absent)`,
	}, added(`{"metadata": {`+entries+`}}`), "the metadata is enough")

	require.Empty(t, added(`{"kind": "Pod"}`))
	require.Empty(t, added(`{"metadata": {"managedFields": [
		{"manager": "b", "operation": "Apply", "fieldsV1": {"f:spec": {"f:tags": {"v:\"b\"": {}}}}}]}}`))
	_, err := diff.AddedByOthers(map[string]any{"metadata": map[string]any{"managedFields": "text"}}, "trueup")
	require.ErrorContains(t, err, "managedFields: is a string; want a list")
}
