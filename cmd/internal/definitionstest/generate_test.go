package definitionstest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitionstest"
)

func TestADefinitionThatIsStaleIsNamed(t *testing.T) {
	t.Parallel()
	const types = "../../api/stratos/v1alpha1"
	folder := t.TempDir()
	check := func(count int, update bool) error {
		return definitionstest.UpToDate(folder, types, count, update, t.Output())
	}
	require.ErrorIs(t, check(2, false), os.ErrNotExist, "none is there")
	require.ErrorContains(t, check(3, false), "makes 2 definitions, must make 3")
	require.NoError(t, check(2, true))
	require.NoError(t, check(2, false))

	stale := filepath.Join(folder, "stratos.sh_nodepools.yaml")
	text, err := os.ReadFile(stale)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(stale, append(text, '#'), 0o600))
	require.ErrorContains(t, check(2, false), stale+": is not what the types say")
	require.NoError(t, check(2, true))

	require.NoError(t, os.WriteFile(filepath.Join(folder, "more.yaml"), nil, 0o600))
	require.ErrorContains(t, check(2, true), "has 3 definitions, must have 2")
}
