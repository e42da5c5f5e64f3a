package definitionstest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitionstest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

func TestDefaultsAreThoseOfTheDefinition(t *testing.T) {
	t.Parallel()
	admit := definitionstest.Defaults(func() ([]byte, error) {
		return []byte(`
spec:
  names: {kind: Widget}
  versions:
  - schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              size: {default: 3}
              color: {default: red}
              parts: {items: {properties: {kind: {default: wheel}}}}
              paint: {default: {}, properties: {coats: {default: 2}}}
`), nil
	})
	w := simtest.Object{"kind": "Widget", "spec": map[string]any{"color": "blue", "parts": []any{map[string]any{}}}}
	require.NoError(t, admit(&simtest.Admission{Object: w}))
	require.Equal(t, map[string]any{
		"size": 3.0, "color": "blue", "parts": []any{map[string]any{"kind": "wheel"}}, "paint": map[string]any{"coats": 2.0},
	}, w["spec"])
	second := simtest.Object{"kind": "Widget", "spec": map[string]any{}}
	require.NoError(t, admit(&simtest.Admission{Object: second}))
	second.Set(5, "spec", "paint", "coats")
	third := simtest.Object{"kind": "Widget", "spec": map[string]any{}}
	require.NoError(t, admit(&simtest.Admission{Object: third}))
	require.Equal(t, 2.0, third.Field("spec", "paint", "coats"), "one object's default is not another's") //nolint:testifylint // it is exact
	require.NoError(t, admit(&simtest.Admission{}), "a deletion")
}
