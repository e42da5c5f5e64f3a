package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// within is how long a test waits for what must happen.
const within = 2 * time.Minute

// each runs a test on both databases: open returns stores on one database.
func each(t *testing.T, test func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "log.db")
		test(t, func(s *sqlstore.Store) *sqlstore.Store { return openSQLite(t, path, s) })
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		url := pgtest.NewDatabase(t)
		test(t, func(s *sqlstore.Store) *sqlstore.Store { return openPostgreSQL(t, url, s) })
	})
}

// head waits until the scope has that many versions, and returns where it is.
func head(t *testing.T, s *sqlstore.Store, scope string, want uint64) statesync.Position {
	t.Helper()
	var page statesync.Page
	await.Until(t, within, "err == nil && page.Head >= want", func() bool {
		var err error
		page, err = s.Read(t.Context(), scope, 0, 1)
		return err == nil && page.Head >= want
	})
	require.Equal(t, want, page.Head)
	return page.Position
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := open(&sqlstore.Store{})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				other := &sqlstore.Store{DB: s.DB, Dialect: s.Dialect, Prefix: "other_"}
				if err := other.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, err := s.DB.ExecContext(t.Context(), `INSERT INTO other_schema VALUES (99)`)
		require.NoError(t, err)
		require.ErrorIs(t, (&sqlstore.Store{DB: s.DB, Dialect: s.Dialect, Prefix: "other_"}).Migrate(t.Context()), sqlstore.ErrNewerSchema)
	})
}

func TestStoresWithOtherPrefixesShareADatabase(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		one, two := start(t, open(&sqlstore.Store{Prefix: "one_"})), start(t, open(&sqlstore.Store{Prefix: "two_"}))
		require.NoError(t, one.Commit(t.Context(), change("s", "a", `1`)))
		head(t, one, "s", 1)
		_, err := two.Read(t.Context(), "s", 0, 1)
		require.ErrorIs(t, err, statesync.ErrUnknownScope)
		scopes, err := one.Scopes(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"s"}, scopes)
	})
}

func TestAnotherProcessWakesThoseThatWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		// Polling alone would take longer than the test.
		poll := time.Hour
		if open(&sqlstore.Store{}).Dialect == sqlstore.SQLite {
			poll = 10 * time.Millisecond // its processes have no other way
		}
		one, two := start(t, open(&sqlstore.Store{Poll: poll})), open(&sqlstore.Store{Poll: poll})
		require.NoError(t, one.Commit(t.Context(), change("s", "a", `1`)))
		at := head(t, one, "s", 1)
		start(t, two)
		ctx := ctxWithin(t)
		for n := range uint64(20) {
			writer, reader := one, two
			if n%2 == 0 {
				writer, reader = two, one
			}
			require.NoError(t, writer.Commit(t.Context(), change("s", "a", `2`)))
			// The hint of a process that does not listen yet is lost: a program
			// has its Poll for that, and this test repeats it.
			done := make(chan struct{})
			go func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(100 * time.Millisecond):
						writer.Wake()
					}
				}
			}()
			for at.Head < n+2 {
				require.NoError(t, reader.Wait(ctx, "s", at))
				page, err := reader.Read(t.Context(), "s", 0, 1)
				require.NoError(t, err)
				at = page.Position
			}
			close(done)
		}
	})
}

func TestAWakeReachesThoseThatWaitInItsProcess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		// Neither polling nor notifications help.
		s := open(&sqlstore.Store{Poll: time.Hour})
		s.Listen = nil
		start(t, s)
		ctx := ctxWithin(t)
		require.NoError(t, s.Commit(ctx, change("s", "a", `0`)))
		at := head(t, s, "s", 1)
		for n := range uint64(20) {
			waits := make(chan error, 1)
			go func() { waits <- s.Wait(ctx, "s", at) }()
			require.NoError(t, s.Commit(ctx, change("s", "a", `1`)))
			require.NoError(t, <-waits)
			at = head(t, s, "s", n+2)
		}
	})
}

func TestManyWhoWaitAtOnceAskOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := open(&sqlstore.Store{Poll: time.Hour})
		s.ReadDB = open(&sqlstore.Store{}).DB
		s.ReadDB.SetMaxOpenConns(1)
		start(t, s)
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
		at := head(t, s, "s", 1)
		ctx := ctxWithin(t)
		// No read gets an answer for now.
		conn, err := s.ReadDB.Conn(ctx)
		require.NoError(t, err)
		asked := s.ReadDB.Stats().WaitCount
		const many = 200
		gaveUp, giveUp := context.WithCancel(ctx)
		first, waits := make(chan error, 1), make(chan error, many)
		go func() { first <- s.Wait(gaveUp, "s", at) }()
		await.Until(t, within, "s.ReadDB.Stats().WaitCount > asked", func() bool { return s.ReadDB.Stats().WaitCount > asked })
		for range many {
			go func() { waits <- s.Wait(ctx, "s", at) }()
		}
		await.Until(t, within, `sqlstore.Waiting(s, "s") == many+1`, func() bool { return sqlstore.Waiting(s, "s") == many+1 })
		giveUp()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, conn.Close())
		require.NoError(t, s.Commit(ctx, change("s", "a", `2`)))
		for range many {
			require.NoError(t, <-waits)
		}
		require.Less(t, s.ReadDB.Stats().WaitCount-asked, int64(10))
		for range many {
			go func() { waits <- s.Wait(ctx, "nowhere", at) }()
		}
		for range many {
			require.ErrorIs(t, <-waits, statesync.ErrUnknownScope)
		}
	})
}

func TestWhatReportsProveOfARestore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		var log bytes.Buffer
		s := start(t, open(&sqlstore.Store{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`), change("other", "a", `1`)))
		before, other := head(t, s, "s", 1), head(t, s, "other", 1)
		sequence := uint64(10)
		report := func(reader string, at statesync.Cursor) {
			sequence++
			stored, err := s.Report(t.Context(), "s", statesync.Report{Reader: reader, Session: 1, Sequence: sequence, Applied: at})
			require.NoError(t, err)
			require.True(t, stored)
		}
		epoch := func() string { return head(t, s, "s", 1).Epoch }
		report("a", statesync.Cursor{Epoch: before.Epoch, Version: 1, Mark: before.Mark})
		// One reader may be faulty, as often as it likes.
		for range 3 {
			report("a", statesync.Cursor{Epoch: before.Epoch, Version: 1 << 40, Mark: statesync.Mark{Version: 1 << 40, ID: "invented"}})
		}
		require.Equal(t, before.Epoch, epoch())
		// So may another, whose report is too old to be stored.
		report("b", statesync.Cursor{Epoch: before.Epoch, Version: 1})
		stored, err := s.Report(
			t.Context(),
			"s",
			statesync.Report{Reader: "b", Session: 1, Sequence: 1, Applied: statesync.Cursor{Epoch: before.Epoch, Version: 2}},
		)
		require.NoError(t, err)
		require.False(t, stored)
		require.Equal(t, before.Epoch, epoch())
		report("b", statesync.Cursor{Epoch: before.Epoch, Version: 2})
		second := epoch()
		require.NotEqual(t, before.Epoch, second)
		require.Equal(t, other, head(t, s, "other", 1))
		require.Contains(t, log.String(), "after a restore")
		// Not again and again.
		report("a", statesync.Cursor{Epoch: second, Version: 2})
		report("b", statesync.Cursor{Epoch: second, Version: 2})
		require.Equal(t, second, epoch())
		_, err = s.DB.ExecContext(t.Context(), `UPDATE trueup_scopes SET renewed = renewed - 600001`)
		require.NoError(t, err)
		report("b", statesync.Cursor{Epoch: second, Version: 2})
		require.NotEqual(t, second, epoch())
	})
}

func TestAReportedMarkProvesARestore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{}))
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
		head(t, s, "s", 1)
		require.NoError(t, s.Commit(t.Context(), change("s", "b", `1`)))
		lost := head(t, s, "s", 2)
		_, err := s.DB.ExecContext(t.Context(), `UPDATE trueup_marks SET mark = 77 WHERE version = 2`)
		require.NoError(t, err)
		_, err = s.Report(
			t.Context(),
			"s",
			statesync.Report{Reader: "a", Session: 1, Sequence: 1, Applied: statesync.Cursor{Epoch: lost.Epoch, Version: 2, Mark: lost.Mark}},
		)
		require.NoError(t, err)
		require.NotEqual(t, lost.Epoch, head(t, s, "s", 2).Epoch)
		readers, err := s.Readers(t.Context(), "s")
		require.NoError(t, err)
		require.Equal(t, lost.Mark, readers[0].Applied.Mark)
	})
}

func TestALogThatFallsBackUnderItsReadersGetsAnotherEpoch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{Poll: 5 * time.Millisecond}))
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`), change("s", "b", `1`)))
		at := head(t, s, "s", 2)
		waits := make(chan error, 1)
		ctx := ctxWithin(t)
		go func() { waits <- s.Wait(ctx, "s", at) }()
		// Once the watcher knows of version 2, it is lost.
		require.NoError(t, s.Commit(t.Context(), change("s", "c", `1`)))
		require.NoError(t, <-waits)
		at = head(t, s, "s", 3)
		_, err := s.DB.ExecContext(t.Context(), `DELETE FROM trueup_log WHERE version > 1`)
		require.NoError(t, err)
		require.NoError(t, s.Wait(ctx, "s", at))
		require.NotEqual(t, at.Epoch, head(t, s, "s", 1).Epoch)
	})
}

func TestADatabaseWithAnotherOriginGetsAnotherEpoch(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	s := openPostgreSQL(t, url, &sqlstore.Store{})
	stop := starts(t, s)
	require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
	before := head(t, s, "s", 1)
	stop()
	start := func() *sqlstore.Store { return openPostgreSQL(t, url, &sqlstore.Store{}) }
	again := start()
	stop = starts(t, again)
	require.NoError(t, again.Commit(t.Context(), change("s", "a", `2`)))
	require.Equal(t, before.Epoch, head(t, again, "s", 2).Epoch, "a restart is no restore")
	stop()
	var origin string
	require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT origin FROM trueup_meta`).Scan(&origin))
	require.Regexp(t, `^\d+/\d+/\d+/[0-9A-F]{8}$`, origin)
	// As if the data came from another cluster.
	_, err := s.DB.ExecContext(t.Context(), `UPDATE trueup_meta SET origin = '1/2/3/00000001'`)
	require.NoError(t, err)
	third := start()
	defer starts(t, third)()
	require.NoError(t, third.Commit(t.Context(), change("s", "a", `3`)))
	require.NotEqual(t, before.Epoch, head(t, third, "s", 3).Epoch)
}

func TestAStandbyTakesOverFromALeaderThatIsStuck(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	// A session that holds the lock, such as another's session behind a pooler, does nothing.
	s := openPostgreSQL(t, url, &sqlstore.Store{Poll: 10 * time.Millisecond})
	first := openPostgreSQL(t, url, &sqlstore.Store{})
	stop := starts(t, first)
	var id, classid, objid int64
	await.Until(t, within, "the lock is held", func() bool {
		return s.DB.QueryRowContext(t.Context(), `SELECT objsubid, classid, objid FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&id, &classid, &objid) == nil
	})
	stop()
	conn, err := connect(t, url).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	await.Until(t, within, "got", func() bool {
		var got bool
		require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT pg_try_advisory_lock($1)`, classid<<32|objid).Scan(&got))
		return got
	})
	start(t, s)
	require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
	head(t, s, "s", 1)
}

func TestAWakeOfAStandbyIsSentOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	var wakes atomic.Int64
	// Polling would hide a Wake that is lost.
	open := func() *sqlstore.Store {
		s := openPostgreSQL(t, url, &sqlstore.Store{Poll: time.Hour})
		listen := s.Listen
		s.Listen = func(ctx context.Context, channels []string, ready func(), notified func(channel, payload string)) error {
			return listen(ctx, channels, ready, func(channel, payload string) {
				if strings.HasSuffix(channel, "wake") {
					wakes.Add(1)
				}
				notified(channel, payload)
			})
		}
		return s
	}
	leader := open()
	start(t, leader)
	require.NoError(t, leader.Commit(t.Context(), change("s", "a", `0`)))
	head(t, leader, "s", 1)
	standbys := []*sqlstore.Store{open(), open()}
	for _, s := range standbys {
		start(t, s)
	}
	const commits = 50
	for n := range commits {
		require.NoError(t, standbys[n%2].Commit(t.Context(), change("s", "a", strconv.Itoa(n))))
		head(t, leader, "s", uint64(n+2)) //nolint:gosec // small
	}
	// Three processes hear each, and the first ones of a connection.
	require.LessOrEqual(t, wakes.Load(), int64(3*(commits+10)))
}

func TestStartReturnsWhatNoRetryCures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := open(&sqlstore.Store{})
		require.Error(t, (&sqlstore.Store{DB: s.DB, Dialect: s.Dialect, Prefix: "missing_"}).Start(t.Context()))
	})
	require.EqualError(
		t,
		(&sqlstore.Store{Prefix: "A", Poll: -1}).Start(t.Context()),
		"sqlstore: Store.DB: is required\nsqlstore: Store.Dialect: is 0, must be SQLite or PostgreSQL\nsqlstore: Store.Prefix: is \"A\", must match ^[a-z_][a-z0-9_]{0,30}$\nsqlstore: Store.Poll: is -1ns, must not be negative",
	)
}

func TestStartReturnsNilWhateverEndsItsContext(t *testing.T) {
	t.Parallel()
	s := openSQLite(t, "", &sqlstore.Store{})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	cancel(errors.New("a neighbour has failed"))
	require.NoError(t, <-done)
}

func TestBatchesAreToldOf(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		var mu sync.Mutex
		var changes, scopes int
		s := open(&sqlstore.Store{OnBatch: func(b sqlstore.Batch) {
			mu.Lock()
			defer mu.Unlock()
			changes += b.Changes
			scopes += b.Scopes
		}})
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`), change("s", "a", `2`), change("t", "a", `3`)))
		stop := starts(t, s)
		// A reader may see what the sequencer has committed before the sequencer does.
		await.Until(t, within, "changes == 3", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return changes == 3
		})
		stop()
		require.Equal(t, 3, changes)
		require.Equal(t, 2, scopes)
	})
}

func TestAnAbandonedTransactionMakesNobodyWait(t *testing.T) {
	t.Parallel()
	s := start(t, openPostgreSQL(t, pgtest.NewDatabase(t), &sqlstore.Store{}))
	open := func() *sql.Tx {
		tx, err := s.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, s.AddScope(t.Context(), tx, "s"))
		require.NoError(t, s.Append(t.Context(), tx, change("s", "a", `1`)))
		return tx
	}
	abandoned, second := open(), open()
	require.NoError(t, second.Commit())
	s.Wake()
	head(t, s, "s", 1)
	require.NoError(t, abandoned.Commit())
	head(t, s, "s", 2)
}

func TestOldTombstonesAreKeptForTheirTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{}))
		require.NoError(t, s.Commit(t.Context(), change("s", "a", ""), change("s", "b", ""), change("s", "c", `1`)))
		head(t, s, "s", 3)
		require.NoError(t, s.Prune(t.Context()))
		require.Zero(t, head(t, s, "s", 3).Floor, "they are younger than 7 days")
		_, err := s.DB.ExecContext(t.Context(), `UPDATE trueup_log SET at = at - 604800001 WHERE version = 2`)
		require.NoError(t, err)
		require.NoError(t, s.Prune(t.Context()))
		require.Equal(t, uint64(2), head(t, s, "s", 3).Floor)
	})
}

func TestAReaderWhoseLeaseRanOutHoldsBackNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{Retention: time.Nanosecond, PruneEvery: 5 * time.Millisecond}))
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
		at := head(t, s, "s", 1)
		_, err := s.Report(t.Context(), "s", statesync.Report{Reader: "r", Session: 1, Applied: statesync.Cursor{Epoch: at.Epoch}})
		require.NoError(t, err)
		require.NoError(t, s.Commit(t.Context(), change("s", "a", ""), change("s", "c", `1`)))
		require.NoError(t, s.Prune(t.Context()))
		require.Zero(t, head(t, s, "s", 3).Floor)
		_, err = s.DB.ExecContext(t.Context(), `UPDATE trueup_readers SET at = at - 86400001`)
		require.NoError(t, err)
		await.Until(t, within, "Start prunes", func() bool {
			page, err := s.Read(t.Context(), "s", 0, 1)
			return err == nil && page.Floor == 2
		})
	})
}

func TestNothingIsLostWhenPostgreSQLIsKilled(t *testing.T) {
	t.Parallel()
	crash(t, false)
}

func TestNothingIsSkippedWhenAPostgreSQLWithOtherDefaultsIsKilled(t *testing.T) {
	t.Parallel()
	crash(t, true, "synchronous_commit=off", "wal_writer_delay=2s", "default_transaction_isolation=serializable", "statement_timeout=2s")
}

func ctxWithin(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}
