package sqlstore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// TestAHeldSnapshotMakesNoBatchDearer counts the pages of the database that a look and
// a batch of one change read, early and late while another transaction holds a
// snapshot: the dead rows between are 4,000 of the queue, and as many of one key. It runs
// alone: each transaction that other tests have open is looked up in the queue.
func TestAHeldSnapshotMakesNoBatchDearer(t *testing.T) {
	s := openPostgreSQL(t, pgtest.NewDatabase(t), &sqlstore.Store{})
	holder, err := s.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer holder.Rollback() //nolint:errcheck // it has only read
	var one int
	require.NoError(t, holder.QueryRowContext(t.Context(), `SELECT count(*) FROM trueup_queue`).Scan(&one))
	stop := starts(t, s)
	moved := uint64(0)
	move := func(n int) {
		t.Helper()
		for range n {
			moved++
			require.NoError(t, s.Commit(t.Context(), change("a", "1", strconv.FormatUint(moved, 10))))
		}
		head(t, s, "a", moved)
	}
	move(100)
	stop()
	looked, batch := pages(t, s)
	moved++ // what pages has left in the queue
	stop = starts(t, s)
	move(4000)
	stop()
	lookedLate, batchLate := pages(t, s)
	t.Logf("pages of a look %d and %d, of a batch %d and %d", looked, lookedLate, batch, batchLate)
	require.LessOrEqual(t, lookedLate, looked+10)
	require.LessOrEqual(t, batchLate, batch+40)
}

// pages returns how many a look and a batch of one change read, the least of five: one
// insert in a hundred splits a page of an index, and looks at many rows for that. The
// change stays in the queue.
func pages(t *testing.T, s *sqlstore.Store) (look, batch int) {
	t.Helper()
	var seen string
	require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT pg_current_snapshot()::text`).Scan(&seen))
	require.NoError(t, s.Commit(t.Context(), change("a", "1", `1`)))
	look, batch = math.MaxInt, math.MaxInt
	for range 5 {
		l, b := pagesAfter(t, s, seen)
		look, batch = min(look, l), min(batch, b)
	}
	return look, batch
}

// pagesAfter reads pages of changes committed after the snapshot seen, once.
func pagesAfter(t *testing.T, s *sqlstore.Store, seen string) (look, batch int) {
	t.Helper()
	lock, waiting, move := sqlstore.Sequencing(s)
	tx, err := s.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // it only looks
	var origin, timeline, settings string
	require.NoError(t, tx.QueryRowContext(t.Context(), lock, "60000").Scan(&origin, &timeline, &settings))
	return explain(t.Context(), t, tx, waiting, seen), explain(t.Context(), t, tx, move, seen, int64(1))
}

func explain(ctx context.Context, t *testing.T, tx *sql.Tx, statement string, args ...any) (read int) {
	t.Helper()
	var text string
	require.NoError(t, tx.QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+statement, args...).Scan(&text))
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	read = plans[0].Plan.pages()
	// What nothing else reads runs after the rest, and counts for itself.
	for _, part := range plans[0].Plan.Plans {
		if part.Type == "ModifyTable" {
			read += part.pages()
		}
	}
	return read
}

type plan struct {
	Type  string `json:"Node Type"`
	Hit   int    `json:"Shared Hit Blocks"`
	Read  int    `json:"Shared Read Blocks"`
	Plans []plan
}

func (p plan) pages() int { return p.Hit + p.Read }
