package db_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

func openStatements(tb testing.TB) *db.Database {
	tb.Helper()
	d, err := db.SQLite{Path: filepath.Join(tb.TempDir(), "db")}.Open(tb.Context())
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()) })
	require.NoError(tb, d.Write(tb.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(tb.Context(), `CREATE TABLE numbers (n INTEGER PRIMARY KEY)`)
		return err
	}))
	return d
}

func TestAStatementIsParsedOnceAConnection(t *testing.T) {
	t.Parallel()
	d := openStatements(t)
	ctx := t.Context()
	before := db.Kept(t, d)
	for n := range 10 {
		require.NoError(t, d.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO numbers (n) VALUES (?)`, n); err != nil {
				return err
			}
			var count int
			require.NoError(t, tx.QueryRowContext(ctx, `SELECT count(*) FROM numbers WHERE n <= ?`, n).Scan(&count))
			require.Equal(t, n+1, count)
			return nil
		}))
	}
	require.Equal(t, before+2, db.Kept(t, d))

	// Rows of a statement that are being read keep it from being run again.
	require.NoError(t, d.Read(ctx, func(tx *db.Tx) error {
		const query = `SELECT n FROM numbers WHERE n >= ? ORDER BY n`
		outer, err := tx.QueryContext(ctx, query, 7)
		require.NoError(t, err)
		defer outer.Close()
		var pairs []string
		for outer.Next() {
			var a int
			require.NoError(t, outer.Scan(&a))
			inner, err := tx.QueryContext(ctx, query, a)
			list, err := db.Collect(inner, err, func(rows *sql.Rows, n *int) error { return rows.Scan(n) })
			require.NoError(t, err)
			pairs = append(pairs, fmt.Sprint(a, list))
		}
		require.Equal(t, []string{"7 [7 8 9]", "8 [8 9]", "9 [9]"}, pairs)
		return outer.Err()
	}))
}

func TestAKeptStatementOutlivesItsFailures(t *testing.T) {
	t.Parallel()
	d := openStatements(t)
	ctx := t.Context()
	insert := func(ctx context.Context, n int) error {
		return d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO numbers (n) VALUES (?)`, n)
			return err
		})
	}
	require.NoError(t, insert(ctx, 1))
	require.ErrorContains(t, insert(ctx, 1), "UNIQUE")
	require.NoError(t, insert(ctx, 2))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, insert(cancelled, 3))
	require.NoError(t, insert(ctx, 3))

	count := func() (n int, err error) {
		err = d.Read(ctx, func(tx *db.Tx) error { return tx.QueryRowContext(ctx, `SELECT count(*) FROM numbers`).Scan(&n) })
		return n, err
	}
	n, err := count()
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.NoError(t, d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `ALTER TABLE numbers RENAME TO figures`)
		return err
	}))
	_, err = count()
	require.ErrorContains(t, err, "no such table: numbers")
	require.ErrorContains(t, insert(ctx, 4), "no such table: numbers")
	require.NoError(t, d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `ALTER TABLE figures RENAME TO numbers`)
		return err
	}))
	require.NoError(t, insert(ctx, 4))
	n, err = count()
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

func TestAConnectionKeepsSoManyStatements(t *testing.T) {
	t.Parallel()
	d := openStatements(t)
	ctx := t.Context()
	for n := range 300 {
		require.NoError(t, d.Write(ctx, func(tx *db.Tx) error {
			var got int
			err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT %d`, n)).Scan(&got)
			require.Equal(t, n, got)
			return err
		}))
	}
	require.Equal(t, 200, db.Kept(t, d))
	require.NoError(t, d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM numbers; INSERT INTO numbers (n) VALUES (1); INSERT INTO numbers (n) VALUES (2)`)
		return err
	}))
}

// BenchmarkStatement compares a statement that is kept with one that is parsed each time. The
// whole of a change is measured by BenchmarkFanout.
func BenchmarkStatement(b *testing.B) {
	d := openStatements(b)
	ctx := b.Context()
	const query = `SELECT c.id, c.region FROM clusters c WHERE c.id = ? AND EXISTS (SELECT 1 FROM projects p WHERE p.cluster_id = c.id)`
	for name, end := range map[string]func(n int) string{
		"kept":   func(int) string { return "" },
		"parsed": func(n int) string { return " AND " + strings.Repeat("1 = 1 AND ", n%2) + "1 = 1;" },
	} {
		b.Run(name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				err := d.Read(ctx, func(tx *db.Tx) error {
					rows, err := tx.QueryContext(ctx, query+end(n), "none")
					if err != nil {
						return err
					}
					return rows.Close()
				})
				require.NoError(b, err)
			}
		})
	}
}
