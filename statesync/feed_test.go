package statesync_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// written is a log whose pages are written, for each position from which it is
// read: one after another, and the last again and again. What is not written
// fails.
type written struct {
	mu    sync.Mutex
	pages map[uint64][]statesync.Page
	moved chan struct{}
	reads []uint64
	// patient is a log that waits for missing rows.
	patient bool
}

func (w *written) Read(ctx context.Context, scope string, after uint64, _ int) (statesync.Page, error) {
	w.mu.Lock()
	for w.patient && len(w.pages[after]) == 0 {
		w.mu.Unlock()
		if err := w.Wait(ctx, scope, statesync.Position{}); err != nil {
			return statesync.Page{}, err
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	w.reads = append(w.reads, after)
	pages := w.pages[after]
	if len(pages) == 0 {
		return statesync.Page{}, errors.New("nothing is written")
	}
	if len(pages) > 1 {
		w.pages[after] = pages[1:]
	}
	return pages[0], nil
}

func (w *written) Wait(ctx context.Context, _ string, _ statesync.Position) error {
	w.mu.Lock()
	moved := w.moved
	w.mu.Unlock()
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *written) write(pages map[uint64][]statesync.Page) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages = pages
	if w.moved != nil {
		close(w.moved)
	}
	w.moved = make(chan struct{})
}

// page is a page of a log in epoch e.
func page(head, floor uint64, more bool, items ...statesync.Item) []statesync.Page {
	return []statesync.Page{{Position: statesync.Position{Epoch: "e", Head: head, Floor: floor}, More: more, Items: items}}
}

// telling runs test in virtual time with a server of a log that is written.
func telling(
	t *testing.T,
	pages map[uint64][]statesync.Page,
	test func(t *testing.T, ctx context.Context, server *statesync.Server, log *written),
) {
	t.Helper()
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, counts *counted) { //nolint:thelper // a test
		log := &written{}
		log.write(pages)
		counts.Log = log
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		test(t, ctx, server, log)
	})
}

// after returns what has come since.
func after(frames <-chan statesync.Frame) (came []statesync.Frame) {
	synctest.Wait()
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				return came
			}
			came = append(came, f)
		default:
			return came
		}
	}
}

func TestALogThatCannotBeIsNotBelieved(t *testing.T) {
	for why, pages := range map[string]map[uint64][]statesync.Page{
		"version 3 of things/c after 0, with head 2": {0: page(2, 0, false, c3)},
		"version 1 of things/a after 2, with head 3": {0: page(3, 0, false, b2, a1, c3)},
		"version 2 of things/b after 2, with head 3": {0: page(3, 0, false, b2, b2, c3)},
		"version 1 of things/a after 2":              {0: page(3, 0, true, a1, b2), 2: page(3, 0, false, a1, c3)},
		"a page without items has more":              {0: page(3, 0, true)},
		"head is 3, but nothing follows version 2":   {0: page(3, 0, false, a1, b2)},
		"head is 3, but nothing follows version 0":   {0: page(3, 2, false)},
	} {
		t.Run(why, func(t *testing.T) {
			telling(t, pages, func(t *testing.T, ctx context.Context, server *statesync.Server, _ *written) { //nolint:thelper // a test
				frames, end := open(ctx, server, eu)
				var ended *statesync.EndError
				require.ErrorAs(t, <-end, &ended)
				require.Equal(t, statesync.EndOfLog, ended.Reason)
				require.ErrorContains(t, ended, why)
				for _, f := range after(frames) {
					require.NotEqual(t, statesync.FrameSynced, f.Type)
				}
			})
		})
	}
}

func TestAHeadThatFallsIsNotBelieved(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(3, 0, false, a1, b2, c3)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
			_, end := open(ctx, server, eu)
			synctest.Wait()
			log.write(map[uint64][]statesync.Page{3: page(2, 0, false)})
			require.ErrorContains(t, <-end, "head fell from 3 to 2 in one epoch")
		},
	)
}

// A log is right about a head without an item if that is a tombstone which is
// forgotten.
func TestAHeadThatIsForgottenIsBelieved(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(4, 4, false, a1, b2)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, _ *written) { //nolint:thelper // a test
			frames, _ := open(ctx, server, eu)
			require.Equal(t, []string{"header 0", "items 4", "synced 4"}, told(after(frames)))
		},
	)
}

// Tombstones that are forgotten while the log is read, below where it was read
// to but not when that was read, are missing: it is read again.
func TestAFloorThatRisesWhileTheLogIsReadBeginsAnew(t *testing.T) {
	telling(t, map[uint64][]statesync.Page{
		// What is left of d@3 and a@1 is forgotten with the floor at 4.
		0: append(page(4, 0, true, a1, b2), page(5, 4, false, b2, is("e", 5))...),
		2: page(5, 4, false, is("e", 5)),
	}, func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
		// Whether this one gets the state before the second read is a matter of chance.
		_, _ = open(ctx, server, eu)
		synctest.Wait()
		log.mu.Lock()
		require.Equal(t, []uint64{0, 2, 0}, log.reads)
		log.mu.Unlock()
		frames, _ := open(ctx, server, eu)
		came := after(frames)
		require.Equal(t, []string{"header 0", "items 5", "synced 5"}, told(came))
		require.Equal(t, 2, came[2].Count)
	})
}

func TestALogThatWasDownIsReadOn(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(1, 0, false, a1)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
			_, end := open(ctx, server, eu)
			synctest.Wait()
			log.write(nil)
			require.ErrorContains(t, <-end, "nothing is written")
			_, end = open(ctx, server, eu)
			require.ErrorContains(t, <-end, "nothing is written", "the state may be old")
			log.write(map[uint64][]statesync.Page{1: page(2, 0, false, b2)})
			// Long enough to read again, too short to forget the scope.
			time.Sleep(30 * time.Second)
			frames, _ := open(ctx, server, eu)
			require.Equal(t, []string{"header 0", "items 2", "synced 2"}, told(after(frames)))
		},
	)
}

// told formats frames for tests.
func told(frames []statesync.Frame) (list []string) {
	for _, f := range frames {
		text := fmt.Sprintf("%s %d", f.Type, f.Version)
		if f.More {
			text += " more"
		}
		list = append(list, text)
	}
	return list
}

// A reader that comes from a server which knows more gets nothing until this
// one has caught up, and then at once what it must have.
func TestAReaderThatKnowsMoreWaitsForTheServer(t *testing.T) {
	telling(t, map[uint64][]statesync.Page{
		0: page(2, 0, false, a1, b2),
		3: page(3, 0, false),
	}, func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
		frames, _ := open(ctx, server, statesync.Watch{Scope: "eu", Cursor: statesync.Cursor{Epoch: "e", Version: 3}})
		require.Equal(t, []string{"header 3"}, told(after(frames)))
		time.Sleep(7 * time.Second)
		came := after(frames)
		require.Equal(t, []string{"bookmark 3 more"}, told(came), "alive, but no proof")
		require.Zero(t, came[0].Digest)
		log.write(map[uint64][]statesync.Page{2: page(3, 0, false, c3)})
		came = after(frames)
		require.Equal(t, []string{"bookmark 3"}, told(came))
		digest, count := statesync.DigestOf([]statesync.Item{a1, b2, c3})
		require.Equal(t, digest, came[0].Digest)
		require.Equal(t, count, came[0].Count)
	})
}

// What is ahead of the log itself is from another history.
func TestAReaderThatKnowsMoreThanTheLogMustList(t *testing.T) {
	w := statesync.Watch{Scope: "eu", Cursor: statesync.Cursor{Epoch: "e", Version: 3}}
	telling(
		t,
		map[uint64][]statesync.Page{0: page(2, 0, false, a1, b2), 3: page(2, 0, false)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, _ *written) { //nolint:thelper // a test
			_, end := open(ctx, server, w)
			var resync *statesync.ResyncError
			require.ErrorAs(t, <-end, &resync)
			require.Equal(t, statesync.FromTheFuture, resync.Reason)
		},
	)
	// If the floor cannot be read, the reason is unknown.
	telling(
		t,
		map[uint64][]statesync.Page{0: page(2, 0, false, a1, b2)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, _ *written) { //nolint:thelper // a test
			_, end := open(ctx, server, w)
			err := <-end
			require.NotErrorIs(t, err, statesync.ErrResync)
			var ended *statesync.EndError
			require.ErrorAs(t, err, &ended)
			require.Equal(t, statesync.EndOfLog, ended.Reason)
		},
	)
}

// A part of the log is streamed while the rest is read, and is no proof.
func TestAListWaitsForTheWholeLog(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(3, 0, true, a1, b2)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
			// The log fails at version 2 until it is written what follows.
			frames, end := open(ctx, server, eu)
			require.ErrorContains(t, <-end, "nothing is written")
			for _, f := range after(frames) {
				require.NotEqual(t, statesync.FrameSynced, f.Type)
			}
			log.write(map[uint64][]statesync.Page{2: page(3, 0, false, c3)})
			time.Sleep(30 * time.Second)
			frames, _ = open(ctx, server, eu)
			require.Equal(t, []string{"header 0", "items 3", "synced 3"}, told(after(frames)))
		},
	)
}

// Frames are cut at the limit of items, and of bytes too. Only one at a
// consistent point says what the reader must have.
func TestAFrameIsNotTooLarge(t *testing.T) {
	large := func(id string, size int) statesync.Change {
		c := put(id, 1)
		c.Value = []byte(`"` + strings.Repeat("x", size) + `"`)
		return c
	}
	server := &statesync.Server{Batch: 3}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		frames, _ := open(ctx, server, eu)
		require.Equal(t, []string{"header 0", "synced 0"}, told(after(frames)))
		require.NoError(t, log.Commit(put("a", 1), put("b", 1), put("c", 1), put("d", 1)))
		came := after(frames)
		require.Equal(t, []string{"changes 3 more", "changes 4"}, told(came))
		require.Zero(t, came[0].Digest)
		require.Zero(t, came[0].Count)
		require.Equal(t, 4, came[1].Count)
		require.NoError(t, log.Commit(large("e", 50<<10), large("f", 50<<10), large("g", 500<<10), put("h", 1)))
		require.Equal(t, []string{"changes 6 more", "changes 7 more", "changes 8"}, told(after(frames)))
	})
}

func TestABusyStreamNeedsNoHeartbeat(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		frames, _ := open(ctx, server, eu)
		synctest.Wait()
		after(frames)
		for n := range 20 {
			time.Sleep(4 * time.Second)
			require.NoError(t, log.Commit(put("a", n)))
			require.Equal(t, []string{fmt.Sprintf("changes %d", n+1)}, told(after(frames)))
		}
		time.Sleep(14 * time.Second)
		require.Equal(t, []string{"bookmark 20", "bookmark 20"}, told(after(frames)))
	})
}
