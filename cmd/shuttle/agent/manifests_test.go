package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

func TestUnsentRecordsOutliveTheContainer(t *testing.T) {
	t.Parallel()
	m := shuttle.Manifests{Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: clusterID, Region: "nyc3"}
	out, err := m.YAML()
	require.NoError(t, err)
	require.Contains(t, out, "name: STARFORM_SNAPSHOT_WAL_DIR\n          value: /var/lib/shuttle/snapshots\n")
	require.Contains(t, out, "mountPath: /var/lib/shuttle\n")
	require.Contains(t, out, "emptyDir:\n          sizeLimit: 320Mi\n")
	m.StateClaim = "spool"
	out, err = m.YAML()
	require.NoError(t, err)
	require.Contains(t, out, "claimName: spool\n")
}
