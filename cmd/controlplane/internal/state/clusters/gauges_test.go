package clusters_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestTheMetricsCountWhatGETShows puts and reports services at random, and counts what GET of
// the cluster shows.
func TestTheMetricsCountWhatGETShows(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.must("PUT", projectsPath+projectX, projectBody)
	service := func(n int) string {
		return fmt.Sprintf("%s%s/services/44444444-4444-4444-8444-%012d/production", projectsPath, projectX, n)
	}
	phases := []string{"Progressing", "Healthy", "Applying", "Failed", "Rejected"}
	seen := map[clusters.Standing]bool{}
	for range 60 {
		switch n := random.IntN(8); random.IntN(6) {
		case 0, 1:
			w.must("PUT", service(n), strings.Replace(serviceBody, "shop:1", fmt.Sprintf("shop:%d", random.IntN(9)), 1))
		case 2:
			w.admin("DELETE", service(n), "")
		case 3:
			if random.IntN(6) == 0 {
				w.must("POST", clustersPath+"/"+clusterA+"/new-epoch", "")
			}
		default:
			version := w.pull(clusterA)
			var list []string
			for n := range 10 { // two of them were never put, and some are of a project that was never
				if random.IntN(2) == 0 {
					project := []string{projectX, projectX, projectX, projectZ}[random.IntN(4)]
					list = append(list, fmt.Sprintf(`{"project_id":%q,"environment":"production","service_id":"44444444-4444-4444-8444-%012d",`+
						`"observed_generation":1,"phase":%q,"ready":1,"desired":1}`, project, n, phases[random.IntN(len(phases))]))
				}
			}
			body := fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"one","complete":%v,"services":[%s]}`,
				version.Epoch, max(1, version.Generation-int64(random.IntN(3))), random.IntN(2) == 0, strings.Join(list, ","))
			answer := w.agent("POST", "status", body)
			require.Equal(t, 204, answer.status, answer.body)
		}
		cluster, states, err := w.store.Cluster(t.Context(), clusterA)
		require.NoError(t, err)
		want := map[string]float64{}
		for i := range states {
			want[cluster.ClusterID+" "+cluster.Region+" "+string(states[i].Standing)+" "]++
			seen[states[i].Standing] = true
		}
		await.Eventually(t, fmt.Sprintf("seed %d: %v", seed, want), func() bool { // a count that took long is used again
			return maps.Equal(want, w.gauges("trueup_controlplane_cluster_services"))
		})
	}
	require.Greater(t, len(seen), 4, "seed %d: %v", seed, seen)
}

// TestEachClusterHasWhatAFleetIsWatchedBy has the other gauges of one cluster.
func TestEachClusterHasWhatAFleetIsWatchedBy(t *testing.T) {
	t.Parallel()
	const prefix = "trueup_controlplane_cluster_"
	w := newWorld(t)
	w.seed()
	a, b := clusterA+" nyc3 ", clusterB+" nyc3 "
	// A count that took long is used again, so each may be late.
	becomes := func(name string, want map[string]float64, why string) {
		t.Helper()
		await.Eventually(t, name+": "+why, func() bool { return maps.Equal(want, w.gauges(prefix+name)) })
	}
	require.Equal(t, map[string]float64{a: 0, b: 0}, w.gauges(prefix+"held_deletions"))
	for _, name := range []string{"oldest_tombstone_seconds", "billing_gap_minutes", "pods", "pods_soft_limit", "desired_state_bytes"} {
		require.Empty(t, w.gauges(prefix+name), name)
	}
	require.Equal(t, map[string]float64{"": 16 << 20}, w.gauges("trueup_controlplane_desired_state_limit_bytes"))

	size := len(w.agent("GET", "desired-state", "").body)
	becomes("desired_state_bytes", map[string]float64{a: float64(size)}, "as it was answered")
	version := w.pull(clusterA)
	held := `"held_deletions":{"digest":"d","count":7,"units":[{"unit":"project x","objects":7,"reason":"absent"}]}`
	require.Equal(t, 204, w.agent("POST", "status",
		fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"one","services":[],%s}`, version.Epoch, version.Generation, held)).status)
	becomes("held_deletions", map[string]float64{a: 7, b: 0}, "it has changed")
	tombstone := func(age float64, why string) {
		t.Helper()
		await.Eventually(t, why, func() bool { return math.Abs(w.gauges(prefix + "oldest_tombstone_seconds")[a]-age) < 60 })
	}
	w.must("DELETE", servicePath, "")
	w.update(`UPDATE services SET updated_at = ?`, time.Now().Add(-time.Hour).UnixMilli())
	tombstone(3600, "a service is one")
	w.must("PUT", projectsPath+projectY, strings.Replace(projectBody, "shop", "other", 1))
	w.must("DELETE", projectsPath+projectY, "")
	tombstone(3600, "the older of two")
	w.update(`UPDATE projects SET updated_at = ? WHERE deleted = 1`, time.Now().Add(-2*time.Hour).UnixMilli())
	tombstone(7200, "a project is one, too")
	now := time.Now().UTC().Truncate(time.Minute)
	for n, pods := range []int{500, 812} {
		require.Equal(t, 204, w.agent("POST", "capacity", fmt.Sprintf(`{"cluster_id":%q,"current_pod_count":%d,"soft_limit":1000,"timestamp":%q}`,
			clusterA, pods, now.Add(time.Duration(n-2)*time.Minute).Format(time.RFC3339))).status)
	}
	becomes("pods", map[string]float64{a: 812}, "it has changed")
	becomes("pods_soft_limit", map[string]float64{a: 1000}, "it has changed")
	minute := func(ago int) {
		w.update(`INSERT INTO snapshot_minutes (cluster_id, minute, records) VALUES (?, ?, 3)`,
			clusterA, now.Add(-time.Duration(ago)*time.Minute).UnixMilli())
	}
	minute(5)
	becomes("billing_gap_minutes", map[string]float64{a: 0}, "a first record has none before it")
	minute(8)
	becomes("billing_gap_minutes", map[string]float64{a: 2}, "it has changed")
	minute(64)
	becomes("billing_gap_minutes", map[string]float64{a: 57}, "it has changed")
	minute(66)
	becomes("billing_gap_minutes", map[string]float64{a: 57}, "of 60 minutes")
	w.silence()
	require.Equal(t, 204, w.admin("DELETE", clustersPath+"/"+clusterA+"?abandon=true", "").status)
	becomes("desired_state_bytes", map[string]float64{}, "it is gone")
	w.must("PUT", clustersPath+"/"+clusterA, `{"region":"nyc3"}`)
	becomes("desired_state_bytes", map[string]float64{}, "it is another cluster of that name")
	require.Equal(t, 204, w.admin("DELETE", clustersPath+"/"+clusterA, "").status)
	for _, name := range []string{"held_deletions", "pods", "billing_gap_minutes", "desired_state_bytes", "services"} {
		await.Eventually(t, name+": it is removed", func() bool {
			return !slices.ContainsFunc(slices.Collect(maps.Keys(w.gauges(prefix+name))), func(labels string) bool {
				return strings.Contains(labels, clusterA)
			})
		})
	}
}

// agent asks as the agent of cluster A.
func (w *world) agent(method, path, body string) answer {
	return w.do(method, "/api/v1/clusters/"+clusterA+"/"+path, w.tokens[clusterA], body)
}
