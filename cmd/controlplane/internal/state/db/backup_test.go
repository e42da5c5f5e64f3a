package db_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// TestABackupIsOneStateWhileOthersWrite copies a database again and again while each
// transaction writes two rows: a copy has both or none.
func TestABackupIsOneStateWhileOthersWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(t.Context(), `CREATE TABLE pairs (id INTEGER)`)
		return err
	}))
	var stop atomic.Bool
	written := make(chan int, 1)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			err := database.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.ExecContext(t.Context(), `INSERT INTO pairs VALUES (1)`)
				if err == nil {
					_, err = tx.ExecContext(t.Context(), `INSERT INTO pairs VALUES (2)`)
				}
				return err
			})
			if err != nil {
				t.Errorf("write: %v", err)
				break
			}
		}
		written <- n
	}()
	counts := make([]int, 5)
	for i := range counts {
		into := filepath.Join(dir, "backup"+string(rune('0'+i)))
		require.NoError(t, db.Backup(t.Context(), path, into))
		info, err := os.Stat(into)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		copied, err := db.SQLite{Path: into}.Open(t.Context())
		require.NoError(t, err)
		require.NoError(t, copied.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM pairs`).Scan(&counts[i])
		}))
		require.NoError(t, copied.Close())
		require.Zero(t, counts[i]%2)
	}
	stop.Store(true)
	require.Positive(t, <-written)
	require.IsNonDecreasing(t, counts)
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestABackupTouchesNothingElse covers the refused backups.
func TestABackupTouchesNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, there := filled(t), filepath.Join(dir, "there")
	require.NoError(t, os.WriteFile(there, []byte("theirs"), 0o600))
	require.ErrorIs(t, db.Backup(t.Context(), path, there), os.ErrExist)
	text, err := os.ReadFile(there)
	require.NoError(t, err)
	require.Equal(t, "theirs", string(text))

	none := filepath.Join(dir, "none")
	require.ErrorIs(t, db.Backup(t.Context(), none, filepath.Join(dir, "b")), os.ErrNotExist)
	require.NoFileExists(t, none, "it makes no database")
	require.ErrorIs(t, db.Backup(t.Context(), there, filepath.Join(dir, "b")), db.ErrForeign)
	require.ErrorIs(t, db.Backup(t.Context(), "postgres://db/x", filepath.Join(dir, "b")), db.ErrNoBackup)
	require.ErrorIs(t, db.Backup(t.Context(), "mysql://db/x", filepath.Join(dir, "b")), db.ErrBadURL)
	require.Error(t, db.Backup(t.Context(), path, filepath.Join(dir, "no", "folder")))
	require.NoFileExists(t, filepath.Join(dir, "b"))

	// The schema of an older version stays as it is.
	old := raw(
		t,
		filepath.Join(dir, "old"),
		"PRAGMA application_id = 0x54525550",
		"PRAGMA user_version = 1",
		"CREATE TABLE clusters (id TEXT)",
	)
	require.NoError(t, old.Close())
	into := filepath.Join(dir, "of-old")
	require.NoError(t, db.Backup(t.Context(), filepath.Join(dir, "old"), into))
	made := raw(t, into)
	var version int
	require.NoError(t, made.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&version))
	require.Equal(t, 1, version)
}
