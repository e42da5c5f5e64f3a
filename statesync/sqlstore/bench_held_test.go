package sqlstore_test

import (
	"database/sql"
	"errors"
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
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// load has writers commit for that long, each four changes to keys of its own about
// a hundred times a second, and returns how many changes there were in a second.
// They change nothing else: rows of the caller's that are updated while a snapshot is
// held get slower too, and would take the processors from the measurement.
func load(tb testing.TB, s *sqlstore.Store, db *sql.DB, most time.Duration) float64 {
	tb.Helper()
	const each, think = 4, 10 * time.Millisecond
	value := []byte(`"` + strings.Repeat("x", 200) + `"`)
	var done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for w := range benchWriters {
		all.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(w)))
			for time.Since(began) < most {
				changes := make([]statesync.Change, each)
				for n := range changes {
					changes[n] = change("bench", strconv.Itoa(w*100+r.IntN(100)), "0")
					changes[n].Value = value
				}
				tx, err := db.BeginTx(tb.Context(), nil)
				if err == nil {
					err = errors.Join(s.Append(tb.Context(), tx, changes...), tx.Commit())
				}
				if err != nil {
					tb.Error(err)
					return
				}
				s.Wake()
				done.Add(each)
				time.Sleep(think/2 + time.Duration(r.Int64N(int64(think))))
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// BenchmarkSnapshotHeld measures the batches of the sequencer while another
// transaction holds a snapshot open, so that no dead row can be removed: in the
// first ten seconds, and in the last ten of ten minutes, or of TRUEUP_BENCH_HELD.
func BenchmarkSnapshotHeld(b *testing.B) {
	hold := 10 * time.Minute
	if text := os.Getenv("TRUEUP_BENCH_HELD"); text != "" {
		var err error
		hold, err = time.ParseDuration(text)
		require.NoError(b, err)
	}
	const window = 10 * time.Second
	figures := benchfigures.Book{Out: os.Stdout}
	s, db, url := benchDatabase(b)
	var mu sync.Mutex
	var took []float64
	var changes int
	s.OnBatch = func(batch sqlstore.Batch) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, float64(batch.Took.Microseconds())/1000)
		changes += batch.Changes
	}
	holder, err := connect(b, url).BeginTx(b.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(b, err)
	defer holder.Rollback() //nolint:errcheck // it has only read
	var rows int
	require.NoError(b, holder.QueryRowContext(b.Context(), `SELECT count(*) FROM state`).Scan(&rows))
	for b.Loop() {
		_, stop := sequenced(b, s)
		var first, last float64
		for from := time.Duration(0); from < hold; from += window {
			rate := load(b, s, db, min(window, hold-from))
			mu.Lock()
			last = benchfigures.Percentile(took, 0.5)
			if from == 0 {
				first = last
			}
			if from%time.Minute == 0 || from+window >= hold {
				name := "sqlstore.snapshot_held." + strconv.Itoa(int(from.Seconds())) + "s"
				figures.Add(name+".batch_p50", last, "ms")
				figures.Add(name+".batch_changes", float64(changes)/float64(len(took)), "changes")
				figures.Add(name+".rate", rate, "1/s")
			}
			took, changes = nil, 0
			mu.Unlock()
		}
		figures.Add("S3_snapshot_held_growth", last/first, "x")
		// The same without the dead rows shows the load of the machine.
		require.NoError(b, holder.Rollback())
		_, err := db.ExecContext(b.Context(), `VACUUM trueup_queue, trueup_log, trueup_marks`)
		require.NoError(b, err)
		load(b, s, db, time.Second)
		mu.Lock()
		took, changes = nil, 0
		mu.Unlock()
		load(b, s, db, window)
		mu.Lock()
		released := benchfigures.Percentile(took, 0.5)
		mu.Unlock()
		stop()
		figures.Add("sqlstore.snapshot_held.released.batch_p50", released, "ms")
		figures.Add("sqlstore.snapshot_held.over_released", last/released, "x")
	}
	var size int
	require.NoError(b, db.QueryRowContext(b.Context(), `SELECT pg_relation_size('trueup_queue')`).Scan(&size))
	figures.Add("sqlstore.snapshot_held.queue", float64(size)/1e6, "MB")
}
