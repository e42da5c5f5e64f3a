package statesync_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

var (
	a1, b2, c3 = is("a", 1), is("b", 2), is("c", 3)

	resync = &statesync.ResyncError{Reason: statesync.OtherEpoch}
)

// refused fails unless nothing was taken of that stream.
func (f *follower) refused(t *testing.T, stream int) {
	t.Helper()
	told := f.told()
	require.Greater(t, len(told.ended), stream)
	end := told.ended[stream]
	require.ErrorContains(t, end.Err, "server is behind its earlier state")
	require.Equal(t, uint64(1), end.Frames, "a frame after the header was taken")
	require.False(t, end.complete)
}

// arrives fails unless the replica has these items, and they are all.
func (f *follower) arrives(t *testing.T, want ...string) {
	t.Helper()
	have, complete := f.Complete()
	require.True(t, complete)
	require.Equal(t, want, names(have))
}

func TestAListOfAServerThatLagsIsRefused(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		then(log.list(a1, b2), says(log.changes(2, []statesync.Item{a1, b2, c3}, c3))),
		log.list(a1, b2),
		log.list(a1, b2, c3),
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		f.arrives(t, "a@1", "b@2", "c@3")
		f.List()
		passes(time.Second)
		f.refused(t, 1)
		require.Equal(t, uint64(3), f.told().ended[1].status.Cursor.Version, "the copy went back")
		f.arrives(t, "a@1", "b@2", "c@3")
		require.ElementsMatch(t, []string{"a@1", "b@2", "c@3"}, f.told().handled)
	})
}

// Frames of a stream that broke off count.
func TestAServerThatLagsBehindABrokenListIsRefused(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		log.list(a1, b2),
		{says(log.header(0, 4)), says(log.items(0, a1, c3)), ends(io.ErrUnexpectedEOF)},
		log.list(a1, b2),
		log.list(a1, c3, gone("b", 4)),
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		f.List()
		passes(2 * time.Second)
		f.refused(t, 2)
		f.arrives(t, "a@1", "c@3", "-b@4")
	})
}

func TestAServerThatResumesBehindWhatItToldIsRefused(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		then(log.list(a1, b2), ends(io.ErrUnexpectedEOF)),
		{says(log.header(2, 1)), says(log.bookmark(2, 2, a1, b2))},
		log.list(a1, b2),
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(2 * time.Second)
		f.refused(t, 1)
		require.Len(t, f.told().asked, 3)
		require.Zero(t, f.told().asked[2].Cursor, "a copy that is in doubt is resumed")
		f.arrives(t, "a@1", "b@2")
	})
}

// TestAnEpochThatWasLeftIsRefused has servers that still serve an epoch after
// another has sent the next, in a list that is finished or not.
func TestAnEpochThatWasLeftIsRefused(t *testing.T) {
	old, middle, young := epoch("old"), epoch("middle"), epoch("young")
	d9 := is("d", 9)
	script(t, [][]step{
		then(old.list(a1, b2), ends(resync)),
		then(middle.list(a1), ends(resync)),
		{says(young.header(0, 2)), says(young.items(0, a1)), ends(io.ErrUnexpectedEOF)},
		old.list(a1, b2, d9),
		middle.list(a1, d9),
		young.list(a1, b2),
	}, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(time.Minute)
		f.refused(t, 3)
		f.refused(t, 4)
		f.arrives(t, "a@1", "b@2")
		require.Equal(t, statesync.Cursor{Epoch: "young", Version: 2}, f.Status().Cursor)
		require.NotContains(t, f.told().handled, "d@9")
	})
}

// A server that reads the log while it changes may list an older item of a key
// and then the newer one, which the reader already has from another.
func TestAnOlderItemNeverComesAfterANewerOne(t *testing.T) {
	log := epoch("e")
	a3, d5 := is("a", 3), is("d", 5)
	mixed := []step{
		says(log.header(0, 5)), says(log.items(0, a1)), waits(time.Second),
		says(log.items(1, b2, a3)), says(log.items(3, d5)), says(log.synced(5, b2, a3, d5)),
	}
	streams := [][]step{then(log.list(a1, b2), waits(time.Millisecond), says(log.changes(2, []statesync.Item{a3, b2}, a3))), mixed, mixed}
	t.Run("that is handled", func(t *testing.T) {
		script(t, streams, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
			passes(time.Second)
			for range 2 {
				f.List()
				passes(2 * time.Second)
				f.arrives(t, "b@2", "a@3", "d@5")
			}
			require.Equal(t, []string{"a@1", "a@3"}, of("a", f.told().handled))
		})
	})
	t.Run("that waits", func(t *testing.T) {
		script(
			t,
			streams,
			func(f *follower) { f.Handle = f.slow("a@1", 1500*time.Millisecond) },
			func(t *testing.T, f *follower) { //nolint:thelper // a test
				passes(time.Second)
				f.List()
				passes(600 * time.Millisecond)
				require.Equal(t, []string{"b@2", "a@1", "a@3"}, f.told().handled)
				passes(2 * time.Second)
				f.arrives(t, "b@2", "a@3", "d@5")
				require.Equal(t, []string{"a@1", "a@3"}, of("a", f.told().handled))
				require.Equal(t, statesync.Cursor{Epoch: "e", Version: 5}, f.Status().Applied)
			},
		)
	})
}

// of returns the names that belong to id.
func of(id string, names []string) (these []string) {
	for _, name := range names {
		if strings.HasPrefix(strings.TrimPrefix(name, "-"), id+"@") {
			these = append(these, name)
		}
	}
	return these
}
