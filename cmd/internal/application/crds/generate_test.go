package crds_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/genall"
)

var update = flag.Bool("update", false, "write the definitions anew")

// TestTheDefinitionsAreUpToDate generates the definitions of the types, and with -update
// writes them; that is what "make generate" does.
func TestTheDefinitionsAreUpToDate(t *testing.T) {
	t.Parallel()
	generate := genall.Generator(crd.Generator{})
	runtime, err := genall.Generators{&generate}.ForRoots("../../../api/platform/v1alpha1")
	require.NoError(t, err)
	into := t.TempDir()
	runtime.OutputRules.Default = genall.OutputToDirectory(into)
	runtime.ErrorWriter = t.Output()
	require.False(t, runtime.Run(), "the types do not make definitions")
	made, err := filepath.Glob(filepath.Join(into, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, made, 2)
	for _, path := range made {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(filepath.Base(path), text, 0o600))
		}
		committed, err := os.ReadFile(filepath.Base(path))
		require.NoError(t, err)
		require.True(t, string(committed) == string(text), `%s is not what the types say: run "make generate"`, filepath.Base(path))
	}
	present, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.Len(t, present, len(made), "one is generated from no type")
}
