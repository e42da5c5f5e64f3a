package statesync_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// applies fails unless everything up to that version is acknowledged.
func (f *follower) applies(t *testing.T, version uint64, pending int) {
	t.Helper()
	status := f.Status()
	require.Equal(t, version, status.Applied.Version)
	require.Equal(t, pending, status.Pending)
}

func TestWhatIsReceivedIsAcknowledgedOnceItIsHandled(t *testing.T) {
	log := epoch("e")
	a3 := is("a", 3)
	script(t, [][]step{then(log.list(a1, b2), waits(time.Second), says(log.changes(2, []statesync.Item{b2, a3}, a3)))}, func(f *follower) {
		f.Handle = f.slow("a@1", 10*time.Second)
	}, func(t *testing.T, f *follower) { //nolint:thelper // a test
		require.Equal(t, uint64(2), f.Status().Cursor.Version)
		f.applies(t, 0, 1)
		passes(5 * time.Second)
		require.Equal(t, uint64(3), f.Status().Cursor.Version)
		f.applies(t, 2, 1)
		require.Equal(t, []string{"b@2"}, f.told().handled)
		passes(10 * time.Second)
		f.applies(t, 3, 0)
		require.Equal(t, []string{"b@2", "a@1", "a@3"}, f.told().handled)
	})
}

// An item that was begun acknowledges none that came meanwhile.
func TestAnItemAcknowledgesOnlyItself(t *testing.T) {
	log, next := epoch("e"), epoch("f")
	a3 := is("a", 3)
	for name, c := range map[string]struct {
		streams [][]step
		then    []string
	}{
		"a newer one":             {[][]step{then(log.list(a1, b2), waits(time.Second), says(log.changes(2, []statesync.Item{b2, a3}, a3)))}, []string{"b@2", "a@1", "a@3"}},
		"one of another epoch":    {[][]step{then(log.list(a1, b2), waits(time.Second), ends(resync)), next.list(a1, b2)}, []string{"b@2", "b@2", "a@1", "a@1"}},
		"one that was sent again": {[][]step{log.list(a1, b2), log.list(a1, b2)}, []string{"b@2", "a@1"}},
	} {
		t.Run(name, func(t *testing.T) {
			script(t, c.streams, func(f *follower) {
				f.Handle = func(_ context.Context, i statesync.Item) error {
					if i.ID == "a" {
						time.Sleep(10 * time.Second)
					}
					f.note(i)
					return nil
				}
			}, func(t *testing.T, f *follower) { //nolint:thelper // a test
				passes(5 * time.Second)
				f.List()
				passes(time.Minute)
				require.Equal(t, c.then, f.told().handled)
				f.applies(t, f.Status().Cursor.Version, 0)
			})
		})
	}
}

func TestAKeyThatFailsHoldsBackWhatIsAcknowledged(t *testing.T) {
	log := epoch("e")
	fails := 3
	script(t, [][]step{then(log.list(a1, b2), says(log.changes(2, []statesync.Item{a1, b2, c3}, c3)))}, func(f *follower) {
		f.Handle = func(_ context.Context, i statesync.Item) error {
			if i.ID == "b" && fails > 0 {
				fails--
				return errors.New("not yet")
			}
			f.note(i)
			return nil
		}
	}, func(t *testing.T, f *follower) { //nolint:thelper // a test
		f.applies(t, 1, 1)
		passes(6 * time.Second)
		f.applies(t, 1, 1)
		passes(2 * time.Second)
		f.applies(t, 3, 0)
		require.ElementsMatch(t, []string{"a@1", "b@2", "c@3"}, f.told().handled)
	})
}

func TestAKeyThatWasGivenUpIsTriedAfterAList(t *testing.T) {
	log := epoch("e")
	fails := 1
	script(
		t,
		[][]step{log.list(a1, b2), log.list(a1, b2), {says(log.header(0, 4)), says(log.items(0, b2, gone("c", 4))), says(log.synced(4, b2))}},
		func(f *follower) {
			f.Retry = reconcile.Backoff{Retries: -1}
			f.Handle = func(_ context.Context, i statesync.Item) error {
				if i.ID == "b" && fails > 0 {
					fails--
					return errors.New("not this time")
				}
				f.note(i)
				return nil
			}
		},
		func(t *testing.T, f *follower) { //nolint:thelper // a test
			passes(time.Minute)
			require.Equal(t, 1, f.Status().Parked)
			f.applies(t, 1, 1)
			f.List()
			passes(time.Second)
			require.Zero(t, f.Status().Parked)
			f.applies(t, 2, 0)
			require.Equal(t, []string{"a@1", "b@2"}, f.told().handled)
		},
	)
}

// A key that a list lacks may be desired or not: no server has sent its deletion, and
// none sends its state any more.
func TestWhatAListLacksIsNotHandledAnyMore(t *testing.T) {
	log := epoch("e")
	var right atomic.Bool
	script(t, [][]step{
		log.list(a1, b2),
		{says(log.header(0, 4)), says(log.items(0, b2, gone("c", 4))), says(log.synced(4, b2))},
	}, func(f *follower) {
		f.Handle = func(_ context.Context, i statesync.Item) error {
			if i.ID == "a" && !right.Load() {
				return errors.New("not yet")
			}
			f.note(i)
			return nil
		}
	}, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(10 * time.Second)
		f.applies(t, 0, 1)
		f.List()
		passes(time.Second)
		right.Store(true)
		f.applies(t, 4, 0)
		passes(time.Hour)
		require.Equal(t, []string{"b@2", "-c@4"}, f.told().handled)
	})
}

func TestAPartOfACommitIsNotAcknowledged(t *testing.T) {
	log := epoch("e")
	d4 := is("d", 4)
	script(
		t,
		[][]step{then(log.list(a1, b2), says(log.part(2, c3)), waits(time.Minute), says(log.changes(3, []statesync.Item{a1, b2, c3, d4}, d4)))},
		nil,
		func(t *testing.T, f *follower) { //nolint:thelper // a test
			require.Equal(t, uint64(3), f.Status().Cursor.Version)
			f.applies(t, 2, 0)
			passes(2 * time.Minute)
			f.applies(t, 4, 0)
		},
	)
}

// A list of another epoch takes back no acknowledgement, nor does
// one that breaks off.
func TestAListInProgressTakesBackNoAcknowledgement(t *testing.T) {
	log, next := epoch("e"), epoch("f")
	for name, c := range map[string]struct{ end, list []step }{
		"of another epoch": {[]step{ends(resync)}, []step{says(next.header(0, 2)), says(next.items(0, a1)), waits(time.Hour)}},
		"that breaks off":  {nil, []step{says(log.header(0, 2)), says(log.items(0, a1)), ends(io.ErrUnexpectedEOF)}},
	} {
		t.Run(name, func(t *testing.T) {
			script(t, [][]step{then(log.list(a1, b2), then([]step{waits(time.Minute)}, c.end...)...), c.list}, func(f *follower) {
				f.Handle = func(ctx context.Context, i statesync.Item) error {
					if len(of(i.ID, f.told().handled)) > 0 {
						return sleep(ctx, time.Hour)
					}
					f.note(i)
					return nil
				}
			}, func(t *testing.T, f *follower) { //nolint:thelper // a test
				f.applies(t, 2, 0)
				passes(2 * time.Minute)
				require.Equal(t, statesync.Cursor{Epoch: "e", Version: 2}, f.Status().Applied)
			})
		})
	}
}

func TestWorkersAreTheMostThatAreHandledAtATime(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{log.list(a1, b2, c3)}, func(f *follower) {
		f.Workers = 2
		f.Handle = func(_ context.Context, i statesync.Item) error { time.Sleep(time.Second); f.note(i); return nil }
	}, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(1500 * time.Millisecond)
		require.Len(t, f.told().handled, 2)
		passes(time.Second)
		require.Len(t, f.told().handled, 3)
	})
}
