package sqlstore_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// crash kills a server with these settings again and again under writers, readers,
// two stores and a replica. Where commits do not wait for the disk, a writer cannot
// know whether its commit has outlived the server.
func crash(t *testing.T, asynchronous bool, settings ...string) {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{Settings: settings})
	url := pg.Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	one, two := start(t, openPostgreSQL(t, url, &sqlstore.Store{})), start(t, openPostgreSQL(t, url, &sqlstore.Store{}))
	replica := followsScope(t, one, stormScope)
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
				changes := []statesync.Change{
					change(stormScope, fmt.Sprint("mine-", w), fmt.Sprint(n)),
					change(stormScope, fmt.Sprintf("%d-%d", w, n), `1`),
				}
				told := h.Begin(changes...)
				if err := one.Commit(ctx, changes...); err == nil {
					if !asynchronous {
						told.Committed()
					}
					committed.Add(1)
				} else {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	rounds := int64(3)
	if n, err := strconv.ParseInt(os.Getenv("TRUEUP_SOAK"), 10, 64); err == nil && n > 0 {
		rounds = max(3, min(50, n/20_000))
	}
	for range rounds {
		before := committed.Load()
		await.Until(t, within, "committed.Load() > before+200", func() bool { return committed.Load() > before+200 })
		pg.Kill()
		require.NoError(t, pg.Start(ctx))
		before = committed.Load()
		await.Until(t, within, "committed.Load() > before", func() bool { return committed.Load() > before })
	}
	stop()
	writers.Wait()
	last := change(stormScope, "last", `1`)
	told := h.Begin(last)
	require.NoError(t, one.Commit(ctx, last))
	told.Committed()
	// What was committed and not yet moved is in the queue.
	var page statesync.Page
	await.Until(t, within, "err == nil", func() bool {
		var queued int
		if err := one.DB.QueryRowContext(ctx, `SELECT count(*) FROM trueup_queue`).Scan(&queued); err != nil || queued > 0 {
			return false
		}
		var err error
		page, err = one.Read(ctx, stormScope, 0, 1)
		return err == nil
	})
	total.Store(page.Head)
	// A reader that had everything before is woken.
	told = h.Begin(change(stormScope, "last", `2`))
	require.NoError(t, one.Commit(ctx, change(stormScope, "last", `2`)))
	told.Committed()
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	head(t, one, stormScope, page.Head+1)
	require.NoError(t, h.Check(ctx, one))
	// The replica is complete with what the database has, and nothing else.
	all, err := one.Read(ctx, stormScope, 0, 1<<20)
	require.NoError(t, err)
	want := map[statesync.Key]statesync.Item{}
	for _, i := range all.Items {
		want[i.Key] = i
	}
	await.Until(t, within, "complete && state.Cursor.Version == all.Head && reflect.DeepEqual(state.Items, want)", func() bool {
		state, complete := replica.Complete()
		return complete && state.Cursor.Version == all.Head && reflect.DeepEqual(state.Items, want)
	})
	t.Logf("%d commits, the server killed %d times: nothing lost, nothing doubled, no wrong proof", committed.Load(), rounds)
}
