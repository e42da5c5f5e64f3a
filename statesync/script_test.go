package statesync_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// step is one thing that a scripted stream does.
type step func(ctx context.Context, receive func(statesync.Frame) error) error

func says(f statesync.Frame) step {
	return func(_ context.Context, receive func(statesync.Frame) error) error { return receive(f) }
}

func ends(err error) step {
	return func(context.Context, func(statesync.Frame) error) error { return err }
}

func waits(d time.Duration) step {
	return func(ctx context.Context, _ func(statesync.Frame) error) error { return sleep(ctx, d) }
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// follower is a replica of streams that do what is written, one after another.
// What comes to the end of its script stays open, and so does every later one.
type follower struct {
	*statesync.Replica
	streams [][]step

	mu sync.Mutex
	account
}

// account is what came of a follower.
type account struct {
	// asked has what each stream was asked for, and began when.
	asked   []statesync.Watch
	began   []time.Time
	ended   []ended
	proven  []statesync.Snapshot
	handled []string
}

// ended is a stream that ended, and the replica's status then.
type ended struct {
	statesync.Stream
	at       time.Time
	status   statesync.Status
	complete bool
}

// script runs test in virtual time beside a replica of these streams. Its
// fields may be set by configure before it starts.
func script(t *testing.T, streams [][]step, configure func(*follower), test func(t *testing.T, f *follower)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &follower{streams: streams}
		f.Replica = &statesync.Replica{
			Source: f, Scope: "eu",
			Handle:   func(_ context.Context, i statesync.Item) error { f.note(i); return nil },
			OnSynced: func(s statesync.Snapshot) { f.mu.Lock(); f.proven = append(f.proven, s); f.mu.Unlock() },
			OnStream: func(s statesync.Stream) {
				_, complete := f.Complete()
				f.mu.Lock()
				defer f.mu.Unlock()
				f.ended = append(f.ended, ended{Stream: s, at: time.Now(), status: f.Status(), complete: complete})
			},
		}
		if configure != nil {
			configure(f)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Start(ctx) }()
		// Also after a test that failed: nothing may outlive it.
		defer func() {
			cancel()
			require.NoError(t, <-done)
		}()
		synctest.Wait()
		test(t, f)
	})
}

// Watch plays the next script.
func (f *follower) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	f.mu.Lock()
	n := len(f.asked)
	f.asked, f.began = append(f.asked, w), append(f.began, time.Now())
	f.mu.Unlock()
	if n < len(f.streams) {
		for _, do := range f.streams[n] {
			if err := do(ctx, receive); err != nil {
				return err
			}
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// told returns the record of f so far.
func (f *follower) told() account {
	f.mu.Lock()
	defer f.mu.Unlock()
	return account{slices.Clone(f.asked), slices.Clone(f.began), slices.Clone(f.ended), slices.Clone(f.proven), slices.Clone(f.handled)}
}

func (f *follower) note(i statesync.Item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handled = append(f.handled, named(i))
}

// names returns what is in s, in the order of versions.
func names(s statesync.Snapshot) (names []string) {
	items := slices.SortedFunc(maps.Values(s.Items), func(a, b statesync.Item) int { return cmp.Compare(a.Version, b.Version) })
	for _, i := range items {
		names = append(names, named(i))
	}
	return names
}

// slow is a handler that takes a while for the item of that name.
func (f *follower) slow(name string, while time.Duration) func(context.Context, statesync.Item) error {
	return func(ctx context.Context, i statesync.Item) error {
		if named(i) == name {
			if err := sleep(ctx, while); err != nil {
				return err
			}
		}
		f.note(i)
		return nil
	}
}

// passes lets time pass until everything waits.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// named is how scripts write an item: id@version, with a - before it if it is a
// tombstone.
func named(i statesync.Item) string {
	if i.Deleted {
		return fmt.Sprintf("-%s@%d", i.ID, i.Version)
	}
	return fmt.Sprintf("%s@%d", i.ID, i.Version)
}

func is(id string, version uint64) statesync.Item {
	return statesync.Item{
		Version: version,
		Key:     statesync.Key{Collection: "things", ID: id},
		Value:   json.RawMessage(strconv.FormatUint(version, 10)),
	}
}

func gone(id string, version uint64) statesync.Item {
	return statesync.Item{Version: version, Key: statesync.Key{Collection: "things", ID: id}, Deleted: true}
}

// epoch is a log as a server streams it.
type epoch string

func (e epoch) header(at, head uint64) statesync.Frame {
	return statesync.Frame{Type: statesync.FrameHeader, Epoch: string(e), After: at, Version: at, Head: head, Heartbeat: 5 * time.Second}
}

// items is a part of a list, up to the last of it.
func (e epoch) items(after uint64, items ...statesync.Item) statesync.Frame {
	f := e.part(after, items...)
	f.Type = statesync.FrameItems
	return f
}

// part are changes that end in the middle of a commit.
func (e epoch) part(after uint64, items ...statesync.Item) statesync.Frame {
	to := items[len(items)-1].Version
	return statesync.Frame{Type: statesync.FrameChanges, Epoch: string(e), After: after, Version: to, Head: to, More: true, Items: items}
}

// changes are whole commits, after which a reader has the items of have.
func (e epoch) changes(after uint64, have []statesync.Item, items ...statesync.Item) statesync.Frame {
	f := e.part(after, items...)
	f.More = false
	return proof(f, have)
}

func (e epoch) bookmark(after, to uint64, have ...statesync.Item) statesync.Frame {
	return proof(statesync.Frame{Type: statesync.FrameBookmark, Epoch: string(e), After: after, Version: to, Head: to}, have)
}

func (e epoch) synced(at uint64, have ...statesync.Item) statesync.Frame {
	return proof(statesync.Frame{Type: statesync.FrameSynced, Epoch: string(e), After: at, Version: at, Head: at}, have)
}

func proof(f statesync.Frame, have []statesync.Item) statesync.Frame {
	f.Digest, f.Count = statesync.DigestOf(have)
	return f
}

// list is a whole list of items, the last of which is the newest of the log.
func (e epoch) list(items ...statesync.Item) []step {
	head := items[len(items)-1].Version
	return []step{says(e.header(0, head)), says(e.items(0, items...)), says(e.synced(head, items...))}
}

// then is a script that goes on.
func then(begin []step, steps ...step) []step {
	return append(append([]step{}, begin...), steps...)
}
