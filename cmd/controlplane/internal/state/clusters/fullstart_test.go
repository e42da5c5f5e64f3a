package clusters_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// TestAStartWithTheKeysOfBeforeWritesNothing is what lets a start with a full disk serve reads.
func TestAStartWithTheKeysOfBeforeWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if w.store.Database.Name() != w.path {
		t.Skip("it is the same on a PostgreSQL, whose triggers are others")
	}
	ctx := t.Context()
	start := func(names ...string) error {
		return (&clusters.Store{Database: w.store.Database, Keys: keys(t, names...)}).KnowKeys(ctx)
	}
	require.NoError(t, start("one", "two"))
	require.NoError(t, w.store.Database.Write(ctx, func(tx *db.Tx) error {
		for _, verb := range []string{"INSERT", "DELETE"} {
			_, err := tx.ExecContext(ctx, "CREATE TRIGGER no_"+verb+" BEFORE "+verb+" ON var_group_keys BEGIN SELECT RAISE(FAIL, 'it writes'); END")
			if err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, start("one", "two"))
	require.NoError(t, start("two", "one"))
	require.ErrorContains(t, start("one", "two", "three"), "it writes")
	require.ErrorContains(t, start("one"), "it writes")
}
