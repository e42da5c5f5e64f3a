package definitionstest_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitionstest"
)

var update = flag.Bool("update", false, "write the pages below docs/reference")

// TestTheReferenceOfKindsIsUpToDate compares the pages below docs/reference with the definitions, and with -update
// writes them; that is what "make generate" does.
func TestTheReferenceOfKindsIsUpToDate(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"agentjob", "application", "nodepool"} {
		files, err := filepath.Glob(filepath.Join("../..", program, "internal/crds/*.yaml"))
		require.NoError(t, err)
		require.NotEmpty(t, files, program)
		var definitions [][]byte
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			definitions = append(definitions, text)
		}
		page, err := definitionstest.Reference(program, definitions...)
		require.NoError(t, err)
		committed := filepath.Join("../../../docs/reference", "kinds-"+program+".md")
		if *update {
			require.NoError(t, os.WriteFile(committed, page, 0o644)) //nolint:gosec // for everybody to read
		}
		have, err := os.ReadFile(committed)
		require.NoError(t, err, `run "make generate"`)
		require.Equal(t, string(page), string(have), `run "make generate"`)
	}
}

func TestAFieldSaysWhatItMustBe(t *testing.T) {
	t.Parallel()
	page, err := definitionstest.Reference("shop", []byte(`
metadata: {name: carts.example.com}
spec:
  group: example.com
  names: {kind: Cart, plural: carts}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        description: A Cart | of things.
        properties:
          spec:
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 9, default: 3, description: How many.}
              items: {type: array, maxItems: 4, items: {type: object, properties: {color: {type: string, enum: [red, blue]}}}}
              limits: {additionalProperties: {x-kubernetes-int-or-string: true}}
`))
	require.NoError(t, err)
	for _, row := range []string{
		"apiVersion: example.com/v1\nkind: Cart\n",
		"| | object, namespaced | A Cart \\| of things. |",
		"| `spec.size` | integer, at least 1, at most 9; required; default `3` | How many. |",
		"| `spec.items` | list of object, at most 4 |  |",
		"| `spec.items[].color` | string: `red`, `blue` |  |",
		"| `spec.limits` | map of integer or string |  |",
	} {
		require.Contains(t, string(page), row)
	}
	_, err = definitionstest.Reference("shop", []byte("spec: {versions: []}"))
	require.ErrorContains(t, err, "has 0 versions, must have one with a schema")
	_, err = definitionstest.Reference("shop", []byte("nonsense: 1"))
	require.ErrorContains(t, err, "a definition of shop")
}
