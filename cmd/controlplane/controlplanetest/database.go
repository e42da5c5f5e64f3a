package controlplanetest

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// Database is a kind of database that scenarios run on.
type Database struct {
	// Name is sqlite or postgres.
	Name string
	// Fresh returns the source of a new, empty one.
	Fresh func(tb testing.TB) string
	// Copied returns the source of a copy. No process may have the original open.
	Copied func(tb testing.TB, source string) string
}

// Databases returns SQLite, and PostgreSQL on a server.
func Databases(server *pgtest.Server) []Database {
	return []Database{
		{"sqlite", func(tb testing.TB) string { tb.Helper(); return filepath.Join(tb.TempDir(), "trueup.db") }, copyFile},
		{"postgres", func(tb testing.TB) string { tb.Helper(); return server.Database(tb) }, copyDatabase(server)},
	}
}

// copyFile takes a backup, which waits: requests that were cut off may have kept the file
// open, and the last of them locks it while it empties the write-ahead log.
func copyFile(tb testing.TB, source string) string {
	tb.Helper()
	target := filepath.Join(tb.TempDir(), "copy.db")
	check(tb, db.Backup(tb.Context(), source, target))
	return target
}

func copyDatabase(server *pgtest.Server) func(tb testing.TB, source string) string {
	return func(tb testing.TB, source string) string {
		tb.Helper()
		at, err := url.Parse(source)
		check(tb, err)
		from := strings.TrimPrefix(at.Path, "/")
		await.Eventually(tb, "the database is copied", func() bool {
			// The sessions that were closed may end a little later.
			return server.SQL(tb.Context(), "postgres", "CREATE DATABASE "+from+"_copy TEMPLATE "+from+" OWNER trueup") == nil
		})
		return server.URL(from + "_copy")
	}
}
