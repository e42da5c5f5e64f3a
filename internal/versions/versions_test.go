package versions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

func TestAVersionIsADecimalNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		"0": 0, "7": 7, "18446744073709551615": 1<<64 - 1, "": 0, "-1": 0, "0x10": 0, "1.5": 0, "18446744073709551616": 0,
	} {
		require.Equal(t, want, versions.Parse(text), text)
	}
}
