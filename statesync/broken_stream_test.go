package statesync_test

import (
	"cmp"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	breaks = "stream breaks its contract"
	unlike = "state differs from the server's digest"
)

// with is a frame that is changed.
func with(f statesync.Frame, change func(*statesync.Frame)) step {
	change(&f)
	return says(f)
}

// TestAFrameThatCannotBeEndsItsStream has a frame after a list of a@1 and b@2
// that a right server would not send there. The stream ends with it, nothing of
// it is used, and everything is listed again.
func TestAFrameThatCannotBeEndsItsStream(t *testing.T) {
	log, other := epoch("e"), epoch("f")
	d4 := is("d", 4)
	ab := []statesync.Item{a1, b2}
	further := with(log.items(0, a1, b2), func(f *statesync.Frame) { f.Version = 4 })
	right := []step{says(log.header(0, 4)), further, says(log.synced(4, a1, b2))}
	began, listed := []step{says(log.header(0, 2)), says(log.items(0, a1))}, log.list(a1, b2)
	for name, c := range map[string]struct {
		before []step
		bad    step
		why    string
	}{
		"nothing before the header":         {nil, says(log.items(0, a1)), breaks},
		"nothing before a second header":    {then(listed, ends(io.ErrUnexpectedEOF)), says(log.bookmark(2, 2, a1, b2)), breaks},
		"a header twice":                    {listed, says(log.header(2, 2)), breaks},
		"a header of another epoch in one":  {began, says(other.header(0, 2)), breaks},
		"a header without an epoch":         {nil, says(epoch("").header(0, 2)), breaks},
		"a header elsewhere":                {nil, says(log.header(2, 2)), breaks},
		"a gap":                             {listed, says(log.changes(3, []statesync.Item{a1, b2, d4}, d4)), breaks},
		"a gap in a list":                   {began, says(log.items(2, c3)), breaks},
		"a frame of another epoch":          {listed, says(other.changes(2, []statesync.Item{a1, b2, c3}, c3)), breaks},
		"a list goes on in another epoch":   {began, says(other.items(1, b2)), breaks},
		"a way back":                        {listed, says(log.bookmark(2, 1, a1, b2)), breaks},
		"items out of order":                {listed, with(log.changes(2, []statesync.Item{a1, b2, c3, d4}, d4, c3), func(f *statesync.Frame) { f.Version = 4 }), breaks},
		"an item twice":                     {listed, says(log.changes(2, []statesync.Item{a1, b2, c3}, c3, c3)), breaks},
		"an item from before":               {listed, with(log.changes(2, ab, b2), func(f *statesync.Frame) { f.Version = 3 }), breaks},
		"an item beyond the frame":          {listed, with(log.changes(2, []statesync.Item{a1, b2, d4}, d4), func(f *statesync.Frame) { f.Version = 3 }), breaks},
		"synced with more to come":          {began, with(log.synced(1, a1), func(f *statesync.Frame) { f.More = true }), breaks},
		"synced that moves":                 {began, with(log.synced(2, a1), func(f *statesync.Frame) { f.After = 1 }), breaks},
		"synced twice":                      {listed, says(log.synced(2, a1, b2)), breaks},
		"changes in a list":                 {began, says(log.changes(1, ab, b2)), breaks},
		"items after the list":              {listed, says(log.items(2, c3)), breaks},
		"a frame of no type":                {listed, with(log.bookmark(2, 3, a1, b2), func(f *statesync.Frame) { f.Type = "page" }), breaks},
		"a list that was cut":               {began, says(log.synced(1, a1, b2)), unlike},
		"a list with another count":         {began, with(log.synced(1, a1), func(f *statesync.Frame) { f.Count++ }), unlike},
		"a list with another digest":        {began, with(log.synced(1, a1), func(f *statesync.Frame) { f.Digest[2]++ }), unlike},
		"a bookmark with another count":     {listed, with(log.bookmark(2, 3, ab...), func(f *statesync.Frame) { f.Count++ }), unlike},
		"a bookmark with another digest":    {listed, with(log.bookmark(2, 3, ab...), func(f *statesync.Frame) { f.Digest[1]++ }), unlike},
		"a bookmark that says nothing":      {listed, with(log.bookmark(2, 3, ab...), func(f *statesync.Frame) { f.Digest = statesync.Digest{} }), unlike},
		"a bookmark after a lost change":    {listed, says(log.bookmark(2, 3, a1, b2, c3)), unlike},
		"a bookmark after a lost deletion":  {listed, says(log.bookmark(2, 3, b2)), unlike},
		"changes with one lost":             {listed, says(log.changes(2, []statesync.Item{a1, b2, c3, d4}, d4)), unlike},
		"changes of which one is not there": {listed, says(log.changes(2, ab, c3)), unlike},
	} {
		t.Run(name, func(t *testing.T) {
			streams := [][]step{then(c.before, c.bad, waits(time.Minute)), right}
			// A reader that has nothing lists anyway.
			if name == "nothing before a second header" {
				streams = [][]step{c.before, {c.bad}, right}
			}
			script(t, streams, nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
				passes(2 * time.Second)
				told := f.told()
				require.Len(t, told.asked, len(streams))
				end := told.ended[len(streams)-2]
				require.ErrorContains(t, end.Err, c.why)
				require.False(t, end.complete)
				require.Zero(t, told.asked[len(streams)-1].Cursor, "a doubtful state is resumed")
				f.arrives(t, "a@1", "b@2")
				require.Equal(t, statesync.Cursor{Epoch: "e", Version: 4}, f.Status().Applied)
				if c.why == breaks {
					require.Subset(t, []string{"a@1", "b@2"}, told.handled, "an impossible item was handled")
				}
				for n, s := range told.proven {
					require.Equal(t, uint64(n+1), s.Lists)
					require.Equal(t, []string{"a@1", "b@2"}, names(s), "what cannot be was proven")
				}
			})
		})
	}
}

// TestAStreamThatSaidSomethingWrongProvesNothing has a source that takes its
// time to end a stream of which the replica wants no more.
func TestAStreamThatSaidSomethingWrongProvesNothing(t *testing.T) {
	log := epoch("e")
	lingering := func(f statesync.Frame) step {
		return func(ctx context.Context, receive func(statesync.Frame) error) error {
			err := receive(f)
			return cmp.Or(waits(time.Minute)(ctx, receive), err)
		}
	}
	for name, bad := range map[string]statesync.Frame{
		breaks: log.bookmark(3, 3, a1, b2),
		unlike: log.bookmark(2, 3, a1),
	} {
		t.Run(name, func(t *testing.T) {
			script(
				t,
				[][]step{then(log.list(a1, b2), waits(time.Minute), lingering(bad))},
				nil,
				func(t *testing.T, f *follower) { //nolint:thelper // a test
					f.arrives(t, "a@1", "b@2")
					passes(90 * time.Second)
					require.Empty(t, f.told().ended)
					_, complete := f.Complete()
					require.False(t, complete)
					passes(time.Minute)
					require.ErrorContains(t, f.told().ended[0].Err, name)
				},
			)
		})
	}
}
