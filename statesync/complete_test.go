package statesync_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestAStateIsCompleteWhileAStreamProvesIt(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		{
			waits(time.Second), says(log.header(0, 2)), says(log.items(0, a1)), waits(time.Second), says(log.items(1, b2)), waits(time.Second),
			says(log.synced(2, a1, b2)), waits(time.Second), says(log.part(2, c3)), waits(time.Second),
			says(log.bookmark(3, 4, a1, b2, c3)), waits(time.Second), ends(statesync.ErrUnauthenticated),
		},
		{
			waits(time.Second),
			says(log.header(4, 4)),
			waits(time.Second),
			says(log.bookmark(4, 4, a1, b2, c3)),
			waits(time.Second),
			ends(io.ErrUnexpectedEOF),
		},
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		says := func(at string, complete bool) {
			t.Helper()
			_, have := f.Complete()
			require.Equal(t, complete, have, at)
			require.Equal(t, complete, f.Status().Complete, at)
		}
		passes(500 * time.Millisecond)
		for _, c := range []struct {
			at       string
			complete bool
		}{
			{"before the header", false},
			{"in the list", false},
			{"after all items, before synced", false},
			{"after the list", true},
			{"in a commit", false},
			{"after it", true},
			{"without a stream", false},
		} {
			says(c.at, c.complete)
			passes(time.Second)
		}
		f.Reconnect()
		passes(500 * time.Millisecond)
		says("before the header of the next", false)
		passes(time.Second)
		says("after a header, which proves nothing", false)
		passes(time.Second)
		says("after what does", true)
	})
}

func TestAScopeThatWasUnknownIsListedAnew(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		then(log.list(a1, b2), ends(io.ErrUnexpectedEOF)),
		{ends(statesync.ErrUnknownScope)},
		log.list(a1, b2),
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(3 * time.Second)
		told := f.told()
		require.Equal(t, []statesync.Cursor{{}, {Epoch: "e", Version: 2}, {}}, cursors(told.asked))
		require.False(t, told.ended[1].complete)
		f.arrives(t, "a@1", "b@2")
		require.ElementsMatch(t, []string{"a@1", "b@2"}, told.handled)
	})
}

func cursors(asked []statesync.Watch) (list []statesync.Cursor) {
	for _, w := range asked {
		list = append(list, w.Cursor)
	}
	return list
}

// What a caller was given does not change, whatever comes.
func TestASnapshotStaysAsItIs(t *testing.T) {
	log := epoch("e")
	a3, b4 := is("a", 3), gone("b", 4)
	script(
		t,
		[][]step{then(log.list(a1, b2), waits(time.Second), says(log.changes(2, []statesync.Item{a3, b4}, a3, b4)))},
		nil,
		func(t *testing.T, f *follower) { //nolint:thelper // a test
			before, _ := f.Complete()
			passes(time.Minute)
			f.arrives(t, "a@3", "-b@4")
			require.Equal(t, []string{"a@1", "b@2"}, names(before))
			require.Equal(t, []string{"a@1", "b@2"}, names(f.told().proven[0]))
			require.Len(t, f.told().proven, 1, "changes are no list")
		},
	)
}

// A stream that changes items and takes them away proves right all the time.
func TestWhatIsReplacedIsNoLongerCounted(t *testing.T) {
	log := epoch("e")
	a3, b4, b5, a6 := is("a", 3), gone("b", 4), is("b", 5), gone("a", 6)
	script(t, [][]step{then(log.list(a1, b2),
		says(log.changes(2, []statesync.Item{a3, b2}, a3)),
		says(log.changes(3, []statesync.Item{a3}, b4)),
		says(log.changes(4, []statesync.Item{a3, b5}, b5)),
		says(log.changes(5, []statesync.Item{b5}, a6)),
		says(log.bookmark(6, 9, b5)),
	)}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(time.Minute)
		require.Empty(t, f.told().ended)
		f.arrives(t, "b@5", "-a@6")
		require.Equal(t, uint64(9), f.Status().Head)
		require.Equal(t, uint64(9), f.Status().Applied.Version)
	})
}

// TestEverythingIsListedNowAndThen has streams that never end and streams that
// are resumed: both are followed by a list in time, and not always in the same.
func TestEverythingIsListedNowAndThen(t *testing.T) {
	log := epoch("e")
	var streams [][]step
	for range 20 {
		streams = append(streams, log.list(a1, b2))
	}
	streams = append(
		streams,
		then(log.list(a1, b2), waits(time.Minute), ends(io.ErrUnexpectedEOF)),
		[]step{says(log.header(2, 2)), says(log.bookmark(2, 2, a1, b2))},
	)
	script(
		t,
		streams,
		func(f *follower) { f.Collections = []string{"things", "others"} },
		func(t *testing.T, f *follower) { //nolint:thelper // a test
			passes(5 * time.Hour)
			told := f.told()
			require.GreaterOrEqual(t, len(told.began), 23)
			var shortest, longest time.Duration
			for n := range 20 {
				require.Zero(t, told.asked[n].Cursor)
				require.Equal(t, []string{"things", "others"}, told.asked[n].Collections)
				require.ErrorIs(t, told.ended[n].Err, statesync.ErrRelist)
				lasted := told.began[n+1].Sub(told.began[n])
				if n == 0 || lasted < shortest {
					shortest = lasted
				}
				longest = max(longest, lasted)
			}
			require.GreaterOrEqual(t, shortest, 8*time.Minute)
			require.LessOrEqual(t, longest, 12*time.Minute)
			require.Greater(t, longest-shortest, 10*time.Second, "they are not spread")
			require.Equal(t, []statesync.Cursor{{}, {Epoch: "e", Version: 2}, {}}, cursors(told.asked[20:23]))
			lasted := told.began[22].Sub(told.began[20])
			require.True(t, 8*time.Minute <= lasted && lasted <= 12*time.Minute, lasted)
			require.ElementsMatch(t, []string{"a@1", "b@2"}, told.handled, "an unchanged item is handled again")
		},
	)
}

// A source that does not look at its context is ended with the next frame.
func TestListEndsAStreamWithTheNextFrame(t *testing.T) {
	log := epoch("e")
	deaf := func(_ context.Context, receive func(statesync.Frame) error) error {
		time.Sleep(time.Minute)
		return receive(log.bookmark(2, 2, a1, b2))
	}
	script(t, [][]step{then(log.list(a1, b2), deaf, deaf), log.list(a1, b2)}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		f.List()
		passes(2 * time.Minute)
		told := f.told()
		require.Equal(t, []statesync.Cursor{{}, {}}, cursors(told.asked))
		require.ErrorIs(t, told.ended[0].Err, statesync.ErrRelist)
		require.Equal(t, time.Minute, told.began[1].Sub(told.began[0]))
	})
}

// Of an empty scope there is nothing to go on with.
func TestAnEmptyScopeIsListedAgain(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		{says(log.header(0, 0)), says(log.synced(0)), waits(time.Minute), ends(io.ErrUnexpectedEOF)},
		log.list(a1, b2),
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		f.arrives(t)
		passes(2 * time.Minute)
		told := f.told()
		require.Equal(t, []statesync.Cursor{{}, {}}, cursors(told.asked))
		require.True(t, told.ended[0].List)
		f.arrives(t, "a@1", "b@2")
	})
}
