package programs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

func TestTheProgramsOfTheRunAreTaken(t *testing.T) {
	run := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(run, "shuttle"), []byte("built"), 0o600))
	t.Setenv(programs.Variable, run)
	content, err := os.ReadFile(programs.Path(t, "shuttle"))
	require.NoError(t, err)
	require.Equal(t, "built", string(content))
}

func TestAProgramThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, programs.Build(t.Context(), t.TempDir(), "sprocket"), "cmd/sprocket")
}
