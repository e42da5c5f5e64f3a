package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

func TestAnIDIsTheHashOfThePartsAndTheirLengths(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01c"))
	require.Equal(t, hex.EncodeToString(sum[:]), snapshot.ID("ab", "", "c"))
}

func TestNoTwoListsOfPartsHaveOneID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	lists := [][]string{
		{},
		{""},
		{"", ""},
		{"a", "b"},
		{"ab"},
		{"ab", ""},
		{"", "ab"},
		{"a", "b", ""},
		{"b", "a"},
		{"a\x00", "b"},
		{"a", "\x00b"},
		{"\x00\x00\x00\x00\x00\x00\x00\x01a"},
		{"a"},
		{long},
		{long, long},
		{long + long},
	}
	seen := map[string][]string{}
	for _, list := range lists {
		id := snapshot.ID(list...)
		require.Len(t, id, 64)
		require.NotContains(t, seen, id, "%q", list)
		seen[id] = list
		require.Equal(t, id, snapshot.ID(list...))
	}
}
