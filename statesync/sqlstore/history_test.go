package sqlstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// events notes the events of a store.
type events struct {
	mu  sync.Mutex
	all []sqlstore.Event
}

func (e *events) note(event sqlstore.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) count(kind sqlstore.EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

// loses takes the newest versions out of a log, as a crash does that loses what was
// not on the disk yet.
func loses(t *testing.T, s *sqlstore.Store, above uint64) {
	t.Helper()
	for _, table := range []string{"log", "marks"} {
		_, err := s.DB.ExecContext(t.Context(), `DELETE FROM trueup_`+table+` WHERE version > `+strconv.FormatUint(above, 10))
		require.NoError(t, err)
	}
}

func read(t *testing.T, s *sqlstore.Store) statesync.Page {
	t.Helper()
	page, err := s.Read(t.Context(), "s", 0, 100)
	require.NoError(t, err)
	return page
}

func TestACommitThatWasReadOutlivesTheServer(t *testing.T) {
	t.Parallel()
	// Nothing is written but at a commit that waits for it.
	pg := pgtest.Start(
		t,
		pgtest.Options{
			Settings: []string{
				"synchronous_commit=off",
				"wal_writer_delay=10s",
				"wal_writer_flush_after=1GB",
				"autovacuum=off",
				"bgwriter_lru_maxpages=0",
			},
		},
	)
	s := openPostgreSQL(t, pg.Database(t), &sqlstore.Store{})
	stop := starts(t, s)
	for n := range uint64(20) {
		require.NoError(t, s.Commit(t.Context(), change("s", "a", strconv.FormatUint(n, 10))))
		head(t, s, "s", n+1)
	}
	before := read(t, s)
	pg.Kill()
	stop()
	require.NoError(t, pg.Start(t.Context()))
	again := openPostgreSQL(t, pg.URL("db1"), &sqlstore.Store{})
	require.Equal(t, before, read(t, again))
}

func TestALostTailIsAnotherEpoch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		var told events
		// Nothing but the batch itself looks.
		s := open(&sqlstore.Store{Poll: time.Hour, OnEvent: told.note})
		s.Listen = nil
		start(t, s)
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`), change("s", "b", `1`), change("s", "c", `1`)))
		before := head(t, s, "s", 3)
		loses(t, s, 1)
		require.NoError(t, s.Commit(t.Context(), change("s", "d", `1`), change("s", "e", `1`), change("s", "f", `1`)))
		require.NotEqual(t, before.Epoch, head(t, s, "s", 4).Epoch)
		require.NoError(t, s.Commit(t.Context(), change("s", "g", `1`)))
		head(t, s, "s", 5)
		require.Equal(t, 1, told.count(sqlstore.EventEpoch), "once for one loss")
	})
}

// follower is a replica of one scope through a server of the store.
type follower struct {
	*statesync.Replica
	stop func()
}

func follows(t *testing.T, s *sqlstore.Store) *follower {
	t.Helper()
	return followsScope(t, s, "s")
}

func followsScope(t *testing.T, s *sqlstore.Store, scope string) *follower {
	t.Helper()
	server := &statesync.Server{Log: s}
	replica := &statesync.Replica{Source: server, Scope: scope, Handle: func(context.Context, statesync.Item) error { return nil }}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = server.Start(ctx) })
	all.Go(func() { _ = replica.Start(ctx) })
	stop := sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return &follower{replica, stop}
}

func (f *follower) holds(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	var have []string
	await.Until(t, within, fmt.Sprintf("want %s", want), func() bool {
		state, complete := f.Complete()
		have = nil
		for key, i := range maps.All(state.Items) {
			have = append(have, fmt.Sprintf("%s=%s", key.ID, i.Value))
		}
		slices.Sort(have)
		return complete && slices.Equal(have, want)
	})
}

func TestAReplicaIsNotCompleteWithWhatTheLogHasLostAndPassedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := open(&sqlstore.Store{Poll: 50 * time.Millisecond})
		stop := starts(t, s)
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`)))
		head(t, s, "s", 1)
		f := follows(t, s)
		f.holds(t, "a=1")
		require.NoError(t, s.Commit(t.Context(), change("s", "lost", `1`)))
		f.holds(t, "a=1", "lost=1")
		before := head(t, s, "s", 2)
		// The watcher has read the mark of the head.
		await.Until(t, within, `sqlstore.MarkRead(s, "s") == before.Mark`, func() bool { return sqlstore.MarkRead(s, "s") == before.Mark })
		// All at once, so that no look falls in between; and by another process.
		stop()
		other := open(&sqlstore.Store{})
		loses(t, s, 1)
		stopOther := starts(t, other)
		require.NoError(t, other.Commit(t.Context(), change("s", "b", `1`)))
		require.NoError(t, other.Commit(t.Context(), change("s", "c", `1`)))
		require.NoError(t, other.Commit(t.Context(), change("s", "d", `1`)))
		head(t, other, "s", 4)
		stopOther()
		start(t, s)
		f.holds(t, "a=1", "b=1", "c=1", "d=1")
		require.NotEqual(t, before.Epoch, head(t, s, "s", 4).Epoch)
	})
}

func TestACursorThatComesBackAfterARestoreBeginsAnew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		var told events
		first := open(&sqlstore.Store{})
		stop := starts(t, first)
		require.NoError(t, first.Commit(t.Context(), change("s", "a", `1`)))
		head(t, first, "s", 1)
		require.NoError(t, first.Commit(t.Context(), change("s", "lost", `1`)))
		before := head(t, first, "s", 2)
		stop()
		loses(t, first, 1)

		// No process remembers anything.
		s := start(t, open(&sqlstore.Store{OnEvent: told.note}))
		for n := range 3 {
			require.NoError(t, s.Commit(t.Context(), change("s", strconv.Itoa(n), `1`)))
		}
		require.Equal(t, before.Epoch, head(t, s, "s", 4).Epoch)
		server := &statesync.Server{Log: s}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Start(ctx) }()
		err := server.Watch(ctx, statesync.Watch{Scope: "s", Cursor: statesync.Cursor{Epoch: before.Epoch, Version: 2, Mark: before.Mark}},
			func(f statesync.Frame) error { return fmt.Errorf("a %s frame", f.Type) })
		require.ErrorIs(t, err, statesync.ErrResync)
		// Readers without marks notice it by the epoch.
		require.NotEqual(t, before.Epoch, head(t, s, "s", 4).Epoch)
		require.Equal(t, 1, told.count(sqlstore.EventEpoch))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestAMarkThatTheLogHasNotMadeProvesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{}))
		require.NoError(t, s.Commit(t.Context(), change("s", "a", `1`), change("other", "a", `1`)))
		at, other := head(t, s, "s", 1), head(t, s, "other", 1)
		for _, mark := range []statesync.Mark{{Version: 1, ID: "invented"}, {Version: 9, ID: at.Mark.ID}, {Version: 1 << 63, ID: at.Mark.ID}, other.Mark, {Version: 1, ID: strings.Repeat("0", 32)}} {
			has, err := s.Marked(t.Context(), "s", mark)
			require.NoError(t, err)
			require.False(t, has, mark)
		}
		require.Equal(t, at, head(t, s, "s", 1))
		has, err := s.Marked(t.Context(), "s", at.Mark)
		require.NoError(t, err)
		require.True(t, has)
		_, err = s.Marked(t.Context(), "missing", at.Mark)
		require.ErrorIs(t, err, statesync.ErrUnknownScope)
	})
}

func TestMarksArePrunedWithTheFloor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{Retention: time.Nanosecond}))
		var marks []statesync.Mark
		for n, value := range []string{`1`, "", `1`} {
			require.NoError(t, s.Commit(t.Context(), change("s", "a", value)))
			if n == 1 {
				require.NoError(t, s.Commit(t.Context(), change("s", "b", "")))
				head(t, s, "s", 3)
				continue
			}
			marks = append(marks, head(t, s, "s", uint64(n+1+n/2)).Mark)
		}
		time.Sleep(2 * time.Millisecond) // the clock of a tombstone has milliseconds
		require.NoError(t, s.Prune(t.Context()))
		at := head(t, s, "s", 4)
		require.Equal(t, uint64(3), at.Floor)
		for n, want := range []bool{false, true} {
			has, err := s.Marked(t.Context(), "s", marks[n])
			require.NoError(t, err)
			require.Equal(t, want, has, marks[n])
		}
		require.Equal(t, at, head(t, s, "s", 4), "a pruned mark is no loss")
	})
}
