package usage_test

import (
	"database/sql"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

const (
	clusterA = "aaaaaaaa-0000-4000-8000-000000000001"
	clusterB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// onBoth runs the test on each database.
func onBoth(t *testing.T, test func(*testing.T, *db.Database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, openSQLite(t, filepath.Join(t.TempDir(), "trueup.db")))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, openPostgreSQL(t, pgtest.NewDatabase(t)))
	})
}

func openSQLite(t *testing.T, path string) *db.Database {
	t.Helper()
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	return database
}

func openPostgreSQL(t *testing.T, url string) *db.Database {
	t.Helper()
	database, err := db.PostgreSQL{URL: url}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	return database
}

func id(kind, n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n) }

// record is the record of a pod at a time.
func record(pod int, at time.Time, change ...func(*usage.Record)) usage.Record {
	r := usage.Record{TakenAt: at, Snapshot: starbase.Snapshot{
		WorkspaceID: id(1, 0), ProjectID: id(2, 0), Environment: "production", ServiceID: id(3, 0), PodID: "pod-" + strconv.Itoa(pod),
		Phase: "Running", CPUMillis: 250, MemoryBytes: 512 << 20, SnapshotTimestamp: at.UTC().Format(time.RFC3339),
	}}
	for _, c := range change {
		c(&r)
	}
	r.SnapshotID = r.ID()
	return r
}

func save(t *testing.T, database *db.Database, clusterID string, records ...usage.Record) (stored int) {
	t.Helper()
	require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) (err error) {
		stored, err = usage.Save(t.Context(), tx, clusterID, records)
		return err
	}))
	return stored
}

func write(tb testing.TB, database *db.Database, statement string, args ...any) {
	tb.Helper()
	require.NoError(tb, database.Write(tb.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(tb.Context(), statement, args...)
		return err
	}))
}

// sum is what the records of the database add up to.
type sum struct {
	minutes, cpu int64
	memory       string
}

// raw sums the records that the database has, one by one, by some dimensions.
func raw(t *testing.T, database *db.Database, by []string) map[string]sum {
	t.Helper()
	totals, memory := map[string]sum{}, map[string]*big.Int{}
	require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
		rows, err := tx.QueryContext(
			t.Context(),
			`SELECT cluster_id, workspace_id, project_id, environment, service_id, phase, taken_at, cpu_millis, memory_bytes FROM snapshots`,
		)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var cluster, workspace, project, environment, service, phase string
			var at, cpu, bytes int64
			if err := rows.Scan(&cluster, &workspace, &project, &environment, &service, &phase, &at, &cpu, &bytes); err != nil {
				return err
			}
			values := map[string]string{
				"day": time.UnixMilli(at).UTC().Format(time.DateOnly), "cluster": cluster, "workspace": workspace,
				"project": project, "environment": environment, "service": service, "phase": phase,
			}
			var parts []string
			for _, dimension := range by {
				parts = append(parts, values[dimension])
			}
			key := strings.Join(parts, "/")
			if memory[key] == nil {
				memory[key] = new(big.Int)
			}
			memory[key].Add(memory[key], big.NewInt(bytes))
			totals[key] = sum{totals[key].minutes + 1, totals[key].cpu + cpu, memory[key].String()}
		}
		return rows.Err()
	}))
	return totals
}

// rolled asks for the same sums, a page at a time.
func rolled(t *testing.T, database *db.Database, by []string, limit int) map[string]sum {
	t.Helper()
	totals := map[string]sum{}
	q := usage.Query{From: time.UnixMilli(0).UTC(), To: time.Now().AddDate(0, 0, 2).UTC().Truncate(24 * time.Hour), By: by, Limit: limit}
	for {
		list, err := usage.Sums(t.Context(), database, q)
		require.NoError(t, err)
		for i := range list {
			key := list[i].Key(by)
			require.NotContains(t, totals, key, "twice")
			totals[key] = sum{list[i].PodMinutes, list[i].CPUMilliMinutes, list[i].MemoryByteMinutes.String()}
			q.After = key
		}
		if len(list) < limit || len(by) == 0 {
			return totals
		}
	}
}

// randomRecord is one of few pods, minutes and services, so that much comes twice.
func randomRecord(random *rand.Rand, days, pods int, now time.Time) usage.Record {
	n := random.IntN(pods)
	at := now.Add(-time.Duration(random.IntN(days*24*60)) * time.Minute)
	return record(n, at, func(r *usage.Record) {
		r.WorkspaceID, r.ProjectID, r.ServiceID = id(1, n%3), id(2, n%5), id(3, n%7)
		r.Environment = []string{"production", "staging", "a-b"}[n%3]
		// What comes twice may say another thing: the first one counts.
		r.Phase = []string{"Running", "Running", "Pending", "Failed"}[random.IntN(4)]
		r.CPUMillis = []int64{0, 1, 250, 1_000_000_000}[random.IntN(4)]
		r.MemoryBytes = []int64{0, 1, 1<<30 - 1, 1 << 30, 512<<20 + 7, 1 << 50}[random.IntN(6)]
	})
}

// TestTheSumsAreThoseOfTheRecords has agents send records twice, late, in any order and at
// once, and then compares every sum with the records, one by one. With TRUEUP_RECORDS=1000000
// it takes minutes.
func TestTheSumsAreThoseOfTheRecords(t *testing.T) {
	t.Parallel()
	records, seed := 3000, uint64(time.Now().UnixNano())
	if text := os.Getenv("TRUEUP_RECORDS"); text != "" {
		var err error
		records, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("TRUEUP_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("TRUEUP_SEED=%d", seed)
	onBoth(t, func(t *testing.T, database *db.Database) {
		t.Helper()
		const agents = 3
		now, pods := time.Now().UTC().Truncate(time.Minute), max(40, records/3000)
		var group sync.WaitGroup
		for agent := range agents {
			random := rand.New(rand.NewPCG(seed, uint64(agent)))
			group.Go(func() {
				for sent := 0; sent < records/agents; {
					// An agent of A, one of A that overlaps it, and one of B.
					cluster, batch := []string{clusterA, clusterA, clusterB}[agent], make([]usage.Record, 1+random.IntN(800))
					for i := range batch {
						batch[i] = randomRecord(random, 4, pods, now)
					}
					for range 1 + random.IntN(2) {
						err := database.Write(t.Context(), func(tx *db.Tx) error {
							_, err := usage.Save(t.Context(), tx, cluster, batch)
							return err
						})
						if err != nil {
							t.Error(err)
							return
						}
					}
					sent += len(batch)
				}
			})
		}
		group.Wait()
		mismatches, compared, minutes := 0, 0, int64(0)
		for _, by := range [][]string{usage.Dimensions(), {"day"}, {"workspace"}, {"day", "project"}, {"cluster", "phase"}, {"environment", "service"}, {}} {
			want := raw(t, database, by)
			have := rolled(t, database, by, 17)
			for key, sum := range want {
				if have[key] != sum {
					mismatches++
					t.Errorf("by %v: %s is %v, want %v", by, key, have[key], sum)
				}
				minutes += sum.minutes
			}
			require.Len(t, have, len(want), "by %v", by)
			compared += len(want)
		}
		require.Greater(t, compared, 100)
		t.Logf("figure usage_mismatches %d sums", mismatches)
		t.Logf("figure usage_records %d records", minutes/7)
	})
}

func TestARowHasWhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database *db.Database) {
		t.Helper()
		day := time.Now().UTC().Truncate(24 * time.Hour)
		old := day.AddDate(0, 0, -4)
		staging := func(r *usage.Record) { r.Environment = "staging" }
		pending := func(r *usage.Record) { r.Phase = "Pending" }
		save(
			t,
			database,
			clusterA,
			record(1, old),
			record(1, old.Add(24*time.Hour-time.Minute)),
			record(2, old, staging),
			record(3, day, pending),
		)
		save(t, database, clusterB, record(4, day, func(r *usage.Record) { r.WorkspaceID = id(1, 9) }))

		ask := func(q usage.Query) (rows []string) {
			q.Limit = 100
			if q.To.IsZero() {
				q.From, q.To = old, day.AddDate(0, 0, 1)
			}
			list, err := usage.Sums(t.Context(), database, q)
			require.NoError(t, err)
			for i := range list {
				rows = append(
					rows,
					fmt.Sprint(
						list[i].Key(q.By),
						" ",
						list[i].PodMinutes,
						" ",
						list[i].CPUMilliMinutes,
						" ",
						list[i].MemoryByteMinutes,
						" ",
						list[i].Final,
					),
				)
			}
			return rows
		}
		date := func(t time.Time) string { return t.Format(time.DateOnly) }
		require.Equal(
			t,
			[]string{date(old) + " 3 750 1610612736 true", date(day) + " 2 500 1073741824 false"},
			ask(usage.Query{By: []string{"day"}}),
		)
		require.Equal(t, []string{" 5 1250 2684354560 false"}, ask(usage.Query{}), "one sum of everything")
		require.Equal(t, []string{" 3 750 1610612736 true"}, ask(usage.Query{From: old, To: old.AddDate(0, 0, 1)}))
		require.Empty(t, ask(usage.Query{From: old.AddDate(0, 0, 1), To: day}), "two days without a record")
		require.Empty(t, ask(usage.Query{From: old.AddDate(0, 0, 1), To: day, By: []string{"day"}}))
		require.Equal(
			t,
			[]string{
				"production/Pending 1 250 536870912 false",
				"production/Running 3 750 1610612736 false",
				"staging/Running 1 250 536870912 false",
			},
			ask(usage.Query{By: []string{"environment", "phase"}}),
		)
		require.Equal(
			t,
			[]string{clusterA + " 2 500 1073741824 false"},
			ask(
				usage.Query{By: []string{"cluster"}, Where: map[string]string{"environment": "production", "phase": "Running", "cluster": clusterA}},
			),
		)
		for dimension, value := range map[string]string{"workspace": id(1, 9), "cluster": clusterB} {
			require.Equal(t, []string{" 1 250 536870912 false"}, ask(usage.Query{Where: map[string]string{dimension: value}}), dimension)
		}
		for dimension, value := range map[string]string{"project": id(2, 9), "service": id(3, 9), "phase": "Failed"} {
			require.Empty(t, ask(usage.Query{Where: map[string]string{dimension: value}}), dimension)
		}
	})
}

func TestADayIsFinalWhenNoRecordOfItIsTakenAnyMore(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	now := time.Now().UTC()
	for age := range 6 {
		at := now.AddDate(0, 0, -age).Truncate(24 * time.Hour)
		save(t, database, clusterA, record(1, at))
		list, err := usage.Sums(t.Context(), database, usage.Query{From: at, To: at.AddDate(0, 0, 1), By: []string{"day"}, Limit: 9})
		require.NoError(t, err)
		require.Len(t, list, 1)
		last := at.Add(24*time.Hour - time.Minute)
		s := record(1, last).Snapshot
		s.ClusterID, s.Tier = clusterA, "nova"
		_, wrong := s.Validate(clusterA, time.Now())
		refused := slices.ContainsFunc(wrong, func(f starbase.FieldError) bool {
			return f.Field == "snapshot_timestamp" && strings.Contains(f.Want, "ago")
		})
		if list[0].Final {
			require.True(t, refused, "%s: %v", at, wrong)
		} else {
			require.True(t, at.Add(24*time.Hour).After(now.Add(-starbase.SnapshotMaxAge)), "%s", at)
		}
	}
}

// TestADatabaseOfBeforeHasItsSums runs the migration on a database that has records and no sums,
// and on which a program of before goes on storing records, while two programs of now sum them.
func TestADatabaseOfBeforeHasItsSums(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute)
	migration, err := os.ReadFile("../db/migrations/0019_usage.sql")
	require.NoError(t, err)
	onBoth(t, func(t *testing.T, database *db.Database) {
		t.Helper()
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
		var batch []usage.Record
		for range 7000 {
			batch = append(batch, randomRecord(random, 3, 20, now))
		}
		save(t, database, clusterA, batch[:3500]...)
		save(t, database, clusterB, batch[3500:]...)
		want, bits := rolled(t, database, usage.Dimensions(), 1000), hours(t, database)
		require.Greater(t, len(want), 100)
		require.NotEmpty(t, bits)
		for _, statement := range []string{
			`DROP TABLE usage_days`, `DROP TABLE usage_hours`, `DROP INDEX snapshots_not_summed`, `ALTER TABLE snapshots DROP COLUMN summed`, string(migration),
		} {
			write(t, database, statement)
		}
		old := now.AddDate(0, 0, -5).Truncate(24 * time.Hour)
		write(t, database, `INSERT INTO snapshots SELECT 'of-before', cluster_id, workspace_id, project_id, environment, service_id, pod_id, tier,
			'Running', ?, 250, 7, received_at, 0 FROM snapshots LIMIT 1`, old.UnixMilli())
		require.Empty(t, rolled(t, database, usage.Dimensions(), 1000))
		save(t, database, clusterA, record(1, old.Add(time.Hour)))
		final := func() bool {
			list, err := usage.Sums(t.Context(), database, usage.Query{From: old, To: old.AddDate(0, 0, 1), By: []string{"day"}, Limit: 1})
			require.NoError(t, err)
			return list[0].Final
		}
		require.False(t, final(), "a record of the day is in no sum")
		maintainer := usage.Maintainer{Database: database, RecordRetention: 48 * time.Hour}
		kept := count(t, database, "snapshots")
		require.NoError(t, maintainer.Prune(t.Context()))
		require.Equal(t, kept-1, count(t, database, "snapshots"), "what is in no sum stays, however old")

		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				if err := maintainer.Sum(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		require.True(t, final())
		have := rolled(t, database, usage.Dimensions(), 1000)
		for key := range have {
			if strings.HasPrefix(key, old.Format(time.DateOnly)) {
				delete(have, key)
			}
		}
		require.Equal(t, want, have)
		require.Equal(t, bits, hours(t, database)[2:], "the records of that day have two hours")
		before := rolled(t, database, usage.Dimensions(), 1000)
		require.NoError(t, maintainer.Sum(t.Context()))
		require.Equal(t, before, rolled(t, database, usage.Dimensions(), 1000), "each is added once")
	})
}

// hours returns what is known of each hour.
func hours(t *testing.T, database *db.Database) (rows []string) {
	t.Helper()
	require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
		found, err := tx.QueryContext(
			t.Context(),
			`SELECT cluster_id, hour, recorded, reported, populated FROM usage_hours ORDER BY hour, cluster_id`,
		)
		rows, err = db.Collect(found, err, func(rows *sql.Rows, text *string) error {
			var cluster string
			var hour, recorded, reported, populated int64
			err := rows.Scan(&cluster, &hour, &recorded, &reported, &populated)
			*text = fmt.Sprint(cluster, hour, recorded, reported, populated)
			return err
		})
		return err
	}))
	return rows
}

func report(t *testing.T, database *db.Database, clusterID string, at time.Time, pods int64) {
	t.Helper()
	require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error { return usage.Report(t.Context(), tx, clusterID, at, pods) }))
}
