package db_test

import (
	"bytes"
	"database/sql"
	"fmt"
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

func TestTheURLOfPostgreSQLIsNeverShown(t *testing.T) {
	for _, url := range []string{"postgres://trueup:hunter2@127.0.0.1:1/db", "postgres://trueup:hunter2@[::1/db"} {
		_, err := db.PostgreSQL{URL: url}.Open(t.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
