package sqlstore_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// crash kills the server again and again under writers, readers and two stores.
func crash(t *testing.T) {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{})
	url := pg.Database(t)
	ctx := ctxWithin(t)
	one, two := start(t, openPostgreSQL(t, url, &sqlstore.Store{})), start(t, openPostgreSQL(t, url, &sqlstore.Store{}))
	h := statesynctest.NewHistory(stormScope)
	var total atomic.Uint64
	total.Store(math.MaxUint64)
	results := make(chan error, 2)
	for n, s := range []*sqlstore.Store{one, two} {
		r := h.Reader(fmt.Sprint(n))
		go func() {
			results <- follow(ctx, r, s, 50, func(p statesync.Position) bool { return p.Head >= total.Load() })
		}()
	}
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	var committed atomic.Int64
	for w := range 8 {
		writers.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				changes := []statesync.Change{change(stormScope, fmt.Sprint("mine-", w), fmt.Sprint(n)), change(stormScope, fmt.Sprintf("%d-%d", w, n), `1`)}
				told := h.Begin(changes...)
				if err := one.Commit(ctx, changes...); err == nil {
					told.Committed()
					committed.Add(1)
				} else {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	for round := range int64(3) {
		require.Eventually(t, func() bool { return committed.Load() > 200*(round+1) }, within, time.Millisecond)
		pg.Kill()
		require.NoError(t, pg.Start(ctx))
		before := committed.Load()
		require.Eventually(t, func() bool { return committed.Load() > before }, within, time.Millisecond)
	}
	stop()
	writers.Wait()
	last := change(stormScope, "last", `1`)
	told := h.Begin(last)
	require.NoError(t, one.Commit(ctx, last))
	told.Committed()
	// What was committed and not yet moved is in the queue.
	var page statesync.Page
	require.Eventually(t, func() bool {
		var queued int
		if err := one.DB.QueryRowContext(ctx, `SELECT count(*) FROM trueup_queue`).Scan(&queued); err != nil || queued > 0 {
			return false
		}
		var err error
		page, err = one.Read(ctx, stormScope, 0, 1)
		return err == nil
	}, within, time.Millisecond)
	total.Store(page.Head)
	// Whoever had everything before it could know is woken.
	told = h.Begin(change(stormScope, "last", `2`))
	require.NoError(t, one.Commit(ctx, change(stormScope, "last", `2`)))
	told.Committed()
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	head(t, one, stormScope, page.Head+1)
	require.NoError(t, h.Check(ctx, one))
	t.Logf("%d commits, the server killed 3 times: nothing lost, nothing doubled", committed.Load())
}
