package clusters_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

func capacityPath(cluster string) string { return "/api/v1/clusters/" + cluster + "/capacity" }

func capacityBody(cluster string, pods int, at time.Time) string {
	return fmt.Sprintf(
		`{"cluster_id":%q,"current_pod_count":%d,"soft_limit":1000,"timestamp":%q}`,
		cluster,
		pods,
		at.UTC().Format(time.RFC3339Nano),
	)
}

// overview returns the overview of cluster A.
func (w *world) overview() clusters.ClusterOverview {
	w.t.Helper()
	list, err := w.store.Overview(w.t.Context(), time.Now().Add(-24*time.Hour))
	require.NoError(w.t, err)
	require.Equal(w.t, clusterA, list[0].ClusterID)
	return list[0]
}

func TestCapacityIsKeptAndGathered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := time.Now().UTC().Truncate(10 * time.Minute).Add(-time.Hour)
	for n, report := range []struct {
		pods  int
		after time.Duration
	}{{5, 0}, {9, time.Minute}, {7, 2 * time.Minute}, {7, 2 * time.Minute}, {3, 30 * time.Minute}, {1, -30 * time.Hour}} {
		got := w.do("POST", capacityPath(clusterA), w.tokens[clusterA], capacityBody(clusterA, report.pods, begin.Add(report.after)))
		require.Equal(t, 204, got.status, "%d: %s", n, got.body)
		require.Empty(t, got.body)
	}
	seen := w.overview()
	require.EqualValues(t, 3, *seen.Low, "of a day alone")
	require.EqualValues(t, 9, *seen.Peak)
	require.Equal(t, &clusters.CapacityPoint{TakenAt: begin.Add(30 * time.Minute), Pods: 3, SoftLimit: 1000}, seen.Latest)
}

func TestOnlyTheNewestCapacityIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	save := func(ago time.Duration) {
		require.NoError(t, w.store.SaveCapacity(t.Context(), clusterA, clusters.CapacityPoint{TakenAt: now.Add(-ago), Pods: 1, SoftLimit: 1}))
	}
	fine := func() (n int) {
		require.NoError(t, w.store.Database.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM capacity_reports WHERE cluster_id = ?`, clusterA).Scan(&n)
		}))
		return n
	}
	require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
		for n := range clusters.MaxCapacityPoints {
			if _, err := tx.ExecContext(
				t.Context(),
				`INSERT INTO capacity_reports (cluster_id, taken_at, current_pod_count, soft_limit) VALUES (?, ?, 1, 1)`,
				clusterA,
				now.Add(-time.Duration(n+1)*time.Millisecond).UnixMilli(),
			); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Equal(t, clusters.MaxCapacityPoints, fine())
	save(0)
	require.Equal(t, clusters.MaxCapacityPoints, fine(), "the oldest has gone")
	save(starbase.CapacityRetention + time.Minute)
	require.Equal(t, clusters.MaxCapacityPoints, fine(), "what is too old is forgotten")
	require.Equal(t, now, w.overview().Latest.TakenAt)
	require.ErrorIs(t, w.store.SaveCapacity(t.Context(), clusterC, clusters.CapacityPoint{TakenAt: now}), clusters.ErrUnknownCluster)
}

func TestABadCapacityReportIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := capacityBody(clusterA, 5, time.Now())
	require.Equal(t, 401, w.do("POST", capacityPath(clusterA), "wrong", good).status)
	require.Equal(t, 403, w.do("POST", capacityPath(clusterA), w.tokens[clusterB], good).status)
	require.Equal(t, 403, w.do("POST", capacityPath(clusterC), w.tokens[clusterA], good).status)
	require.Equal(t, 405, w.do("GET", capacityPath(clusterA), w.tokens[clusterA], "").status)
	require.Equal(t, 415, w.do("POST", capacityPath(clusterA), w.tokens[clusterA], good, "Content-Type", "text/plain").status)
	require.Equal(t, 413, w.do("POST", capacityPath(clusterA), w.tokens[clusterA], strings.Repeat(" ", 9<<20)+good).status)
	for name, test := range map[string]struct{ body, code, field string }{
		"cut off":                {good[:len(good)-3], "malformed", ""},
		"a list":                 {"[" + good + "]", "malformed", ""},
		"something after":        {good + "{}", "malformed", ""},
		"another cluster":        {capacityBody(clusterB, 5, time.Now()), "invalid", "cluster_id"},
		"no cluster":             {strings.Replace(good, `"cluster_id"`, `"cluster"`, 1), "invalid", "cluster_id"},
		"no pods":                {strings.Replace(good, `"current_pod_count"`, `"pods"`, 1), "invalid", "current_pod_count"},
		"fewer than no pods":     {capacityBody(clusterA, -1, time.Now()), "invalid", "current_pod_count"},
		"too many pods":          {capacityBody(clusterA, 1_000_001, time.Now()), "invalid", "current_pod_count"},
		"half a pod":             {strings.Replace(good, `:5,`, `:5.5,`, 1), "invalid", "current_pod_count"},
		"pods as text":           {strings.Replace(good, `:5,`, `:"5",`, 1), "invalid", "current_pod_count"},
		"no limit":               {strings.Replace(good, `"soft_limit":1000`, `"soft_limit":null`, 1), "invalid", "soft_limit"},
		"a limit below zero":     {strings.Replace(good, `"soft_limit":1000`, `"soft_limit":-1`, 1), "invalid", "soft_limit"},
		"no time":                {strings.Replace(good, `"timestamp"`, `"time"`, 1), "invalid", "timestamp"},
		"a time that is none":    {fmt.Sprintf(`{"cluster_id":%q,"current_pod_count":1,"soft_limit":1,"timestamp":"yesterday"}`, clusterA), "invalid", "timestamp"},
		"a time of another zone": {fmt.Sprintf(`{"cluster_id":%q,"current_pod_count":1,"soft_limit":1,"timestamp":%q}`, clusterA, time.Now().In(time.FixedZone("", 3600)).Format(time.RFC3339)), "invalid", "timestamp"},
		"the future":             {capacityBody(clusterA, 5, time.Now().Add(10*time.Minute)), "invalid", "timestamp"},
		"long ago":               {capacityBody(clusterA, 5, time.Now().Add(-49*time.Hour)), "invalid", "timestamp"},
	} {
		got := w.do("POST", capacityPath(clusterA), w.tokens[clusterA], test.body)
		require.Equal(t, 400, got.status, "%s: %s", name, got.body)
		failure := got.failure(t)
		require.Equal(t, test.code, failure.Code, name)
		if test.field != "" {
			require.Equal(t, test.field, failure.Fields[0].Field, name)
		}
	}
	require.Nil(t, w.overview().Latest, "nothing was kept")
	require.Equal(
		t,
		204,
		w.do("POST", capacityPath(clusterA), w.tokens[clusterA], strings.Replace(good, "{", `{"more":1,`, 1)).status,
		"an agent may be newer",
	)
}
