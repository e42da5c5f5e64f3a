package db_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// filled returns the path of a closed database with some hundred rows.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trueup.db")
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
		for n := range 600 {
			if _, err := tx.ExecContext(t.Context(), insert, fmt.Sprint(n)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, database.Close())
	return path
}

const insert = `INSERT INTO clusters (id, region, token_hash, epoch, generation, lb_size_units, created_at)
	VALUES (?, 'nyc3', CAST(random() AS TEXT), 'e', 1, 1, 1)`

// raw opens the file past the store.
func raw(t *testing.T, path string, statements ...string) *sql.DB {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	file.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = file.Close() })
	for _, statement := range statements {
		_, err := file.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return file
}

func requireNotOpened(t *testing.T, path string, condition error, advice string) {
	t.Helper()
	_, err := db.SQLite{Path: path, BusyTimeout: 200 * time.Millisecond}.Open(t.Context())
	require.ErrorIs(t, err, condition)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, advice)
	require.NotContains(t, err.Error(), "\n")
}

func TestAForeignDatabaseIsLeftAlone(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.db")
	require.NoError(t, raw(t, other, "CREATE TABLE clusters (id TEXT)").Close())
	marked := filepath.Join(t.TempDir(), "marked.db")
	require.NoError(t, raw(t, marked, "PRAGMA application_id = 7").Close())
	letter := filepath.Join(t.TempDir(), "letter.txt")
	require.NoError(t, os.WriteFile(letter, []byte(strings.Repeat("Dear Sir, ", 1000)), 0o600))
	for _, path := range []string{other, marked, letter} {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		requireNotOpened(t, path, db.ErrForeign, "choose another file")
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(before, after), "%s was changed", path)
	}
}

func TestADatabaseOfANewerVersionIsLeftAlone(t *testing.T) {
	path := filled(t)
	require.NoError(t, raw(t, path, "PRAGMA user_version = 99").Close())
	requireNotOpened(t, path, db.ErrNewerSchema, "run the newer version")
}

func TestADamagedDatabaseIsNotOpened(t *testing.T) {
	path := filled(t)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Greater(t, len(content), 40000)
	for i := 20000; i < 36000; i++ {
		content[i] ^= 0x5a
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	requireNotOpened(t, path, db.ErrCorrupt, "restore it from a backup")

	cut := filled(t)
	require.NoError(t, os.Truncate(cut, 20000))
	requireNotOpened(t, cut, db.ErrCorrupt, "restore it from a backup")
}

func TestALockedDatabaseIsNotOpened(t *testing.T) {
	path := filled(t)
	lock := raw(t, path, "BEGIN EXCLUSIVE")
	requireNotOpened(t, path, db.ErrBusy, "another process holds it")
	_, err := lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, database.Close())
}

func TestAFolderThatIsNotThereIsNamed(t *testing.T) {
	_, err := db.SQLite{Path: "/no/such/folder/x.db"}.Open(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "/no/such/folder/x.db")
}

func TestATransactionIsWholeOnBothDatabases(t *testing.T) {
	file, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	server, err := db.PostgreSQL{URL: pgtest.Start(t, pgtest.Options{}).Database(t)}.Open(t.Context())
	require.NoError(t, err)
	for _, database := range []*db.Database{file, server} {
		ctx := t.Context()
		require.NoError(t, database.Ping(ctx))
		count := func() (n int) {
			require.NoError(t, database.Read(ctx, func(tx *db.Tx) error {
				return tx.QueryRowContext(ctx, `SELECT count(*) FROM clusters WHERE region = ?`, "nyc3").Scan(&n)
			}))
			return n
		}
		stop := fmt.Errorf("not after all")
		require.ErrorIs(t, database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, insert, "1")
			require.NoError(t, err)
			return stop
		}), stop)
		require.Zero(t, count())
		require.NoError(t, database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, insert, "1")
			return err
		}))
		require.Equal(t, 1, count())
		require.NoError(t, database.Close())
		require.Error(t, database.Ping(ctx))
	}
}

func TestAPasswordIsInNoErrorWhateverTheFormOfTheSource(t *testing.T) {
	for _, source := range []string{
		"postgres://trueup:hunter2@127.0.0.1:1/db",
		"postgres://127.0.0.1:1/db?user=trueup&password=hunter2",
		"postgresql://127.0.0.1:1/db?user=trueup&password=hunter2&sslpassword=hunter2",
		"postgres://trueup:hunter2@[::1/db",
		"postgres://127.0.0.1:port/db?password=hunter2",
		"host=127.0.0.1 port=1 user=trueup password=hunter2 dbname=db",
		" password = 'hunter2' host=127.0.0.1 port=1",
		"host=127.0.0.1 port=none password=hunter2",
		"mysql://user:hunter2@host/db",
		"sqlite://",
		"",
	} {
		_, err := db.Open(t.Context(), source)
		require.Error(t, err, source)
		require.NotContains(t, err.Error(), "hunter2", source)
	}
	_, err := os.Stat(" password = 'hunter2' host=127.0.0.1 port=1")
	require.ErrorIs(t, err, os.ErrNotExist, "no SQLite file has that name")
}

func TestASourceIsUnderstoodInEachOfItsForms(t *testing.T) {
	t.Chdir(t.TempDir())
	server, err := url.Parse(pgtest.Start(t, pgtest.Options{}).Database(t))
	require.NoError(t, err)
	folder, database := server.Query().Get("host"), server.Path[1:]
	place := "postgres://trueup@/" + database + "?host=" + folder
	for source, name := range map[string]string{
		server.String(): place,
		"postgresql:///" + database + "?user=trueup&password=hunter2&host=" + url.QueryEscape(folder): place,
		fmt.Sprintf("host=%s user=trueup password=hunter2 dbname=%s", folder, database):               place,
		"sqlite://trueup.db": "trueup.db",
		"size=large.db":      "size=large.db",
	} {
		database, err := db.Open(t.Context(), source)
		require.NoError(t, err, source)
		require.Contains(t, database.Name(), name)
		require.NotContains(t, database.Name(), "hunter2")
		require.NoError(t, database.Close())
	}
}
