package usage_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
)

// gaps returns the gaps as text, with times as minutes after begin.
func gaps(t *testing.T, database *db.Database, clusterID string, begin, from, to time.Time) (list []string) {
	t.Helper()
	found, err := usage.Gaps(t.Context(), database, clusterID, from, to)
	require.NoError(t, err)
	for _, g := range found {
		require.Equal(t, g.Minutes, int64(g.To.Sub(g.From)/time.Minute))
		list = append(list, fmt.Sprintf("%s %s %v-%v", g.ClusterID[:1], g.Reason, g.From.Sub(begin).Minutes(), g.To.Sub(begin).Minutes()))
	}
	return list
}

// TestAMinuteWithoutRecordsIsAGapOrExplained sends records and reports of minutes, and looks for
// gaps.
func TestAMinuteWithoutRecordsIsAGapOrExplained(t *testing.T) {
	t.Parallel()
	// r: records; p: pods were counted; z: none were counted; b: none, and then some; R: records, and pods were counted.
	for name, test := range map[string]struct {
		minutes string
		want    []string
	}{
		"nothing is missing":                       {"RRRRRR", nil},
		"records, and a report now and then":       {"RrRrrrR", nil},
		"no records although there are pods":       {"RRppRR", []string{"a Unrecorded 2-4"}},
		"one after the other":                      {"RRpp___RR", []string{"a Unrecorded 2-4", "a Silent 4-7"}},
		"a report of none before one of some":      {"RRbbRR", []string{"a Unrecorded 2-4"}},
		"one minute":                               {"RRpRR", []string{"a Unrecorded 2-3"}},
		"a report comes late":                      {"RR_RR", []string{"a Unrecorded 2-3"}},
		"the agent was away":                       {"RR____RR", []string{"a Silent 2-6"}},
		"the agent was away, records were kept":    {"RRrrrrRR", nil},
		"records of before the first report":       {"rr__RR", nil},
		"records of after the last report":         {"RR___r", []string{"a Silent 2-5"}},
		"no pods":                                  {"zzzzzz", nil},
		"no pods, and a report now and then":       {"z_z_z", nil},
		"the last pod goes":                        {"RRzzz", nil},
		"the first pod comes":                      {"zzpRR", nil},
		"pods come while there are no records":     {"zzpppRR", []string{"a Unrecorded 3-5"}},
		"the agent was away while there were none": {"zz____zz", []string{"a Silent 2-7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
			// The hour changes within.
			begin := time.Now().UTC().Truncate(time.Hour).Add(-12*time.Hour - 2*time.Minute)
			for n, what := range test.minutes {
				at := begin.Add(time.Duration(n) * time.Minute)
				if what == 'R' || what == 'r' {
					save(t, database, clusterA, record(1, at))
				}
				if what == 'R' || what == 'p' {
					report(t, database, clusterA, at.Add(40*time.Second), 3)
				}
				if what == 'b' {
					report(t, database, clusterA, at.Add(10*time.Second), 0)
					report(t, database, clusterA, at.Add(40*time.Second), 3)
				}
				if what == 'z' {
					report(t, database, clusterA, at.Add(40*time.Second), 0)
				}
			}
			require.Equal(t, test.want, gaps(t, database, "", begin, begin.Add(-time.Hour), begin.Add(5*time.Hour)))
		})
	}
}

// TestAGapAtTheEdgeIsSeen has an hour that lacks its last minute, days that begin and end in gaps,
// and clusters of which one's gap begins where the other's ends.
func TestAGapAtTheEdgeIsSeen(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	begin := time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour)
	minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
	missing := map[string][2]int{clusterA: {119, 130}, clusterB: {130, 140}}
	for cluster, gap := range missing {
		var records []usage.Record
		for n := range 240 {
			if n != 119 { // a report comes late
				report(t, database, cluster, minute(n).Add(time.Second), 1)
			}
			if n < gap[0] || n >= gap[1] {
				records = append(records, record(n, minute(n), func(r *usage.Record) { r.ProjectID = cluster }))
			}
		}
		save(t, database, cluster, records...)
	}
	all := []string{"a Unrecorded 119-130", "b Unrecorded 130-140"}
	require.Equal(t, all, gaps(t, database, "", begin, begin, minute(240)))
	require.Equal(
		t,
		[]string{"a Unrecorded 119-120"},
		gaps(t, database, "", begin, minute(60), minute(120)),
		"the report after it is in the next hour",
	)
	require.Equal(
		t,
		[]string{"a Unrecorded 120-130"},
		gaps(t, database, clusterA, begin, minute(120), minute(180)),
		"the one before it is in the hour before",
	)

	ask := serve(t, database)
	from, to := begin.Format(time.DateOnly), begin.AddDate(0, 0, 2).Format(time.DateOnly)
	_, body := ask("usage/gaps?from=" + from + "&to=" + to + "&cluster_id=" + clusterB)
	require.Contains(t, body, clusterB)
	require.NotContains(t, body, clusterA)
	for days, want := range map[int]int{100: 200, 101: 400} {
		status, body := ask("usage/gaps?from=" + begin.AddDate(0, 0, -days).Format(time.DateOnly) + "&to=" + begin.Format(time.DateOnly))
		require.Equal(t, want, status, body)
	}
}

func TestGapsAreThoseOfTheTimeAndTheCluster(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database *db.Database) {
		t.Helper()
		begin := time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour)
		minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
		for _, cluster := range []string{clusterA, clusterB} {
			var records []usage.Record
			for n := range 90 {
				report(t, database, cluster, minute(n).Add(time.Second), 1)
				if n < 20 || n >= 70 || cluster == clusterB && n != 50 {
					records = append(records, record(n, minute(n), func(r *usage.Record) { r.ProjectID = cluster }))
				}
			}
			save(t, database, cluster, records...)
		}
		all := []string{"a Unrecorded 20-70", "b Unrecorded 50-51"}
		require.Equal(t, all, gaps(t, database, "", begin, begin, minute(400)))
		require.Equal(t, all[1:], gaps(t, database, clusterB, begin, begin, minute(400)))
		require.Equal(t, []string{"a Unrecorded 30-40"}, gaps(t, database, "", begin, minute(30), minute(40)), "it is cut")
		require.Empty(t, gaps(t, database, "", begin, minute(70), minute(400)))
		require.Empty(t, gaps(t, database, "cccccccc-0000-4000-8000-000000000003", begin, begin, minute(400)))

		// What comes late is no gap any more.
		var late []usage.Record
		for n := 20; n < 70; n++ {
			late = append(late, record(n, minute(n)))
		}
		save(t, database, clusterA, late...)
		require.Equal(t, all[1:], gaps(t, database, "", begin, begin, minute(400)))
	})
}

// TestAnAgentThatIsAwayIsAGapUntilNow has a cluster that is registered, and one that is not
// any more.
func TestAnAgentThatIsAwayIsAGapUntilNow(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	write(
		t,
		database,
		`INSERT INTO clusters (id, region, token_hash, epoch, generation, lb_size_units, created_at) VALUES (?, 'nyc3', 'x', 'e', 1, 1, 1)`,
		clusterA,
	)
	now := time.Now().UTC()
	begin := now.Truncate(time.Minute).Add(-time.Hour)
	for _, cluster := range []string{clusterA, clusterB} {
		save(t, database, cluster, record(1, begin, func(r *usage.Record) { r.ProjectID = cluster }))
		report(t, database, cluster, begin, 1)
	}
	found, err := usage.Gaps(t.Context(), database, "", begin.Add(-time.Hour), now.Add(24*time.Hour))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, usage.ReasonSilent, found[0].Reason)
	require.Equal(t, clusterA, found[0].ClusterID)
	require.Equal(t, begin.Add(time.Minute), found[0].From)
	require.WithinDuration(t, now.Add(-6*time.Minute), found[0].To, 70*time.Second, "the last minutes may still come")
}
