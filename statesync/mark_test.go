package statesync_test

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestMarksAreText(t *testing.T) {
	for text, want := range map[string]statesync.Mark{"": {}, "7-a_B-9": {Version: 7, ID: "a_B-9"}} {
		var mark statesync.Mark
		require.NoError(t, mark.UnmarshalText([]byte(text)))
		require.Equal(t, want, mark)
		require.Equal(t, text, mark.String())
	}
	for _, text := range []string{"7", "7-", "-a", "0-a", "x-a", "7-ä", "7-\x00", "7-\xff", "18446744073709551616-a"} {
		var mark statesync.Mark
		require.ErrorIs(t, mark.UnmarshalText([]byte(text)), statesync.ErrInvalid, text)
		require.Zero(t, mark)
	}
}

// rewritten is a log of one epoch that loses its newest commits: from then on it
// is another log, which gives their versions again.
type rewritten struct {
	now atomic.Pointer[statesync.Memory]
}

func (r *rewritten) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	page, err := r.now.Load().Read(ctx, scope, after, limit)
	if err == nil {
		page.Epoch = "e"
	}
	return page, err
}

func (r *rewritten) Wait(ctx context.Context, scope string, at statesync.Position) error {
	log := r.now.Load()
	page, err := log.Read(ctx, scope, 0, 1)
	if err != nil {
		return err
	}
	at.Epoch = page.Epoch
	return log.Wait(ctx, scope, at)
}

func (r *rewritten) Marked(ctx context.Context, scope string, mark statesync.Mark) (bool, error) {
	return r.now.Load().Marked(ctx, scope, mark)
}

// histories returns two logs that have their first commit in common. The second
// has passed the first.
func histories(t *testing.T) (lost, kept *statesync.Memory) {
	t.Helper()
	lost, kept = &statesync.Memory{}, &statesync.Memory{}
	for _, log := range []*statesync.Memory{lost, kept} {
		require.NoError(t, log.AddScope("eu"))
		require.NoError(t, log.Commit(put("a", 1)))
	}
	require.NoError(t, lost.Commit(put("b", 1), put("gone", 1)))
	require.NoError(t, kept.Commit(put("b", 2)))
	require.NoError(t, kept.Commit(put("c", 1)))
	require.NoError(t, kept.Commit(put("d", 1)))
	return lost, kept
}

func keysOf(s statesync.Snapshot) []string {
	var keys []string
	for key, i := range s.Items {
		keys = append(keys, key.ID+"="+string(i.Value))
	}
	slices.Sort(keys)
	return keys
}

func TestAServerWhoseLogHasLostCommitsServesTheOthers(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, counts *counted) { //nolint:thelper // a test
		lost, kept := histories(t)
		log := &rewritten{}
		log.now.Store(lost)
		counts.Log = log
		handled := map[string]string{}
		replica := &statesync.Replica{Source: server, Scope: "eu", Workers: 1, Handle: func(_ context.Context, i statesync.Item) error {
			handled[i.ID] = string(i.Value)
			return nil
		}}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- replica.Start(ctx) }()
		synctest.Wait()
		state, complete := replica.Complete()
		require.True(t, complete)
		require.Equal(t, []string{"a=1", "b=1", "gone=1"}, keysOf(state))

		log.now.Store(kept)
		require.NoError(t, lost.Commit(put("a", 9)), "it wakes what waits")
		time.Sleep(time.Minute)
		synctest.Wait()
		state, complete = replica.Complete()
		require.True(t, complete)
		require.Equal(t, []string{"a=1", "b=2", "c=1", "d=1"}, keysOf(state))
		// Versions that were given twice are handled twice.
		require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "1", "d": "1", "gone": "1"}, maps.Clone(handled))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestACursorOfALostHistoryIsNotResumed(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, counts *counted) { //nolint:thelper // a test
		lost, kept := histories(t)
		page, err := lost.Read(ctx, "eu", 0, 10)
		require.NoError(t, err)
		log := &rewritten{}
		log.now.Store(kept)
		counts.Log = log
		w := statesync.Watch{Scope: "eu", Cursor: statesync.Cursor{Epoch: "e", Version: page.Head, Mark: page.Mark}}
		err = server.Watch(ctx, w, func(statesync.Frame) error { return nil })
		var resync *statesync.ResyncError
		require.ErrorAs(t, err, &resync)
		require.Equal(t, statesync.OtherHistory, resync.Reason)

		// A reader that has seen no mark is checked by the version alone.
		w.Cursor.Mark = statesync.Mark{}
		frames, end := open(ctx, server, w)
		require.NotEmpty(t, after(frames))
		select {
		case err := <-end:
			require.NoError(t, err)
		default:
		}
	})
}

func TestAThousandThatComeBackAskForTheirMarkOnce(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		require.NoError(t, log.Commit(put("a", 1)))
		page, err := log.Read(ctx, "eu", 0, 10)
		require.NoError(t, err)
		require.NoError(t, log.Commit(put("b", 1)))
		w := statesync.Watch{Scope: "eu", Cursor: statesync.Cursor{Epoch: page.Epoch, Version: page.Head, Mark: page.Mark}}
		ctx, cancel := context.WithCancel(ctx)
		var ends []<-chan error
		for range 1000 {
			frames, end := open(ctx, server, w)
			ends = append(ends, end)
			_ = frames
		}
		synctest.Wait()
		require.Equal(t, int64(1), counts.marks.Load())
		require.Equal(t, int64(1), counts.reads.Load())
		cancel()
		for _, end := range ends {
			require.ErrorIs(t, <-end, context.Canceled)
		}
	})
}
