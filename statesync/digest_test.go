package statesync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestADigestTellsSetsOfItemsApart(t *testing.T) {
	of := func(items ...statesync.Item) statesync.Digest {
		digest, _ := statesync.DigestOf(items)
		return digest
	}
	key := func(collection, id string) statesync.Item {
		return statesync.Item{Version: 1, Key: statesync.Key{Collection: collection, ID: id}}
	}
	require.Equal(t, of(a1, b2, c3), of(c3, a1, b2), "their order is nothing")
	require.Equal(t, of(a1), of(gone("b", 2), a1), "nor are tombstones")
	require.Equal(t, of(), of(gone("b", 2)))
	different := []statesync.Digest{
		{},
		of(),
		of(a1),
		of(b2),
		of(a1, a1),
		of(a1, b2),
		of(a1, b2, c3),
		of(is("a", 2)),
		of(is("b", 1)),
		of(key("ab", "c")),
		of(key("a", "bc")),
		of(key("a", "c")),
		of(key("", "abc")),
	}
	for n, digest := range different {
		for m, other := range different[:n] {
			require.NotEqual(t, digest, other, "%d and %d", n, m)
		}
	}
}

func TestADigestFollowsASetThatChanges(t *testing.T) {
	digest, _ := statesync.DigestOf(nil)
	of := func(items ...statesync.Item) statesync.Digest {
		digest, _ := statesync.DigestOf(items)
		return digest
	}
	for _, step := range []struct {
		change func(statesync.Item)
		item   statesync.Item
		want   statesync.Digest
	}{
		{digest.Add, a1, of(a1)},
		{digest.Add, c3, of(c3, a1)},
		{digest.Add, gone("a", 4), of(c3, a1)},
		{digest.Remove, gone("a", 4), of(c3, a1)},
		{digest.Remove, a1, of(c3)},
		{digest.Remove, c3, of()},
	} {
		step.change(step.item)
		require.Equal(t, step.want, digest)
	}
	digest.Remove(b2)
	digest.Add(b2)
	require.Equal(t, of(), digest, "in any order")
}

func TestADigestSurvivesItsText(t *testing.T) {
	digest, _ := statesync.DigestOf([]statesync.Item{a1, b2})
	text, err := digest.MarshalText()
	require.NoError(t, err)
	var back statesync.Digest
	require.NoError(t, back.UnmarshalText(text))
	require.Equal(t, digest, back)
	require.ErrorContains(t, back.UnmarshalText(text[1:]), "has 63 characters, not 64")
	text[5] = 'x'
	require.ErrorContains(t, back.UnmarshalText(text), "digest")
}
