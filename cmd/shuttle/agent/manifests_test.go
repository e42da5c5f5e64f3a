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

// TestAnInstallationHasTheSettingsThatItIsGiven gives each setting in turn: what the agent would
// refuse is refused before it is installed.
func TestAnInstallationHasTheSettingsThatItIsGiven(t *testing.T) {
	t.Parallel()
	given := map[string]string{
		"STARFORM_ALLOW_HTTP":         "true",
		"STARFORM_REQUEST_TIMEOUT":    "10s",
		"STARFORM_RECONCILE_INTERVAL": "10s",
		"STARFORM_TRANSPORT":          "stream",
		"STARFORM_SNAPSHOT_INTERVAL":  "2m",
		"STARFORM_CAPACITY_INTERVAL":  "3m",
		"STARFORM_WAKE_ON_DRIFT":      "false",
		"STARFORM_POD_SECURITY":       "baseline",
		"STARFORM_MAX_DELETE_PERCENT": "20",
		"STARFORM_DNS_SELECTOR":       "dns/app=dns",
		"STARFORM_GATEWAY":            "edge/public",
		"STARFORM_GATEWAY_SERVICE":    "edge/proxy",
		"STARFORM_IMAGE_PULL_SECRETS": "one,two",
		"STARFORM_SOFT_LIMIT":         "500",
		"STARFORM_CLUSTER_RANGES":     "203.0.113.0/24,2001:db8::/32",
	}
	require.Len(t, shuttle.InstalledSettings(), len(given))
	for _, variable := range shuttle.InstalledSettings() {
		value := given[variable]
		m := shuttle.Manifests{Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: clusterID, Region: "nyc3"}
		without, err := m.YAML()
		require.NoError(t, err)
		require.NotContains(t, without, variable+"\n")
		m.Settings = func(name string) string { return map[string]string{variable: value}[name] }
		with, err := m.YAML()
		require.NoError(t, err, variable)
		require.Regexp(t, "name: "+variable+"\n *value: \"?"+value+"\"?\n", with)

		value = "not / this"
		_, err = m.YAML()
		require.ErrorContains(t, err, variable+`: is "not / this", must be `)
	}
}
