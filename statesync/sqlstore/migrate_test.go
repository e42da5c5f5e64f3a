package sqlstore_test

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// TestTablesOfTheFirstVersionAreBroughtUpToDate has a log and a queue without marks.
func TestTablesOfTheFirstVersionAreBroughtUpToDate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := open(&sqlstore.Store{Prefix: "new_"})
		text, err := os.ReadFile("migrations/" + s.Dialect.String() + "/0001_tables.sql")
		require.NoError(t, err)
		statements := strings.Split(strings.ReplaceAll(string(text), "{p}", "old_"), ";\n")
		statements = append(
			statements,
			`CREATE TABLE old_schema (version integer PRIMARY KEY)`,
			`INSERT INTO old_schema VALUES (1)`,
			`INSERT INTO old_scopes (scope, epoch) VALUES ('s', 'before')`,
			`INSERT INTO old_log (scope, collection, id, version, deleted, value, at) VALUES ('s', 'things', 'a', 1, false, CAST('1' AS `+map[sqlstore.Dialect]string{sqlstore.SQLite: "BLOB", sqlstore.PostgreSQL: "bytea"}[s.Dialect]+`), 1)`,
			`INSERT INTO old_queue (scope, collection, id, deleted, value) VALUES ('s', 'things', 'b', true, NULL)`,
			`INSERT INTO old_readers (scope, reader, session, sequence, epoch, version, at) VALUES ('s', 'r', 1, 1, 'before', 1, 1)`,
		)
		for _, statement := range statements {
			if strings.TrimSpace(statement) != "" {
				_, err := s.DB.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
		}
		old := open(&sqlstore.Store{Prefix: "old_"})
		page := read(t, old)
		require.Equal(t, statesync.Position{Epoch: "before", Head: 1}, page.Position, "there is no mark yet")
		start(t, old)
		at := head(t, old, "s", 2)
		require.Equal(t, "before", at.Epoch)
		require.Equal(t, uint64(2), at.Mark.Version)
		require.NoError(t, old.Commit(t.Context(), change("s", "a", `2`)))
		head(t, old, "s", 3)
		require.Len(t, read(t, old).Items, 2)
		readers, err := old.Readers(t.Context(), "s")
		require.NoError(t, err)
		require.Equal(t, statesync.Cursor{Epoch: "before", Version: 1}, readers[0].Applied)
		require.NoError(t, old.Migrate(t.Context()))
	})
}

// TestAnotherToolMakesTheSameTables runs the files as one, and the store without Migrate.
func TestAnotherToolMakesTheSameTables(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		own := open(&sqlstore.Store{})
		files, err := sqlstore.Migrations(own.Dialect, "tool_")
		require.NoError(t, err)
		names, err := fs.Glob(files, "*.sql")
		require.NoError(t, err)
		require.Equal(t, []string{"0001_tables.sql", "0002_marks.sql"}, names)
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(text), "-- +goose Up\n"))
			for statement := range strings.SplitSeq(string(text), ";\n") {
				if strings.TrimSpace(statement) != "" {
					_, err := own.DB.ExecContext(t.Context(), statement)
					require.NoError(t, err, statement)
				}
			}
		}
		store := &sqlstore.Store{DB: own.DB, ReadDB: own.ReadDB, Dialect: own.Dialect, Prefix: "tool_"}
		start(t, store)
		require.NoError(t, store.Commit(t.Context(), change("s", "a", "1")))
		head(t, store, "s", 1)
		require.NoError(t, store.Migrate(t.Context()), "they recorded themselves")
		columns := func(prefix string) (all []string) {
			query := `SELECT m.name || '.' || c.name || ' ' || c.type || coalesce(c.dflt_value, '') FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.name LIKE $1`
			if own.Dialect == sqlstore.PostgreSQL {
				query = `SELECT table_name || '.' || column_name || ' ' || data_type || coalesce(column_default, '') FROM information_schema.columns WHERE table_name LIKE $1`
			}
			rows, err := own.DB.QueryContext(t.Context(), query, prefix+"%")
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				var column string
				require.NoError(t, rows.Scan(&column))
				all = append(all, strings.ReplaceAll(column, prefix, ""))
			}
			require.NoError(t, rows.Err())
			slices.Sort(all)
			return all
		}
		require.NotEmpty(t, columns("trueup_"))
		require.Equal(t, columns("trueup_"), columns("tool_"))
	})
}

func TestMigrationsOfAWrongNameAreRefused(t *testing.T) {
	t.Parallel()
	_, err := sqlstore.Migrations(0, "")
	require.ErrorContains(t, err, "Dialect: is 0, must be SQLite or PostgreSQL")
	_, err = sqlstore.Migrations(sqlstore.SQLite, "x; DROP TABLE users")
	require.ErrorContains(t, err, `Prefix: is "x; DROP TABLE users", must match`)
}
