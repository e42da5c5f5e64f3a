package starbase_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

func TestADigestIsAPlainWord(t *testing.T) {
	t.Parallel()
	for digest, valid := range map[string]bool{
		"sha256:5e884898": true, "held-1": true, "9_.": true,
		"": false, "-x": false, "--server=http://evil": false, "$(id)": false, "a b": false, "a\n": false, "ä": false,
		strings.Repeat("x", 1000): false,
	} {
		fields := (&starbase.HeldDeletions{Digest: digest, Count: 1}).Validate()
		if valid {
			require.Empty(t, fields, digest)
			continue
		}
		require.Len(t, fields, 1, digest)
		require.Equal(t, "held_deletions.digest", fields[0].Field)
	}
}
