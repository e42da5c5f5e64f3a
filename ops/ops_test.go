package ops_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/ops"
)

func TestAProgramHasItsOwnAlerts(t *testing.T) {
	t.Parallel()
	alerts, err := ops.Alerts("controlplane")
	require.NoError(t, err)
	require.Contains(t, alerts, "\ngroups:\n  - name: trueup-controlplane\n")
	_, err = ops.Alerts("none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
