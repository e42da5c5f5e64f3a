package usage_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

func count(t *testing.T, database *db.Database, table string) (n int) {
	t.Helper()
	require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n)
	}))
	return n
}

// TestWhatIsTooOldGoesInSlices has more old records than one transaction removes, and an agent
// that sends meanwhile.
func TestWhatIsTooOldGoesInSlices(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database *db.Database) {
		t.Helper()
		now := time.Now().UTC().Truncate(time.Minute)
		const old, kept = 6_000, 50
		batch := make([]usage.Record, 0, old+kept)
		for n := range old {
			batch = append(batch, record(n, now.AddDate(0, 0, -70)))
		}
		for n := range kept {
			batch = append(batch, record(n, now.AddDate(0, 0, -61)))
		}
		require.Equal(t, old+kept, save(t, database, clusterA, batch...))
		log := &logtest.Log{}
		maintainer := usage.Maintainer{Database: database, Logger: slog.New(slog.NewJSONHandler(log, nil))}
		require.NoError(t, maintainer.Prune(t.Context()))
		require.Equal(t, kept, count(t, database, "snapshots"))
		require.Equal(t, 2, count(t, database, "usage_days"), "the sums outlive the records")
		require.Contains(t, log.String(), `"rows":6000`)

		before := log.String()
		require.NoError(t, maintainer.Prune(t.Context()))
		require.Equal(t, before, log.String(), "there is nothing to remove")

		save(t, database, clusterA, record(1, now.AddDate(0, 0, -402)), record(1, now.Add(-26*time.Hour)), record(1, now.Add(-24*time.Hour)))
		require.Equal(t, 2, count(t, database, "snapshot_minutes")+1, "that of 24 hours ago alone")
		require.Equal(t, 5, count(t, database, "usage_hours"))
		require.NoError(t, maintainer.Prune(t.Context()))
		require.Equal(t, 4, count(t, database, "usage_hours"))
		require.GreaterOrEqual(t, count(t, database, "usage_days"), 3)
		write(
			t,
			database,
			`INSERT INTO snapshot_minutes (cluster_id, minute, records) VALUES (?, ?, 1)`,
			clusterA,
			now.Add(-26*time.Hour).UnixMilli(),
		)
		require.NoError(t, maintainer.Prune(t.Context()))
		require.Equal(t, 1, count(t, database, "snapshot_minutes"))
	})
}

// TestADayOfSumsGoesWhole keeps a day until its last minute is too old.
func TestADayOfSumsGoesWhole(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for _, days := range []int{3, 4, 5} {
		save(t, database, clusterA, record(1, today.AddDate(0, 0, -days)))
	}
	maintainer := usage.Maintainer{Database: database, Retention: usage.MinRetention}
	require.NoError(t, maintainer.Prune(t.Context()))
	list, err := usage.Sums(t.Context(), database, usage.Query{From: time.UnixMilli(0), To: today, By: []string{"day"}, Limit: 9})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, today.AddDate(0, 0, -3).Format(time.DateOnly), list[0].Day)
}

func TestTheMaintainerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	save(t, database, clusterA, record(1, time.Now().AddDate(-1, 0, 0)), record(2, time.Now().AddDate(-1, 0, 0)))
	write(t, database, `UPDATE snapshots SET summed = 0 WHERE pod_id = 'pod-2'`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- (&usage.Maintainer{Database: database}).Start(ctx) }()
	await.Eventually(t, "what is in no sum is added, and then all is removed", func() bool { return count(t, database, "snapshots") == 0 })
	cancel()
	require.NoError(t, <-ended)
}

func TestAPassThatFailsIsCounted(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	write(t, database, `DROP TABLE usage_hours`)
	failures, err := usage.NewFailures(prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&usage.Maintainer{Database: database, Failures: failures}).Start(ctx) }()
	require.Eventually(t, func() bool { return testutil.ToFloat64(failures) == 1 }, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
