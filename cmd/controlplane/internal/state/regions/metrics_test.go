package regions_test

import (
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestMetricsTellOfRegionsAndReports(t *testing.T) {
	t.Parallel()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	w := newWorld(t, database)
	leases := func(alive, silent, never string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
# HELP trueup_controlplane_regions Regions by the lease of their agent: alive, silent (no heartbeat for 2 minutes) or never (no heartbeat yet).
# TYPE trueup_controlplane_regions gauge
trueup_controlplane_regions{lease="alive"} `+alive+`
trueup_controlplane_regions{lease="never"} `+never+`
trueup_controlplane_regions{lease="silent"} `+silent+`
`), "trueup_controlplane_regions"))
	}
	leases("0", "0", "2")
	_, err = w.agent().Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
	require.NoError(t, err)
	leases("1", "0", "1")
	w.sql(`UPDATE regions SET heartbeat_at = 1 WHERE heartbeat_at > 0`)
	leases("0", "1", "1")

	w.put("d_1", "running", deployment("one", "one:1"))
	for _, name := range []string{"one", "nobody"} {
		_, err = w.agent().ReportDeploymentStatus(t.Context(), connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
			Change: &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: name}},
		}))
		require.Equal(t, name == "one", err == nil, "%v", err)
	}
	families, err := w.registry.Gather()
	require.NoError(t, err)
	timed := map[string]uint64{}
	for _, family := range families {
		if family.GetName() == "trueup_controlplane_report_duration_seconds" {
			for _, m := range family.GetMetric() {
				timed[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	require.Equal(t, map[string]uint64{"deployments ok": 1, "deployments not_found": 1}, timed)
}

// TestEachRegionHasWhatAFleetIsWatchedBy counts what the agent of a region has reported, and
// then what a silent one leaves of it.
func TestEachRegionHasWhatAFleetIsWatchedBy(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		t := w.t
		series := func(name string) map[string]float64 {
			t.Helper()
			families, err := w.registry.Gather()
			require.NoError(t, err)
			found := map[string]float64{}
			for _, family := range families {
				if family.GetName() != "trueup_controlplane_region_"+name {
					continue
				}
				for _, m := range family.GetMetric() {
					var labels []string
					for _, l := range m.GetLabel() {
						labels = append(labels, l.GetValue())
					}
					found[strings.Join(labels, " ")] = m.GetGauge().GetValue()
				}
			}
			return found
		}
		none := series("held_deletions")
		require.Len(t, none, 2)
		require.Zero(t, none["eu-1"])
		require.Empty(t, series("instances"))
		_, err := w.agent().Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{
			HeldDeletions: &ctrlv1.HeldDeletions{
				Digest: "d",
				Count:  8,
				Units:  []*ctrlv1.HeldUnit{{Unit: "deployment ws/one", Objects: 8, Reason: "absent"}},
			},
		}))
		require.NoError(t, err)
		w.put("d_1", "running", deployment("one", "one:1"))
		w.sql(
			`INSERT INTO instances (region_id, deployment_id, k8s_name, address, cpu_millicores, memory_mib, status, reason, restarts, reported_at)
			SELECT 'reg_eu', 'd_1', 'one-' || n, '', 1, 1, CASE WHEN n < 3 THEN 'running' ELSE 'failed' END, '', 0, 1
			FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) AS numbers`,
		)
		require.InDelta(t, 8, series("held_deletions")["eu-1"], 0)
		require.Equal(t, map[string]float64{"eu-1 running": 3, "eu-1 failed": 1}, series("instances"))
		w.sql(`UPDATE regions SET heartbeat_at = 1 WHERE heartbeat_at > 0`)
		require.Equal(t, map[string]float64{"eu-1 inactive": 4}, series("instances"), "nothing is known of a silent region")
	})
}

func TestEachRegionHasItsSilenceAndLagUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		t := w.t
		series := func(name string) map[string]float64 {
			t.Helper()
			families, err := w.registry.Gather()
			require.NoError(t, err)
			found := map[string]float64{}
			for _, family := range families {
				if family.GetName() != name {
					continue
				}
				for _, m := range family.GetMetric() {
					found[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
			return found
		}
		const silence, lag, streams = "trueup_controlplane_region_silence_seconds", "trueup_controlplane_region_lag_versions", "trueup_controlplane_streams"
		require.Empty(t, series(silence), "no agent has been there")
		require.Empty(t, series(lag))
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		await.Eventually(t, "err == nil && page.Head == 2", func() bool {
			page, err := w.database.Log.Read(t.Context(), "eu-1", 0, 1)
			return err == nil && page.Head == 2
		})
		page, err := w.database.Log.Read(t.Context(), "eu-1", 0, 1)
		require.NoError(t, err)
		_, err = w.agent().
			Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: 1, Sequence: 1, Epoch: page.Epoch, ObservedVersion: 1}))
		require.NoError(t, err)
		require.Equal(t, map[string]float64{"eu-1": 1}, series(lag))
		require.Len(t, series(silence), 1)
		require.Less(t, series(silence)["eu-1"], 60.0)
		w.sql(`UPDATE regions SET heartbeat_at = heartbeat_at - 600000 WHERE heartbeat_at > 0`)
		require.InDelta(t, 600, series(silence)["eu-1"], 60)

		stream, err := w.agent().WatchDeployments(t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
		require.NoError(t, err)
		require.True(t, stream.Receive())
		require.Equal(t, map[string]float64{"eu-1": 1}, series(streams))
		require.NoError(t, stream.Close())
		await.Eventually(t, "len(series(streams)) == 0", func() bool { return len(series(streams)) == 0 })

		w.sql(`UPDATE regions SET heartbeat_at = 1 WHERE heartbeat_at > 0`)
		require.NoError(t, w.store.Agents().Remove(t.Context(), eu, true))
		require.Empty(t, series(silence), "its series have gone with it")
		require.Empty(t, series(lag))
	})
}
