package sqlstore_test

import (
	"os"
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
