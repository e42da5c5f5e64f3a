package sqlstore_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxlisten"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

func connect(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", url)
	require.NoError(tb, err)
	db.SetMaxIdleConns(16)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// openPostgreSQL returns a migrated store in the database, which is not started.
func openPostgreSQL(tb testing.TB, url string, store *sqlstore.Store) *sqlstore.Store {
	tb.Helper()
	store.Dialect = sqlstore.PostgreSQL
	store.DB = connect(tb, url)
	store.Listen = pgxlisten.On(store.DB)
	require.NoError(tb, store.Migrate(tb.Context()))
	return store
}

func TestPostgreSQLConforms(t *testing.T) {
	t.Parallel()
	statesynctest.Run(t, func(t *testing.T) statesynctest.Store {
		return driven(t, openPostgreSQL(t, pgtest.NewDatabase(t), &sqlstore.Store{}))
	})
}

// TestTheRoleOfTheApplicationNeedsWhatTheDocumentationGrants runs its grants, and a store as
// that role.
func TestTheRoleOfTheApplicationNeedsWhatTheDocumentationGrants(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	grants := regexp.MustCompile(`(?m)^//\tGRANT .*;$`).FindAllString(string(doc), -1)
	require.Len(t, grants, 2)
	at := pgtest.NewDatabase(t)
	owner := openPostgreSQL(t, at, &sqlstore.Store{}).DB
	as, err := url.Parse(at)
	require.NoError(t, err)
	as.User = url.User("postgres")
	admin, role := connect(t, as.String()), "app_of_the_documentation"
	run := func(ctx context.Context, db *sql.DB, statement string) {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err, statement)
	}
	run(t.Context(), admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() {
		run(context.WithoutCancel(t.Context()), admin, "DROP OWNED BY "+role)
		run(context.WithoutCancel(t.Context()), admin, "DROP ROLE "+role)
	})
	as.User = url.User(role)
	store := &sqlstore.Store{Dialect: sqlstore.PostgreSQL, DB: connect(t, as.String())}
	store.Listen = pgxlisten.On(store.DB)
	require.Error(t, store.Commit(t.Context(), change("s", "a", "1")))
	for n, grant := range grants {
		run(t.Context(), owner, strings.Replace(strings.TrimPrefix(grant, "//\t"), " TO app;", " TO "+role, 1))
		if n == 0 {
			require.ErrorContains(t, store.Commit(t.Context(), change("s", "a", "1")), "sequence", "the tables alone are not enough")
		}
	}
	start(t, store)
	require.NoError(t, store.Commit(t.Context(), change("s", "a", "1")))
	head(t, store, "s", 1)
	require.NoError(t, store.Prune(t.Context()))
	require.NoError(t, store.NewEpoch(t.Context()))
}
