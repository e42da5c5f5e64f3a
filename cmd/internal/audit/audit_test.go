package audit_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/requestid"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// world is a database.
type world struct {
	t        *testing.T
	database *db.Database
}

// each runs test on both databases.
func each(t *testing.T, test func(w world)) {
	t.Helper()
	run := func(t *testing.T, database *db.Database, err error) {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, database.Close()) })
		test(world{t, database})
	}
	t.Run("SQLite", func(t *testing.T) {
		database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
		run(t, database, err)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		database, err := db.PostgreSQL{URL: pgtest.Start(t, pgtest.Options{}).Database(t)}.Open(t.Context())
		run(t, database, err)
	})
}

func names(t *testing.T, log *audit.Log, f audit.Filter) (list []string) {
	t.Helper()
	entries, _, err := log.List(t.Context(), f, 1000)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name)
	}
	return list
}

func TestAnEntryIsThereIfItsTransactionIs(t *testing.T) {
	each(t, func(w world) {
		t, database := w.t, w.database
		log := &audit.Log{Database: database}
		ctx := requestid.NewContext(audit.NewContext(t.Context(), "admin/1a2b3c4d"), "r-1")
		change := audit.Change{Verb: "put", Kind: audit.KindCluster, Name: "a", Outcome: audit.Created}
		errUndone := errors.New("undone")
		require.ErrorIs(t, database.Write(ctx, func(tx *db.Tx) error {
			require.NoError(t, audit.Record(ctx, tx, change))
			return errUndone
		}), errUndone)
		require.Empty(t, names(t, log, audit.Filter{}))
		require.NoError(t, database.Write(ctx, func(tx *db.Tx) error { return audit.Record(ctx, tx, change) }))
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			return audit.Record(t.Context(), tx, audit.Change{Verb: "purge", Kind: audit.KindPolicy, Name: "b"}, audit.Change{Verb: "purge", Kind: audit.KindPolicy, Name: "c"})
		}))
		entries, more, err := log.List(t.Context(), audit.Filter{}, 3)
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, entries, 3)
		require.Equal(t, []string{"c", "b", "a"}, names(t, log, audit.Filter{}), "the newest first, those of one call in their order")
		require.Equal(t, audit.ControlPlane, entries[0].Actor)
		require.Equal(t, audit.Changed, entries[0].Outcome)
		require.Empty(t, entries[0].RequestID)
		require.Equal(t, audit.Entry{ID: entries[2].ID, At: entries[2].At, Actor: "admin/1a2b3c4d", Verb: "put", Kind: "cluster", Name: "a", Outcome: "created", RequestID: "r-1"}, entries[2])
		require.WithinDuration(t, time.Now(), entries[2].At, time.Minute)
		_, more, err = log.List(t.Context(), audit.Filter{}, 2)
		require.NoError(t, err)
		require.True(t, more)
	})
}

func TestWhatIsTooOldOrTooManyIsRemoved(t *testing.T) {
	each(t, func(w world) {
		t, database := w.t, w.database
		record := func(n int) {
			require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
				return audit.Record(t.Context(), tx, audit.Change{Verb: "put", Kind: audit.KindCluster, Name: fmt.Sprint(n)})
			}))
		}
		for n := range 10 {
			record(n)
		}
		log := &audit.Log{Database: database, Retention: time.Hour, MaxEntries: 10}
		removed := func(want int64) {
			t.Helper()
			n, err := log.Prune(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		removed(0)
		log.MaxEntries = 7
		removed(3)
		require.Equal(t, []string{"9", "8", "7", "6", "5", "4", "3"}, names(t, log, audit.Filter{}))
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE audit SET at = ? WHERE name IN ('3', '4')`, time.Now().Add(-time.Hour-time.Minute).UnixMilli())
			return err
		}))
		removed(2)
		require.Equal(t, []string{"9", "8", "7", "6", "5"}, names(t, log, audit.Filter{}))
		require.Equal(t, []string{"9", "8", "7", "6", "5"}, names(t, &audit.Log{Database: database}, audit.Filter{Since: time.Now().Add(-time.Minute)}))
		n, err := (&audit.Log{Database: database}).Prune(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, "the defaults keep a year and 100,000")
	})
}
