package sqlstore_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

const benchWriters = 16

// outbox is what a program does in its transaction beside its own writing.
type outbox struct {
	insert func(ctx context.Context, tx *sql.Tx, id int, value []byte) error
	after  func(id int)
}

// hammer has writers commit, each a row of its own with a value of 200 bytes,
// and returns how many there were in a second.
func hammer(tb testing.TB, db *sql.DB, o outbox, think, most time.Duration) float64 {
	tb.Helper()
	ctx := tb.Context()
	value := []byte(`"` + strings.Repeat("x", 200) + `"`)
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for w := range benchWriters {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for time.Since(began) < most {
				id := w*100 + r.IntN(100)
				err := func() error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
					if _, err := tx.ExecContext(ctx, `UPDATE state SET n = n + 1 WHERE id = $1`, id); err != nil {
						return err
					}
					if think > 0 {
						time.Sleep(think/2 + time.Duration(r.Int64N(int64(think))))
					}
					if err := o.insert(ctx, tx, id, value); err != nil {
						return err
					}
					return tx.Commit()
				}()
				if err != nil {
					tb.Error(err)
					return
				}
				done.Add(1)
				o.after(id)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// benchDatabase has a server of its own, whose commits wait for the disk.
func benchDatabase(tb testing.TB) (store *sqlstore.Store, db *sql.DB, url string) {
	tb.Helper()
	url = pgtest.Start(tb, pgtest.Options{Fsync: os.Getenv("TRUEUP_BENCH_FSYNC") != "off", Settings: []string{"autovacuum_naptime=60s"}}).
		Database(tb)
	db = connect(tb, url)
	db.SetMaxOpenConns(benchWriters)
	for _, statement := range []string{
		`CREATE TABLE state (id integer PRIMARY KEY, n integer NOT NULL) WITH (fillfactor = 50)`,
		`INSERT INTO state SELECT n, 0 FROM generate_series(0, 10000) n`,
		`CREATE TABLE naive (id bigserial PRIMARY KEY, key text NOT NULL, value bytea)`,
	} {
		_, err := db.ExecContext(tb.Context(), statement)
		require.NoError(tb, err)
	}
	return openPostgreSQL(tb, url, &sqlstore.Store{}), db, url
}

func naiveOutbox(tb testing.TB, db *sql.DB) (o outbox, stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var reader naiveReader
	var reading sync.WaitGroup
	reading.Go(func() { reader.follow(ctx, db) })
	return outbox{
		insert: func(ctx context.Context, tx *sql.Tx, id int, value []byte) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO naive (key, value) VALUES ($1, $2)`, strconv.Itoa(id), value)
			return err
		},
		after: func(int) {},
	}, func() { cancel(); reading.Wait() }
}

func sequenced(tb testing.TB, s *sqlstore.Store) (o outbox, stop func()) {
	tb.Helper()
	stopStore := starts(tb, s)
	ctx, cancel := context.WithCancel(tb.Context())
	var reading sync.WaitGroup
	reading.Go(func() { tail(ctx, s, func(string) {}) })
	return outbox{
		insert: func(ctx context.Context, tx *sql.Tx, id int, value []byte) error {
			c := change("bench", strconv.Itoa(id), "0")
			c.Value = value
			return s.Append(ctx, tx, c)
		},
		after: func(int) { s.Wake() },
	}, func() { cancel(); reading.Wait(); stopStore() }
}

// tail reads the log as an agent's server does and reports each item.
func tail(ctx context.Context, s *sqlstore.Store, got func(value string)) {
	var after uint64
	for ctx.Err() == nil {
		page, err := s.Read(ctx, "bench", after, 1000)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		for _, item := range page.Items {
			got(string(item.Value))
			after = item.Version
		}
		if !page.More {
			_ = s.Wait(ctx, "bench", page.Position)
		}
	}
}

// BenchmarkCommits compares the commits of 16 writers that fill a naive outbox
// with those that fill the queue, each with one reader, in turns, of which each begins half.
func BenchmarkCommits(b *testing.B) {
	book := benchfigures.Book{Out: os.Stdout}
	for _, think := range []time.Duration{0, 2 * time.Millisecond} {
		name := "commits"
		if think > 0 {
			name = "commits_thinking"
		}
		b.Run(name, func(b *testing.B) {
			s, db, _ := benchDatabase(b)
			var ours, theirs float64
			const rounds, most = 4, 3 * time.Second
			for b.Loop() {
				ours, theirs = 0, 0
				naive := func() {
					o, stop := naiveOutbox(b, db)
					theirs += hammer(b, db, o, think, most)
					stop()
				}
				queue := func() {
					o, stop := sequenced(b, s)
					ours += hammer(b, db, o, think, most)
					stop()
				}
				for round := range rounds {
					first, second := naive, queue
					if round%2 == 1 { // who comes second finds more tables and log than who comes first
						first, second = second, first
					}
					first()
					second()
				}
			}
			book.Add("naive."+name, theirs/rounds, "1/s")
			book.Add("sqlstore."+name, ours/rounds, "1/s")
			book.Add("sqlstore."+name+".ratio", 100*ours/theirs, "%")
		})
	}
}

// BenchmarkLatency measures how long after its commit has returned a change is
// in a read, and how long after it was written in its transaction: with 16
// writers, and with a stranger's transaction open for 4 s.
func BenchmarkLatency(b *testing.B) {
	book := benchfigures.Book{Out: os.Stdout}
	for _, foreign := range []bool{false, true} {
		name := "latency"
		if foreign {
			name = "latency_foreign"
		}
		b.Run(name, func(b *testing.B) {
			s, db, url := benchDatabase(b)
			for b.Loop() {
				strange := ""
				if foreign {
					strange = url
				}
				times, rate := latencies(b, s, db, strange)
				for from, sample := range map[string][]float64{"": times.since(times.committed), "_from_write": times.since(times.written)} {
					book.Add("sqlstore."+name+from+".p50", benchfigures.Percentile(sample, 0.5), "ms")
					book.Add("sqlstore."+name+from+".p99", benchfigures.Percentile(sample, 0.99), "ms")
					book.Add("sqlstore."+name+from+".max", benchfigures.Percentile(sample, 1), "ms")
				}
				book.Add("sqlstore."+name+".rate", rate, "1/s")
			}
		})
	}
}

// moments are when each change was written, committed, and read.
type moments struct {
	mu                       sync.Mutex
	written, committed, read map[string]time.Time
}

func (m *moments) note(in map[string]time.Time, key string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	in[key] = now
}

// since returns the milliseconds from then to the read of each; 0 for what was read
// before its writer knew that it is committed.
func (m *moments) since(then map[string]time.Time) (millis []float64) {
	for key, at := range m.read {
		if from, ok := then[key]; ok {
			millis = append(millis, max(0, float64(at.Sub(from).Nanoseconds())/1e6))
		}
	}
	return millis
}

// unread returns how many committed changes have not been read yet.
func (m *moments) unread() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.committed {
		if _, ok := m.read[key]; !ok {
			n++
		}
	}
	return n
}

func TestTheLatencyIsOfEachCommittedChange(t *testing.T) {
	t.Parallel()
	at := time.Now()
	m := &moments{
		written:   map[string]time.Time{"a": at, "b": at, "c": at},
		committed: map[string]time.Time{"a": at.Add(time.Millisecond), "b": at.Add(3 * time.Millisecond), "c": at},
		read:      map[string]time.Time{"a": at.Add(5 * time.Millisecond), "b": at.Add(2 * time.Millisecond), "before": at},
	}
	require.Equal(t, 1, m.unread())
	require.ElementsMatch(t, []float64{4, 0}, m.since(m.committed), "milliseconds; one was read before its writer knew")
	require.ElementsMatch(t, []float64{5, 2}, m.since(m.written))
	m.note(m.read, "c")
	require.Zero(t, m.unread())
}

func latencies(b *testing.B, s *sqlstore.Store, db *sql.DB, foreign string) (times *moments, rate float64) {
	b.Helper()
	const most = 5 * time.Second
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	stop := starts(b, s)
	defer stop()
	times = &moments{written: map[string]time.Time{}, committed: map[string]time.Time{}, read: map[string]time.Time{}}
	var reading sync.WaitGroup
	reading.Go(func() {
		tail(ctx, s, func(value string) { times.note(times.read, value) })
	})
	if foreign != "" {
		tx, err := connect(b, foreign).BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(b, err)
		defer tx.Rollback() //nolint:errcheck // it only reads and writes a temporary row
		_, err = tx.ExecContext(ctx, `UPDATE state SET n = n + 1 WHERE id = 9999`)
		require.NoError(b, err)
	}
	var last [benchWriters]string
	rate = hammer(b, db, outbox{
		insert: func(ctx context.Context, tx *sql.Tx, id int, _ []byte) error {
			value := strconv.FormatInt(rand.Int64(), 10)
			last[id/100] = value
			times.note(times.written, value)
			return s.Append(ctx, tx, change("bench", strconv.Itoa(id)+"-"+value, value))
		},
		after: func(id int) {
			times.note(times.committed, last[id/100])
			s.Wake()
		},
	}, 10*time.Millisecond, most)
	// How long the last ones take is a part of the sample.
	await.Eventually(b, "each committed change is read", func() bool { return times.unread() == 0 })
	cancel()
	reading.Wait()
	return times, rate
}
