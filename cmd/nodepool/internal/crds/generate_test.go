package crds_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitionstest"
)

var update = flag.Bool("update", false, "rewrite the definitions")

// TestTheDefinitionsAreUpToDate generates the definitions of the types, and with -update
// writes them; "make generate" runs it.
func TestTheDefinitionsAreUpToDate(t *testing.T) {
	t.Parallel()
	require.NoError(t, definitionstest.UpToDate(".", "../../../api/stratos/v1alpha1", 2, *update, t.Output()))
}
