package v1alpha1_test

import (
	"go/build"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// TestTheAPIImportsNothingOfTheOperator lets programs make these objects without it.
func TestTheAPIImportsNothingOfTheOperator(t *testing.T) {
	t.Parallel()
	found, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	require.NotEmpty(t, found.Imports)
	for _, path := range found.Imports {
		require.Regexp(t, `^k8s\.io/(api|apimachinery)/`, path)
	}
	require.Equal(t, "platform.internal/v1alpha1", v1alpha1.GroupVersion().String())
}
