package statesync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestAFloorNeverFallsNorPassesTheHead(t *testing.T) {
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("eu"))
	require.NoError(t, log.Commit(put("a", 1), drop("b"), drop("c"), put("d", 1)))
	for _, c := range []struct{ forget, floor uint64 }{{2, 2}, {1, 2}, {3, 3}, {100, 4}, {0, 4}} {
		require.NoError(t, log.Forget("eu", c.forget))
		page, err := log.Read(t.Context(), "eu", 0, 10)
		require.NoError(t, err)
		require.Equal(t, c.floor, page.Floor)
		require.Equal(t, uint64(4), page.Head)
		var left []string
		for _, i := range page.Items {
			left = append(left, named(i))
		}
		want := []string{"a@1", "d@4"}
		if c.floor == 2 {
			want = []string{"a@1", "-c@3", "d@4"}
		}
		require.Equal(t, want, left)
	}
}

// What a writer does with its value later is nothing to the log.
func TestALogKeepsWhatWasCommitted(t *testing.T) {
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("eu"))
	change := put("a", 7)
	require.NoError(t, log.Commit(change))
	change.Value[0] = '8'
	body := []byte("1")
	_, err := log.Report(t.Context(), "eu", statesync.Report{Reader: "r", Session: 1, Body: body})
	require.NoError(t, err)
	body[0] = '2'
	page, err := log.Read(t.Context(), "eu", 0, 10)
	require.NoError(t, err)
	require.Equal(t, "7", string(page.Items[0].Value))
	readers, err := log.Readers(t.Context(), "eu")
	require.NoError(t, err)
	require.Equal(t, "1", string(readers[0].Body))
}

// A backup may lack tombstones that readers of the new epoch did not get.
func TestARestoredLogHasItsFloorAtItsHead(t *testing.T) {
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("eu"))
	require.NoError(t, log.Commit(put("a", 1), put("b", 1), drop("c")))
	before, err := log.Read(t.Context(), "eu", 0, 10)
	require.NoError(t, err)
	require.NoError(t, log.Restore("eu", before.Items[:2]))
	after, err := log.Read(t.Context(), "eu", 0, 10)
	require.NoError(t, err)
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.Equal(t, statesync.Position{Epoch: after.Epoch, Head: 2, Floor: 2, Mark: after.Mark}, after.Position)
	require.NotEqual(t, before.Mark, after.Mark)
	require.Equal(t, before.Items[:2], after.Items)
}
