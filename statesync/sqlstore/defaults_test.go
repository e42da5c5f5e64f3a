package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// with returns the URL with one more setting of each session.
func with(dsn, setting, value string) string {
	return dsn + "&" + setting + "=" + url.QueryEscape(value)
}

func TestAPostgreSQLThatIsTakenForAnotherIsNamed(t *testing.T) {
	t.Parallel()
	store := &sqlstore.Store{DB: connect(t, pgtest.NewDatabase(t)), Dialect: sqlstore.SQLite}
	const want = "sqlstore: Store.Dialect: is SQLite, must be PostgreSQL: DB is a PostgreSQL "
	require.ErrorContains(t, store.Migrate(t.Context()), want)
	require.ErrorContains(t, store.Start(t.Context()), want)
}

func TestABatchSeesWhatTheOneBeforeItMovedUnderADefaultOfSerializable(t *testing.T) {
	t.Parallel()
	dsn := with(pgtest.NewDatabase(t), "default_transaction_isolation", "serializable")
	var failed atomic.Int64
	s := start(t, openPostgreSQL(t, dsn, &sqlstore.Store{OnBatch: func(b sqlstore.Batch) {
		if b.Err != nil {
			failed.Add(1)
		}
	}}))
	db := connect(t, dsn)
	var isolation string
	require.NoError(t, db.QueryRowContext(t.Context(), `SHOW transaction_isolation`).Scan(&isolation))
	require.Equal(t, "serializable", isolation)
	require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
	head(t, s, "s", 1)
	// Another sequencer has the lock, and moves what this one waits to move.
	other, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer other.Rollback() //nolint:errcheck // after a commit it does nothing
	_, err = other.ExecContext(t.Context(), `SELECT 1 FROM trueup_meta WHERE one = 1 FOR UPDATE`)
	require.NoError(t, err)
	require.NoError(t, s.Commit(t.Context(), change("s", "moved", `1`)))
	waitsForLock(t, connect(t, dsn))
	moving, err := connect(t, dsn).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer moving.Rollback() //nolint:errcheck // after a commit it does nothing
	_, err = moving.ExecContext(t.Context(), `DELETE FROM trueup_queue`)
	require.NoError(t, err)
	require.NoError(t, moving.Commit())
	require.NoError(t, other.Commit())
	require.NoError(t, s.Commit(t.Context(), change("s", "b", `1`)))
	head(t, s, "s", 2)
	require.Zero(t, failed.Load())
}

// waitsForLock waits until a session waits for the lock of the sequencer.
func waitsForLock(t *testing.T, db *sql.DB) {
	t.Helper()
	await.Until(t, within, "waiting > 0", func() bool {
		var waiting int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%trueup_meta%'`).Scan(&waiting))
		return waiting > 0
	})
}

func TestALongQueueMovesInBatchesUnderAShortStatementTimeout(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t)
	filling := openPostgreSQL(t, dsn, &sqlstore.Store{})
	const commits, each = 600, 64
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := range commits / 4 {
				changes := make([]statesync.Change, each)
				for i := range changes {
					changes[i] = change("s", fmt.Sprintf("%d-%d", w, i), strconv.Itoa(n))
				}
				if err := filling.Commit(t.Context(), changes...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// One that no batch moves within the timeout of the session.
	const large = 40_000
	one := make([]statesync.Change, large)
	for i := range one {
		one[i] = change("large", strconv.Itoa(i), `1`)
	}
	require.NoError(t, filling.Commit(t.Context(), one...))
	var mu sync.Mutex
	var batches []int
	s := start(t, openPostgreSQL(t, with(dsn, "statement_timeout", "150"), &sqlstore.Store{OnBatch: func(b sqlstore.Batch) {
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, b.Changes)
	}}))
	await.Until(t, within, "err == nil && page.Head == commits*each", func() bool {
		page, err := s.Read(t.Context(), "s", 0, 1)
		return err == nil && page.Head == commits*each
	})
	await.Until(t, within, "err == nil && page.Head == large", func() bool {
		page, err := s.Read(t.Context(), "large", 0, 1)
		return err == nil && page.Head == large
	})
	page, err := s.Read(t.Context(), "s", 0, 1000)
	require.NoError(t, err)
	require.Len(t, page.Items, 4*each)
	for _, i := range page.Items {
		require.Equal(t, strconv.Itoa(commits/4-1), string(i.Value), i.Key)
	}
	// A batch is told of after it can be read.
	await.Until(t, within, "the large batch is told of", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(batches, large)
	})
	mu.Lock()
	defer mu.Unlock()
	for _, changes := range batches {
		if changes == large {
			continue
		}
		require.LessOrEqual(t, changes, 5000)
		require.Zero(t, changes%each, "a commit is split")
	}
}

func TestOneCommitThatIsLargerThanABatchIsMovedWhole(t *testing.T) {
	t.Parallel()
	s := openPostgreSQL(t, pgtest.NewDatabase(t), &sqlstore.Store{})
	sqlstore.SetMaxBatch(s, 10)
	changes := make([]statesync.Change, 101)
	for i := range changes {
		changes[i] = change("s", strconv.Itoa(i), `1`)
	}
	require.NoError(t, s.Commit(t.Context(), change("s", "before", `1`)))
	require.NoError(t, s.Commit(t.Context(), changes...))
	require.NoError(t, s.Commit(t.Context(), change("s", "after", `1`)))
	var mu sync.Mutex
	var batches []int
	s.OnBatch = func(b sqlstore.Batch) {
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, b.Changes)
	}
	start(t, s)
	head(t, s, "s", 103)
	// A batch is reported after it can be read.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(c, []int{1, 101, 1}, batches)
	}, within, time.Millisecond)
}

// relay passes connections on to a server, until it falls silent.
type relay struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	silent bool
	links  []*relayed
}

type relayed struct{ dead atomic.Bool }

// through returns the URL with a relay in between.
func through(t *testing.T, dsn string) (*relay, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	r := &relay{target: filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")}
	r.listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := r.listener.Accept()
			if err != nil {
				return
			}
			link := &relayed{}
			r.mu.Lock()
			link.dead.Store(r.silent)
			r.links = append(r.links, link)
			r.mu.Unlock()
			server, err := new(net.Dialer).DialContext(t.Context(), "unix", r.target)
			if err != nil {
				conn.Close()
				continue
			}
			t.Cleanup(func() { conn.Close(); server.Close() })
			go link.copy(server, conn)
			go link.copy(conn, server)
		}
	})
	t.Cleanup(func() { r.listener.Close(); all.Wait() })
	host, port, err := net.SplitHostPort(r.listener.Addr().String())
	require.NoError(t, err)
	q := u.Query()
	q.Set("host", host)
	q.Set("port", port)
	u.RawQuery = q.Encode()
	return r, u.String()
}

// copy passes on what comes, and swallows it once the link is dead. It does not
// close a dead one: its other side hears nothing.
func (l *relayed) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if l.dead.Load() {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			return
		}
	}
}

// silence ends all that passes, without a word, and passes nothing new on until it
// is called with false.
func (r *relay) silence(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
	for _, link := range r.links {
		link.dead.Store(true)
	}
}

func TestAReplicaIsNotCompleteWhileItsServerCannotConfirmTheHead(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t)
	link, relayed := through(t, dsn)
	s := openPostgreSQL(t, relayed, &sqlstore.Store{})
	sqlstore.SetLimit(s, 300*time.Millisecond)
	stopFirst := starts(t, s)
	other := start(t, openPostgreSQL(t, dsn, &sqlstore.Store{}))
	require.NoError(t, other.Commit(t.Context(), change("s", "a", `1`)))
	head(t, other, "s", 1)
	f := follows(t, s)
	f.holds(t, "a=1")
	link.silence(true)
	await.Until(t, within, "!complete", func() bool {
		_, complete := f.Complete()
		return !complete
	})
	// If the process with the dead connections was the one that numbers, another
	// takes over.
	require.NoError(t, other.Commit(t.Context(), change("s", "b", `1`)))
	head(t, other, "s", 2)
	link.silence(false)
	f.holds(t, "a=1", "b=1")
	stopFirst()
}

func TestAStoreWhoseConnectionsFallSilentGoesOnWithNewOnes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t)
	link, relayed := through(t, dsn)
	var told events
	s := openPostgreSQL(t, relayed, &sqlstore.Store{OnEvent: told.note})
	sqlstore.SetLimit(s, time.Second)
	defer starts(t, s)()
	direct := openPostgreSQL(t, dsn, &sqlstore.Store{}) // its commits have no such limit
	require.NoError(t, direct.Commit(t.Context(), change("s", "a", `1`)))
	head(t, s, "s", 1)
	link.silence(true)
	await.Until(t, within, "told.count(sqlstore.EventLost) > 0 && told.count(sqlstore.EventStuck) > 0 && s.Stalled() > 0", func() bool {
		return told.count(sqlstore.EventLost) > 0 && told.count(sqlstore.EventStuck) > 0 && s.Stalled() > 0
	})
	require.Equal(t, 1, told.count(sqlstore.EventStuck), "it is reported once")
	link.silence(false)
	require.NoError(t, direct.Commit(t.Context(), change("s", "b", `1`)))
	await.Until(t, within, "err == nil && page.Head == 2 && s.Stalled() == 0", func() bool {
		page, err := direct.Read(t.Context(), "s", 0, 1)
		return err == nil && page.Head == 2 && s.Stalled() == 0
	})
	// On a busy machine it may have been stuck once more.
	await.Until(t, within, "told.count(sqlstore.EventMoving) == told.count(sqlstore.EventStuck)", func() bool {
		return told.count(sqlstore.EventMoving) == told.count(sqlstore.EventStuck)
	})
}

func TestTheQueueTellsItsDepthAndAge(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := open(&sqlstore.Store{})
		depth, oldest, err := s.Queue(t.Context())
		require.NoError(t, err)
		require.Zero(t, depth)
		require.Zero(t, oldest)
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`), change("s", "b", `1`)))
		await.Until(t, within, "err == nil && depth == 2 && oldest >= 10*time.Millisecond", func() bool {
			depth, oldest, err = s.Queue(t.Context())
			return err == nil && depth == 2 && oldest >= 10*time.Millisecond
		})
		require.Less(t, oldest, within)
		start(t, s)
		head(t, s, "s", 2)
		await.Until(t, within, "err == nil && depth == 0", func() bool {
			depth, _, err = s.Queue(t.Context())
			return err == nil && depth == 0
		})
	})
}

// TestTheRowLockExcludes holds the lock that makes a batch the only one, as a leader
// does that is slow and not dead.
func TestTheRowLockExcludes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t)
	s := start(t, openPostgreSQL(t, dsn, &sqlstore.Store{}))
	require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
	head(t, s, "s", 1)
	slow, err := connect(t, dsn).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer slow.Rollback() //nolint:errcheck // after a commit it does nothing
	_, err = slow.ExecContext(t.Context(), `SELECT 1 FROM trueup_meta WHERE one = 1 FOR UPDATE`)
	require.NoError(t, err)
	require.NoError(t, s.Commit(t.Context(), change("s", "a", `2`)))
	watch := connect(t, dsn)
	await.Until(t, within, "waiting > 0", func() bool {
		var waiting int
		require.NoError(t, watch.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%trueup_meta%'`).Scan(&waiting))
		require.Equal(t, uint64(1), read(t, s).Head, "it numbers without the lock")
		return waiting > 0
	})
	require.NoError(t, slow.Commit())
	head(t, s, "s", 2)
}

func TestATransactionThatIsOpenForLongIsNotSkipped(t *testing.T) {
	t.Parallel()
	s := start(t, openPostgreSQL(t, pgtest.NewDatabase(t), &sqlstore.Store{}))
	var open []*sql.Tx
	for n := range 3 {
		tx, err := s.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, s.Append(t.Context(), tx, change("s", "slow"+strconv.Itoa(n), `1`)))
		open = append(open, tx)
	}
	// The queue is looked at all the while.
	var quick uint64
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		require.NoError(t, s.Commit(t.Context(), change("s", "quick", strconv.FormatUint(quick, 10))))
		quick++
		head(t, s, "s", quick)
		if len(open) > 0 && time.Since(began) > time.Duration(4-len(open))*700*time.Millisecond {
			require.NoError(t, open[0].Commit())
			s.Wake()
			open = open[1:]
			quick++
			head(t, s, "s", quick)
		}
	}
	require.Empty(t, open)
	page := read(t, s)
	require.Len(t, page.Items, 4)
	var ids []string
	for _, i := range page.Items {
		ids = append(ids, i.ID)
	}
	require.Equal(t, "slow0 slow1 slow2 quick", strings.Join(ids, " "))
}

// TestNothingIsSkippedInSmallBatches has the storm's writers on a store whose batches
// are of at most three changes, so that nearly every queue is longer.
func TestNothingIsSkippedInSmallBatches(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t)
	one, two := openPostgreSQL(t, dsn, &sqlstore.Store{}), openPostgreSQL(t, dsn, &sqlstore.Store{})
	sqlstore.SetMaxBatch(one, 3)
	sqlstore.SetMaxBatch(two, 3)
	s := &storm{db: connect(t, dsn), stores: []*sqlstore.Store{start(t, one), two}, writers: 16, commits: 40_000, part: 10}
	s.run(t)
}

// TestALargeCommitTakesAsLongAsItsStatements has a database in which each statement is slow,
// and then one in which a statement takes too long.
func TestALargeCommitTakesAsLongAsItsStatements(t *testing.T) {
	t.Parallel()
	s := openPostgreSQL(t, pgtest.NewDatabase(t), &sqlstore.Store{})
	sqlstore.SetLimit(s, 4*time.Second)
	slow := func(seconds string) {
		_, err := s.DB.ExecContext(t.Context(), `CREATE OR REPLACE FUNCTION slow() RETURNS trigger AS
			'BEGIN PERFORM pg_sleep(`+seconds+`); RETURN NULL; END' LANGUAGE plpgsql`)
		require.NoError(t, err)
	}
	slow("0.3")
	_, err := s.DB.ExecContext(t.Context(), `CREATE TRIGGER slow AFTER INSERT ON trueup_queue FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	require.NoError(t, err)
	changes := make([]statesync.Change, 20*64)
	for i := range changes {
		changes[i] = change("s", strconv.Itoa(i), `1`)
	}
	begin := time.Now()
	require.NoError(t, s.Commit(t.Context(), changes...))
	require.Greater(t, time.Since(begin), 4*time.Second, "all of them take longer than one may")
	slow("60")
	err = s.Commit(t.Context(), changes[0])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "a statement took more than 4s")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = s.Commit(ctx, changes[0])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "a statement took", "it is the time of the caller")
}
