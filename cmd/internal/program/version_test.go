package program_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// TestOnlyAReleaseHasImagesOfItsVersion has the versions that the go command records.
func TestOnlyAReleaseHasImagesOfItsVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v0.1.0": "v0.1.0", "v1.2.3-rc.1": "v1.2.3-rc.1", "": "latest", "(devel)": "latest", "v0.1.0+dirty": "latest",
		"v0.0.0-20261129161901-3371b94bdc9d": "latest", "v0.1.1-0.20261129161901-3371b94bdc9d": "latest",
		"v0.1.0-rc.1.0.20261129161901-3371b94bdc9d": "latest", "v0.1.1-0.20261129161901-3371b94bdc9d+dirty": "latest",
	} {
		require.Equal(t, want, program.Tag(version), version)
	}
}
