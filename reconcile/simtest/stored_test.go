package simtest //nolint:testpackage // a world without a program is not exported

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestACopyIsNotWhatIsStored: what is done to a copy does not show in the world, and an object that was looked at
// stays as it was when it is written.
func TestACopyIsNotWhatIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&Scenario{Kinds: []Kind{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}}}, plan{beats: new(atomic.Int64)})
		require.NoError(t, w.Create(Object{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": "shop", "name": "web"}, "data": map[string]any{"a": "1"},
		}))
		seen := w.Stored("configmaps", "shop", "web")
		for _, copied := range append(w.Objects("configmaps"), w.Object("configmaps", "shop", "web")) {
			copied.Set("2", "data", "a")
		}
		require.Equal(t, []Object{seen}, w.AllStored("configmaps"))
		require.Equal(t, "1", seen.Field("data", "a"))

		require.NoError(t, w.Update("configmaps", "shop", "web", func(o Object) { o.Set("3", "data", "a") }))
		require.Equal(t, "1", seen.Field("data", "a"))
		require.Equal(t, "3", w.Stored("configmaps", "shop", "web").Field("data", "a"))
		require.Nil(t, w.Object("configmaps", "shop", "other"))
		require.Empty(t, w.wrong)
	})
}
