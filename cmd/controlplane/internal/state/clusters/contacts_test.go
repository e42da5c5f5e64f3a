package clusters_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gauges returns the values of a metric by their labels, without the names of these.
func (w *world) gauges(name string) map[string]float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels strings.Builder
			for _, l := range m.GetLabel() {
				labels.WriteString(l.GetValue() + " ")
			}
			found[labels.String()] = m.GetGauge().GetValue()
		}
	}
	return found
}

func TestEachClusterHasItsSilenceAndLagUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	const clusters, silence, lag = "trueup_controlplane_clusters", "trueup_controlplane_cluster_silence_seconds", "trueup_controlplane_cluster_lag_generations"
	require.Equal(t, map[string]float64{"alive ": 0, "silent ": 0, "never ": 2}, w.gauges(clusters))
	require.Empty(t, w.gauges(silence))
	a, b := clusterA+" nyc3 ", clusterB+" nyc3 "
	require.Equal(t, map[string]float64{a: 3, b: 1}, w.gauges(lag), "nothing was reported")
	w.pull(clusterA)
	w.report(true)
	require.Equal(t, map[string]float64{a: 0, b: 1}, w.gauges(lag))
	require.Len(t, w.gauges(silence), 1)
	require.Less(t, w.gauges(silence)[a], 60.0)
	w.must("PUT", clustersPath+"/"+clusterA+"/config", `{"lb_size_units":9}`)
	require.InDelta(t, 1, w.gauges(lag)[a], 0)
	w.must("POST", clustersPath+"/"+clusterA+"/new-epoch", "")
	require.InDelta(t, 5, w.gauges(lag)[a], 0, "what was reported in another epoch does not count")
	w.silence()
	require.InDelta(t, 3600, w.gauges(silence)[a], 60)
	require.Equal(t, map[string]float64{"alive ": 0, "silent ": 1, "never ": 1}, w.gauges(clusters))
	require.Equal(t, 204, w.admin("DELETE", clustersPath+"/"+clusterA+"?abandon=true", "").status)
	require.Empty(t, w.gauges(silence), "its series have gone with it")
	require.Equal(t, map[string]float64{b: 1}, w.gauges(lag))
}
