package crds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/crds"
)

// TestEveryFieldIsExplained walks the schemas: kubectl explain has text for every field.
func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()
	text, err := crds.YAML()
	require.NoError(t, err)
	var bare []string
	fields := 0
	for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		var o unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal([]byte(document), &o.Object))
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		require.NoError(t, err)
		require.NotEmpty(t, versions)
		for _, version := range versions {
			schema, found, err := unstructured.NestedMap(version.(map[string]any), "schema", "openAPIV3Schema")
			require.NoError(t, err)
			require.True(t, found)
			// The server explains the metadata itself.
			unstructured.RemoveNestedField(schema, "properties", "metadata")
			n, without := walk(schema, o.GetName())
			fields += n
			bare = append(bare, without...)
		}
	}
	require.Empty(t, bare)
	require.Greater(t, fields, 100)
}

// walk returns how many properties are below a schema, and which have no description.
func walk(schema map[string]any, path string) (fields int, bare []string) {
	below := func(name string, child any) {
		if child, ok := child.(map[string]any); ok {
			n, b := walk(child, path+name)
			fields, bare = fields+n, append(bare, b...)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		fields++
		if text, _ := property.(map[string]any)["description"].(string); !strings.HasSuffix(strings.TrimSpace(text), ".") &&
			!strings.HasPrefix(text, "Kind is") &&
			!strings.HasPrefix(text, "APIVersion") {
			bare = append(bare, path+"."+name)
		}
		below("."+name, property)
	}
	below("[]", schema["items"])
	below("{}", schema["additionalProperties"])
	return fields, bare
}
