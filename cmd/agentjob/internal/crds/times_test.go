package crds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/agentjob/internal/crds"
)

// TestTimesAreDateTimes is the part of C23 that is in the schema.
func TestTimesAreDateTimes(t *testing.T) {
	t.Parallel()
	text, err := crds.YAML()
	require.NoError(t, err)
	found := map[string]any{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal([]byte(document), &o.Object))
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		require.NoError(t, err)
		for _, version := range versions {
			times(version, "", found)
		}
	}
	want := map[string]any{}
	for _, name := range []string{"lastRunTime", "lastCompletionTime", "lastSuccessfulTime", "started", "finished", "lastTransitionTime"} {
		want[name] = "date-time"
	}
	require.Equal(t, want, found)
}

// times collects the formats of all fields that are named as times are.
func times(at any, name string, found map[string]any) {
	switch at := at.(type) {
	case map[string]any:
		if _, schema := at["type"].(string); schema && (strings.HasSuffix(name, "Time") || name == "started" || name == "finished") {
			found[name] = at["format"]
		}
		for key, value := range at {
			times(value, key, found)
		}
	case []any:
		for _, value := range at {
			times(value, "", found)
		}
	}
}
