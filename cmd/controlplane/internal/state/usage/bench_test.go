package usage_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// BenchmarkADay stores the records of a day of one cluster with 800 pods, 3.25 of a customer,
// as an agent sends them: a batch a minute. From the bytes that they take it says what a year of
// 200 such clusters takes: records are kept for a week, sums for the year.
func BenchmarkADay(b *testing.B) {
	for name, test := range map[string]struct {
		open func() (*db.Database, error)
		size string
		// tidy makes a table small again, as the server does in time: each sum was written 1,440
		// times.
		tidy string
	}{
		"sqlite": {
			func() (*db.Database, error) {
				return db.SQLite{Path: filepath.Join(b.TempDir(), "trueup.db")}.Open(b.Context())
			},
			`SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = ?)`,
			`SELECT 1`,
		},
		"postgresql": {
			func() (*db.Database, error) { return db.PostgreSQL{URL: pgtest.NewDatabase(b)}.Open(b.Context()) },
			`WITH named AS (SELECT CAST(CAST(? AS TEXT) AS regclass) AS name) SELECT coalesce(
				(SELECT sum(pg_total_relation_size(relid)) FROM named, pg_partition_tree(name)),
				(SELECT pg_total_relation_size(name) FROM named))`, // a table without partitions is no tree
			`CLUSTER usage_days USING usage_days_pkey`,
		},
	} {
		b.Run(name, func(b *testing.B) {
			const pods, minutes, services, clusters, gib = 800, 24 * 60, 246, 200, 1 << 30
			database, err := test.open()
			require.NoError(b, err)
			defer func() { require.NoError(b, database.Close()) }()
			require.NoError(b, (&usage.Maintainer{Database: database}).Partition(b.Context()))
			day := time.Now().UTC().Truncate(24 * time.Hour)
			begin, slowest := time.Now(), time.Duration(0)
			for minute := range minutes {
				batch := make([]usage.Record, pods)
				for n := range batch {
					batch[n] = record(n, day.Add(time.Duration(minute)*time.Minute), func(r *usage.Record) {
						r.WorkspaceID, r.ProjectID, r.ServiceID = id(1, n%services), id(2, n%services), id(3, n%services)
					})
				}
				sent := time.Now()
				require.NoError(b, database.Write(b.Context(), func(tx *db.Tx) error {
					_, err := usage.Save(b.Context(), tx, clusterA, batch)
					return err
				}))
				slowest = max(slowest, time.Since(sent))
			}
			took := time.Since(begin)
			write(b, database, test.tidy)
			size := func(table string) (bytes float64) {
				require.NoError(b, database.Read(b.Context(), func(tx *db.Tx) error {
					return tx.QueryRowContext(b.Context(), test.size, table).Scan(&bytes)
				}))
				return bytes
			}
			records, sums := size("snapshots")/(pods*minutes), size("usage_days")/services
			b.Logf("figure usage_store_records_per_second_%s %.0f records/s", name, pods*minutes/took.Seconds())
			b.Logf("figure usage_slowest_batch_%s %.0f ms", name, float64(slowest.Milliseconds()))
			b.Logf("figure usage_bytes_per_record_%s %.0f bytes", name, records)
			b.Logf("figure usage_bytes_per_sum_%s %.0f bytes", name, sums)
			b.Logf("figure usage_week_of_records_%s %.0f GiB", name, records*pods*minutes*7*clusters/gib)
			b.Logf("figure usage_year_of_sums_%s %.1f GiB", name, sums*services*365*clusters/gib)
		})
	}
}
