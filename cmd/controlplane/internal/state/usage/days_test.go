package usage_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// partitions returns how many records each partition has.
func partitions(t *testing.T, database *db.Database) map[string]int {
	t.Helper()
	var names []string
	require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) (err error) {
		rows, err := tx.QueryContext(t.Context(), `SELECT relname FROM pg_partition_tree('snapshots') p
			JOIN pg_class c ON c.oid = p.relid WHERE isleaf`)
		names, err = db.Collect(rows, err, func(rows *sql.Rows, name *string) error { return rows.Scan(name) })
		return err
	}))
	all := map[string]int{}
	for _, name := range names {
		all[name] = count(t, database, name)
	}
	return all
}

func nameOf(day time.Time) string { return "snapshots_" + day.UTC().Format("20060102") }

// attach makes the partition of a day as the program would have.
func attach(t *testing.T, database *db.Database, day time.Time) {
	t.Helper()
	from := day.UTC().Truncate(24 * time.Hour)
	write(t, database, fmt.Sprintf(`CREATE TABLE %s PARTITION OF snapshots (PRIMARY KEY (snapshot_id)) FOR VALUES FROM (%d) TO (%d)`,
		nameOf(day), from.UnixMilli(), from.AddDate(0, 0, 1).UnixMilli()))
}

func TestADayOfRecordsIsATableThatGoesWhole(t *testing.T) {
	t.Parallel()
	database := openPostgreSQL(t, pgtest.NewDatabase(t))
	log, now := &logtest.Log{}, time.Now().UTC().Truncate(time.Minute)
	maintainer := usage.Maintainer{Database: database, Logger: slog.New(slog.NewJSONHandler(log, nil))}
	require.NoError(t, maintainer.Partition(t.Context()))
	old, edge, open := now.AddDate(0, 0, -64), now.AddDate(0, 0, -62), now.AddDate(0, 0, -70)
	for _, day := range []time.Time{old, edge, open} {
		attach(t, database, day)
	}
	require.NoError(t, maintainer.Prune(t.Context()))
	have := partitions(t, database)
	for days := -2; days <= 7; days++ { // the days that records are taken of, and a week
		require.Contains(t, have, nameOf(now.AddDate(0, 0, days)))
	}
	require.NotContains(t, have, nameOf(old), "it was empty")
	require.NotContains(t, have, nameOf(open), "it was empty")
	require.Len(t, have, 10+1+1, "and %s, which is not a whole day too old, and the rest", nameOf(edge))

	last := nameOf(now.AddDate(0, 0, 7))
	write(t, database, `DROP TABLE `+last)
	require.NoError(t, maintainer.Partition(t.Context()))
	require.Contains(t, partitions(t, database), last, "the day before it has one")

	attach(t, database, old)
	attach(t, database, open)
	batch := []usage.Record{
		record(1, now), record(2, now.AddDate(0, 0, 1)), record(3, now.AddDate(0, 0, 30)), record(4, old), record(5, old),
		record(6, open), record(7, edge),
	}
	require.Equal(t, len(batch), save(t, database, clusterA, batch...))
	require.Zero(t, save(t, database, clusterA, batch...), "each is stored once")
	write(t, database, `UPDATE snapshots SET summed = 0 WHERE pod_id = 'pod-6'`)
	have = partitions(t, database)
	require.Equal(t, 2, have[nameOf(old)])
	require.Equal(t, 1, have[nameOf(now)])
	require.Equal(t, 1, have["snapshots_rest"], "there is no day for it")
	days := count(t, database, "usage_days")
	require.NoError(t, maintainer.Prune(t.Context()))
	have = partitions(t, database)
	require.NotContains(t, have, nameOf(old))
	require.Equal(t, 1, have[nameOf(open)], "what is in no sum stays, however old")
	require.Equal(t, 1, have[nameOf(edge)])
	require.Equal(t, 5, count(t, database, "snapshots"))
	require.Equal(t, days, count(t, database, "usage_days"), "the sums outlive the records")
	require.Contains(t, log.String(), `"msg":"usage removed","table":"`+nameOf(old)+`"`)
	removed := func() int { return strings.Count(log.String(), `"table":"`+nameOf(open)+`"`) }
	require.Equal(t, 1, removed(), "when it was empty")

	require.NoError(t, maintainer.Sum(t.Context()))
	require.NoError(t, maintainer.Prune(t.Context()))
	require.NotContains(t, partitions(t, database), nameOf(open), "it is in the sums")
	require.Equal(t, 2, removed())
}

// TestADayThatBeganInTheRestStaysThere: records had come before there was a partition for them, as
// with a program of before that runs for longer than a week.
func TestADayThatBeganInTheRestStaysThere(t *testing.T) {
	t.Parallel()
	database := openPostgreSQL(t, pgtest.NewDatabase(t))
	now := time.Now().UTC().Truncate(time.Minute)
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, maintainer.Partition(t.Context()))
	write(t, database, `DROP TABLE `+nameOf(now))
	write(t, database, `DROP TABLE `+nameOf(now.AddDate(0, 0, 1)))
	save(t, database, clusterA, record(1, now))
	require.NoError(t, maintainer.Partition(t.Context()))
	have := partitions(t, database)
	require.NotContains(t, have, nameOf(now))
	require.Contains(t, have, nameOf(now.AddDate(0, 0, 1)))
	require.Len(t, have, 9+1)
	require.Equal(t, 1, save(t, database, clusterA, record(1, now), record(2, now)))
	require.NoError(t, maintainer.Partition(t.Context()))
	require.Equal(t, 2, partitions(t, database)["snapshots_rest"])
}

// TestAPartitionThatAPersonHasDetachedIsNotTouched: its day goes on in the rest, and a partition that a
// person has attached under a name of their own is one as the others.
func TestAPartitionThatAPersonHasDetachedIsNotTouched(t *testing.T) {
	t.Parallel()
	database := openPostgreSQL(t, pgtest.NewDatabase(t))
	now := time.Now().UTC().Truncate(time.Minute)
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, maintainer.Partition(t.Context()))
	save(t, database, clusterA, record(1, now))
	write(t, database, `ALTER TABLE snapshots DETACH PARTITION `+nameOf(now))
	old := now.AddDate(0, 0, -80).Truncate(24 * time.Hour)
	write(t, database, fmt.Sprintf(`CREATE TABLE "Autumn's ""best""" PARTITION OF snapshots FOR VALUES FROM (%d) TO (%d)`,
		old.UnixMilli(), old.AddDate(0, 0, 2).UnixMilli()))
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Equal(t, 1, save(t, database, clusterA, record(2, now)))
	require.NoError(t, maintainer.Prune(t.Context()))
	have := partitions(t, database)
	require.Equal(t, 1, have["snapshots_rest"])
	require.Len(t, have, 9+1)
	require.Equal(t, 1, count(t, database, nameOf(now)))
}

// TestRecordsOfBeforeGoInSlicesAndThenWithTheirTable has the table of before, detached and attached again.
func TestRecordsOfBeforeGoInSlicesAndThenWithTheirTable(t *testing.T) {
	t.Parallel()
	database := openPostgreSQL(t, pgtest.NewDatabase(t))
	today := time.Now().UTC().Truncate(24 * time.Hour)
	bounds := func(days int) string {
		return fmt.Sprintf(`snapshots_before FOR VALUES FROM (MINVALUE) TO (%d)`, today.AddDate(0, 0, days).UnixMilli())
	}
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, maintainer.Partition(t.Context()))
	write(t, database, `CREATE TABLE snapshots_before (LIKE snapshots INCLUDING DEFAULTS)`)
	write(t, database, `ALTER TABLE snapshots ATTACH PARTITION `+bounds(-30))
	save(t, database, clusterA, record(1, today.AddDate(0, 0, -70)), record(2, today.AddDate(0, 0, -61)), record(3, today.AddDate(0, 0, -71)))
	write(t, database, `UPDATE snapshots SET summed = 0 WHERE pod_id = 'pod-3'`)
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Equal(t, 2, count(t, database, "snapshots_before"), "what is not too old, or in no sum, stays")

	write(t, database, `ALTER TABLE snapshots DETACH PARTITION snapshots_before`)
	write(t, database, `UPDATE snapshots_before SET taken_at = ?, summed = 1`, today.AddDate(0, 0, -80).UnixMilli())
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Equal(t, 2, count(t, database, "snapshots_before"), "it is of the person who has detached it")

	write(t, database, `ALTER TABLE snapshots ATTACH PARTITION `+bounds(-64))
	require.NoError(t, maintainer.Prune(t.Context()))
	require.NotContains(t, partitions(t, database), "snapshots_before")
	require.Equal(t, 0, count(t, database, `pg_class WHERE relname = 'snapshots_before'`))
}

// TestAPartitionThatIsDetachedMeanwhileStays has a person detach one that the program is about to remove.
func TestAPartitionThatIsDetachedMeanwhileStays(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	database, other := openPostgreSQL(t, url), openPostgreSQL(t, url)
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, maintainer.Partition(t.Context()))
	old := time.Now().UTC().AddDate(0, 0, -70).Truncate(time.Minute)
	attach(t, database, old)
	save(t, database, clusterA, record(1, old))
	removed := make(chan error, 1)
	require.NoError(t, other.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.ExecContext(t.Context(), `LOCK TABLE ONLY snapshots IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		go func() { removed <- maintainer.Partition(t.Context()) }()
		await.Eventually(t, "the program waits for its turn", func() bool {
			return count(t, other, `pg_locks JOIN pg_database d ON d.oid = database WHERE datname = current_database()
				AND relation = 'snapshots'::regclass AND NOT granted`) == 1 || len(removed) == 1
		})
		_, err := tx.ExecContext(t.Context(), `ALTER TABLE snapshots DETACH PARTITION `+nameOf(old))
		return err
	}))
	if err := <-removed; err != nil { // a slow machine
		require.ErrorIs(t, err, db.ErrBusy)
	}
	require.Equal(t, 1, count(t, database, nameOf(old)))
}

// TestWhoHoldsAPartitionHoldsUpNoOther has a transaction open that has written to the rest.
func TestWhoHoldsAPartitionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	database, other := openPostgreSQL(t, url), openPostgreSQL(t, url)
	now := time.Now().UTC().Truncate(time.Minute)
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, maintainer.Partition(t.Context()))
	save(t, database, clusterA, record(1, now.AddDate(0, 0, -402)))
	write(t, database, `DROP TABLE `+nameOf(now.AddDate(0, 0, -2)))
	require.NoError(t, other.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := usage.Save(t.Context(), tx, clusterB, []usage.Record{record(2, now.AddDate(0, 0, 40))}); err != nil {
			return err
		}
		err := maintainer.Prune(t.Context())
		require.ErrorIs(t, err, db.ErrBusy)
		require.ErrorContains(t, err, "make the partition of "+now.AddDate(0, 0, -2).Format(time.DateOnly))
		require.NotContains(t, err.Error(), now.AddDate(0, 0, -1).Format(time.DateOnly), "agents wait for it once")
		require.Zero(t, count(t, database, "snapshots"), "what is too old has gone")
		return nil
	}))
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Len(t, partitions(t, database), 10+1)
}

// TestARecordWhoseDayGetsItsPartitionMeanwhileIsStored has an agent send while the partition is made: PostgreSQL
// has chosen the rest for the record, which has to go to the new partition.
func TestARecordWhoseDayGetsItsPartitionMeanwhileIsStored(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	database, other := openPostgreSQL(t, url), openPostgreSQL(t, url)
	at := time.Now().UTC().Truncate(time.Minute)
	require.NoError(t, (&usage.Maintainer{Database: database}).Partition(t.Context()))
	write(t, database, `DROP TABLE `+nameOf(at))
	stored := make(chan error, 1)
	require.NoError(t, other.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.ExecContext(t.Context(), `LOCK TABLE snapshots_rest IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		go func() {
			stored <- database.Write(t.Context(), func(tx *db.Tx) error {
				_, err := usage.Save(t.Context(), tx, clusterA, []usage.Record{record(1, at)})
				return err
			})
		}()
		await.Eventually(t, "the record waits", func() bool {
			return count(t, other, `pg_locks WHERE relation = 'snapshots_rest'::regclass AND NOT granted`) == 1
		})
		from := at.Truncate(24 * time.Hour)
		to := from.AddDate(0, 0, 1)
		return tx.ExecEach(t.Context(), nil, `CREATE TABLE `+nameOf(at)+` (LIKE snapshots INCLUDING DEFAULTS)`,
			fmt.Sprintf(`ALTER TABLE snapshots ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`, nameOf(at), from.UnixMilli(), to.UnixMilli()))
	}))
	require.NoError(t, <-stored)
	require.Equal(t, 1, partitions(t, database)[nameOf(at)])
	require.Equal(t, 1, count(t, database, "usage_days"))
}

// TestReplicasMakePartitionsWhileAgentsSend has records stored while two replicas make partitions.
func TestReplicasMakePartitionsWhileAgentsSend(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	databases := []*db.Database{openPostgreSQL(t, url), openPostgreSQL(t, url)}
	now := time.Now().UTC().Truncate(time.Minute)
	var group sync.WaitGroup
	fails := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	const batches, pods = 30, 20
	for at, database := range databases {
		for range 2 {
			group.Go(func() { fails((&usage.Maintainer{Database: database}).Partition(t.Context())) })
		}
		group.Go(func() {
			for n := range batches {
				var batch []usage.Record
				for pod := range pods {
					batch = append(batch, record(pod, now.Add(time.Duration(at*batches+n)*-time.Minute)))
				}
				for range 2 { // the second is a repetition
					fails(database.Write(t.Context(), func(tx *db.Tx) error {
						_, err := usage.Save(t.Context(), tx, clusterA, batch)
						return err
					}))
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, 2*batches*pods, count(t, databases[0], "snapshots"))
	var minutes int64
	for _, s := range rolled(t, databases[1], usage.Dimensions(), 1000) {
		minutes += s.minutes
	}
	require.Equal(t, int64(2*batches*pods), minutes)
}

// TestTheTableOfBeforeBecomesAPartition has records from before, and agents that send all the while, to a
// program that knows of no partitions too. A reader, such as a dump, puts it off and holds up no agent.
func TestTheTableOfBeforeBecomesAPartition(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	database, other := openPostgreSQL(t, url), openPostgreSQL(t, url)
	now := time.Now().UTC().Truncate(time.Minute)
	before := []usage.Record{record(1, now.AddDate(0, 0, -61)), record(1, now.Add(-time.Hour)), record(2, now)}
	save(t, database, clusterA, before...)
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, other.Read(t.Context(), func(tx *db.Tx) error {
		var n int
		if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM snapshots`).Scan(&n); err != nil {
			return err
		}
		require.ErrorIs(t, maintainer.Prune(t.Context()), db.ErrBusy)
		require.Equal(t, 1, save(t, database, clusterA, record(3, now)))
		return nil
	}))
	// It has been begun long ago, and would refuse records soon.
	write(t, database, fmt.Sprintf(`ALTER TABLE snapshots ADD CONSTRAINT snapshots_until CHECK (taken_at < %d) NOT VALID`,
		now.AddDate(0, 0, 6).UnixMilli()))
	var group sync.WaitGroup
	const batches = 20
	for at, one := range []*db.Database{database, other} {
		group.Go(func() {
			if err := (&usage.Maintainer{Database: one}).Partition(t.Context()); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			for n := range batches {
				if err := one.Write(t.Context(), func(tx *db.Tx) error {
					_, err := usage.Save(t.Context(), tx, clusterB, []usage.Record{record(at*batches+n, now), record(1, now.Add(-time.Hour))})
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, maintainer.Prune(t.Context()))
	have := partitions(t, database)
	require.Equal(t, 4+2*batches-2, have["snapshots_before"], "of two pods there were records of now before")
	require.Len(t, have, 2, "the first takes records of a month, the rest those of later")
	require.Zero(t, save(t, other, clusterA, before...))
	require.Equal(t, 2, save(t, other, clusterA, record(9, now.AddDate(0, 0, 29)), record(9, now.AddDate(0, 0, 31))))
	require.Equal(t, 1, partitions(t, database)["snapshots_rest"])
	var constraints int
	require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_constraint WHERE conname = 'snapshots_until'`).Scan(&constraints)
	}))
	require.Zero(t, constraints)
}

// TestWhoReadsTheTableOfBeforeGoesOnReading has a role that may read the records, and a view.
func TestWhoReadsTheTableOfBeforeGoesOnReading(t *testing.T) {
	t.Parallel()
	database := openPostgreSQL(t, pgtest.NewDatabase(t))
	now := time.Now().UTC().Truncate(time.Minute)
	save(t, database, clusterA, record(1, now))
	write(t, database, `GRANT SELECT ON snapshots TO PUBLIC`)
	write(t, database, `CREATE VIEW billing AS SELECT taken_at FROM snapshots`)
	log := &logtest.Log{}
	maintainer := usage.Maintainer{Database: database, Logger: slog.New(slog.NewJSONHandler(log, nil))}
	for range 2 {
		require.NoError(t, maintainer.Prune(t.Context()))
	}
	require.Equal(t, 1, strings.Count(log.String(), `"relations":"billing"`))
	save(t, database, clusterA, record(2, now))
	require.Equal(t, 2, count(t, database, "billing"))

	write(t, database, `DROP VIEW billing`)
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Len(t, partitions(t, database), 2)
	may := func(table string) (may bool) {
		t.Helper()
		require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT has_table_privilege('public', ?, 'SELECT')
				AND NOT has_table_privilege('public', ?, 'INSERT')`, table, table).Scan(&may)
		}))
		return may
	}
	require.True(t, may("snapshots"))
	require.True(t, may("snapshots_rest"))
}

// TestAPartitionHasTheOwnerAndTheGrantsOfTheTable: the role that the program signs in with is another one
// than the owner, as where passwords are rotated by new roles.
func TestAPartitionHasTheOwnerAndTheGrantsOfTheTable(t *testing.T) {
	t.Parallel()
	database := openPostgreSQL(t, pgtest.NewDatabase(t))
	maintainer := usage.Maintainer{Database: database}
	require.NoError(t, maintainer.Partition(t.Context()))
	now := time.Now()
	write(t, database, `GRANT SELECT ON snapshots TO pg_monitor`)
	write(t, database, `ALTER TABLE snapshots OWNER TO pg_database_owner`)
	write(t, database, `DROP TABLE `+nameOf(now))
	require.NoError(t, maintainer.Partition(t.Context()))
	var owner, readers string
	require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRowContext(t.Context(), `SELECT pg_get_userbyid(relowner),
			(SELECT string_agg(pg_get_userbyid(grantee) || ' ' || privilege_type, ' ') FROM aclexplode(relacl) WHERE grantee <> relowner)
			FROM pg_class WHERE relname = ?`, nameOf(now)).Scan(&owner, &readers)
	}))
	require.Equal(t, "pg_database_owner", owner)
	require.Equal(t, "pg_monitor SELECT", readers)
}
