package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

const (
	stormScope = "storm"
	hotKeys    = 8
	keys       = 400
)

// storm is many writers, readers and faults on one log at the same time.
type storm struct {
	db      *sql.DB           // the writers'
	stores  []*sqlstore.Store // the first is started, the others by faults
	writers int
	commits int64
	part    int64 // of a soak that it makes; 0 is all
	naive   bool  // keep a naive outbox beside
	// fault is called now and then until ctx ends.
	faults []func(ctx context.Context, r *rand.Rand)

	history   *statesynctest.History
	seed      uint64
	done      atomic.Int64
	retried   atomic.Int64
	killed    atomic.Int64
	unknown   atomic.Int64
	rollbacks atomic.Int64
}

// size returns how many commits a test makes, and how long at most.
func size(short int64) (commits int64, most time.Duration) {
	if n, err := strconv.ParseInt(os.Getenv("TRUEUP_SOAK"), 10, 64); err == nil && n > 0 {
		return n, 6 * time.Hour
	}
	return short, 6 * time.Second
}

func newSeed(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("TRUEUP_SEED"), 10, 64); err == nil {
		seed = given
	}
	tb.Logf("TRUEUP_SEED=%d", seed)
	return seed
}

// run fails the test if anything is skipped, out of order, doubled, torn or
// invented.
func (s *storm) run(t *testing.T) {
	t.Helper()
	var most time.Duration
	s.commits, most = size(s.commits)
	s.commits /= max(1, s.part)
	s.seed = newSeed(t)
	s.history = statesynctest.NewHistory(stormScope)
	s.prepare(t)

	ctx, stop := context.WithTimeout(t.Context(), most+await.Hang) // batches of three take as long as the machine takes
	defer stop()
	total := atomic.Uint64{}
	total.Store(math.MaxUint64)
	var reading, writing, breaking sync.WaitGroup
	results := make(chan error, len(s.stores)+1)
	for n, store := range s.stores {
		reader := s.history.Reader(fmt.Sprint(n))
		reading.Go(func() {
			results <- follow(ctx, reader, store, 10+200*n, func(p statesync.Position) bool { return p.Head >= total.Load() })
		})
	}
	var naive naiveReader
	naiveCtx, stopNaive := context.WithCancel(ctx)
	defer stopNaive()
	if s.naive {
		reading.Go(func() { naive.follow(naiveCtx, s.db) })
	}
	faulty, heal := context.WithCancel(ctx)
	for n, fault := range s.faults {
		r := rand.New(rand.NewPCG(s.seed, uint64(1000+n)))
		breaking.Go(func() {
			for faulty.Err() == nil {
				fault(faulty, r)
			}
		})
	}
	began := time.Now()
	end := began.Add(most)
	for w := range s.writers {
		r := rand.New(rand.NewPCG(s.seed, uint64(w)))
		writing.Go(func() {
			for s.done.Load() < s.commits && time.Now().Before(end) && ctx.Err() == nil {
				s.write(ctx, r)
			}
		})
	}
	writing.Wait()
	took := time.Since(began)
	heal()
	breaking.Wait()
	for _, store := range s.stores[1:] {
		start(t, store)
	}

	// Every key counts its changes; one more wakes the readers that wait.
	var sum uint64
	require.NoError(t, s.db.QueryRowContext(ctx, `SELECT sum(n) FROM state`).Scan(&sum))
	total.Store(sum + 1)
	last := s.history.Begin(change(stormScope, "last", `1`))
	require.NoError(t, s.stores[0].Commit(ctx, change(stormScope, "last", `1`)))
	last.Committed()
	for range s.stores {
		if err := <-results; err != nil {
			page, _ := s.stores[0].Read(t.Context(), stormScope, math.MaxUint64, 1)
			var queued int
			_ = s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM trueup_queue`).Scan(&queued)
			require.NoError(t, err, "head %d of %d, %d in the queue, %d commits", page.Head, sum+1, queued, s.done.Load())
		}
	}
	stopNaive()
	reading.Wait()
	require.NoError(t, s.history.Check(ctx, s.stores[0]))
	page, err := s.stores[0].Read(ctx, stormScope, 0, 1)
	require.NoError(t, err)
	require.Equal(t, sum+1, page.Head, "versions have holes")
	t.Logf("%d commits (%.0f/s), %d changes, %d rolled back, %d killed, %d of unknown outcome, %d retried: 0 skipped, 0 inverted, gapless",
		s.done.Load(), float64(s.done.Load())/took.Seconds(), sum, s.rollbacks.Load(), s.killed.Load(), s.unknown.Load(), s.retried.Load())
	if s.naive {
		var rows int
		require.NoError(t, s.db.QueryRowContext(ctx, `SELECT count(*) FROM naive`).Scan(&rows))
		t.Logf("a reader of the naive outbox has skipped %d of %d (%.1f %%)", rows-naive.seen, rows, 100*float64(rows-naive.seen)/float64(rows))
	}
}

// follow goes on after errors of a database that is being broken.
func follow(ctx context.Context, reader *statesynctest.Reader, log statesync.Log, limit int, done func(statesync.Position) bool) error {
	for {
		err := reader.Follow(ctx, log, limit, done)
		if err == nil || ctx.Err() != nil || !sqlstore.Retryable(err) && !errors.Is(err, statesync.ErrUnknownScope) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *storm) prepare(t *testing.T) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), `CREATE TABLE state (id integer PRIMARY KEY, n integer NOT NULL)`)
	require.NoError(t, err)
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for id := range keys {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO state VALUES ($1, 0)`, id)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	if s.naive {
		_, err := s.db.ExecContext(t.Context(), `CREATE TABLE naive (id bigserial PRIMARY KEY, key text NOT NULL, value bytea)`)
		require.NoError(t, err)
	}
}

// errKilled is a writer whose connection was cut.
var errKilled = errors.New("killed")

// write makes one transaction, whatever becomes of it.
func (s *storm) write(ctx context.Context, r *rand.Rand) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		s.retried.Add(1)
		time.Sleep(5 * time.Millisecond)
		return
	}
	defer conn.Close()
	// In their order, so that writers do not deadlock.
	chosen := map[int]bool{}
	for range 1 + max(0, r.IntN(6)-2) {
		if r.IntN(2) == 0 {
			chosen[r.IntN(hotKeys)] = true
		} else {
			chosen[r.IntN(keys)] = true
		}
	}
	var ids []int
	for id := range chosen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var told *statesynctest.Commit
	err = s.transaction(ctx, conn, r, ids, &told)
	switch {
	case err == nil:
		s.done.Add(1)
	case errors.Is(err, errKilled):
		s.killed.Add(1)
		// Its rows stay locked until the server notices.
	case errors.Is(err, errRolledBack):
		s.rollbacks.Add(1)
	default:
		s.retried.Add(1)
	}
}

var errRolledBack = errors.New("rolled back")

func (s *storm) transaction(ctx context.Context, conn *sql.Conn, r *rand.Rand, ids []int, told **statesynctest.Commit) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	var changes []statesync.Change
	for _, id := range ids {
		var n int
		if err := tx.QueryRowContext(ctx, `UPDATE state SET n = n + 1 WHERE id = $1 RETURNING n`, id).Scan(&n); err != nil {
			return err
		}
		value := fmt.Sprintf(`{"n":%d,"by":%d}`, n, r.Uint64())
		if r.IntN(10) == 0 {
			value = ""
		}
		changes = append(changes, change(stormScope, strconv.Itoa(id), value))
	}
	commit := s.history.Begin(changes...)
	*told = commit
	late := r.IntN(2) == 0
	if late {
		dawdle(r)
	}
	if s.naive {
		if _, err := tx.ExecContext(ctx, `INSERT INTO naive (key) VALUES ($1)`, strconv.Itoa(ids[0])); err != nil {
			commit.RolledBack()
			return err
		}
	}
	store := s.stores[r.IntN(len(s.stores))]
	if err := store.Append(ctx, tx, changes...); err != nil {
		commit.RolledBack()
		return err
	}
	if !late {
		dawdle(r)
	}
	switch chance := r.IntN(1000); {
	case chance < 80:
		commit.RolledBack()
		return errors.Join(errRolledBack, tx.Rollback())
	case chance < 84:
		commit.RolledBack()
		cut(conn)()
		return errKilled
	case chance < 88:
		// It may have been committed: the test cannot know.
		s.unknown.Add(1)
		var ended sync.WaitGroup
		ended.Go(cut(conn))
		_ = tx.Commit()
		ended.Wait()
		return errKilled
	}
	if err := tx.Commit(); err != nil {
		if s.stores[0].Dialect == sqlstore.PostgreSQL {
			s.unknown.Add(1)
		}
		return err
	}
	commit.Committed()
	if r.IntN(20) > 0 { // some forget it
		store.Wake()
	}
	return nil
}

// dawdle is what a program does within a transaction.
func dawdle(r *rand.Rand) {
	switch n := r.IntN(1000); {
	case n < 300:
		time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
	case n < 305:
		time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
	case n == 305 && r.IntN(10) == 0:
		time.Sleep(time.Second + time.Duration(r.IntN(1000))*time.Millisecond)
	}
}

// cut returns what ends a connection as the death of its process does.
func cut(conn *sql.Conn) (end func()) {
	end = func() {}
	_ = conn.Raw(func(raw any) error {
		if c, ok := raw.(*stdlib.Conn); ok {
			wire := c.Conn().PgConn().Conn()
			end = func() { _ = wire.Close() }
		}
		return nil // database/sql would wait for the transaction
	})
	return end
}

// restarts kills and restarts the store that it starts.
func restarts(tb testing.TB, store *sqlstore.Store, between time.Duration) func(ctx context.Context, r *rand.Rand) {
	tb.Helper()
	return func(ctx context.Context, r *rand.Rand) {
		stop := starts(tb, store) //nolint:contextcheck // it ends when it is stopped
		defer stop()
		pause(ctx, between/4+time.Duration(r.Int64N(int64(between))))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// naiveReader reads what everybody writes at first: whatever has a greater number
// than the last.
type naiveReader struct {
	seen  int
	last  int64
	value []byte
}

func (n *naiveReader) follow(ctx context.Context, db *sql.DB) {
	for ctx.Err() == nil {
		rows, err := db.QueryContext(ctx, `SELECT id, value FROM naive WHERE id > $1 ORDER BY id`, n.last)
		if err != nil {
			continue
		}
		for rows.Next() {
			if rows.Scan(&n.last, &n.value) == nil {
				n.seen++
			}
		}
		_ = rows.Close()
		time.Sleep(time.Millisecond)
	}
}
