package statesynctest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

const bentScope = "eu"

// bent is a source whose frames are bent.
type bent struct {
	statesync.Source
	bend func(w statesync.Watch, f *statesync.Frame) (lost bool)
	ask  func(w *statesync.Watch)
	end  func(err error) error
}

func (b bent) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	asked := w
	if b.ask != nil {
		b.ask(&asked)
	}
	err := b.Source.Watch(ctx, asked, func(f statesync.Frame) error {
		if b.bend != nil && b.bend(w, &f) {
			return nil
		}
		return receive(f)
	})
	if b.end != nil {
		return b.end(err)
	}
	return err
}

// TestRunServerFindsWhatIsWrongWithAServer bends the frames of a server that is
// right: for each bend some check must fail, and none without.
func TestRunServerFindsWhatIsWrongWithAServer(t *testing.T) {
	drop := func(kind statesync.FrameType) func(statesync.Watch, *statesync.Frame) bool {
		return func(_ statesync.Watch, f *statesync.Frame) bool { return f.Type == kind }
	}
	bends := map[string]bent{
		"nothing":        {},
		"header lost":    {bend: drop(statesync.FrameHeader)},
		"synced lost":    {bend: drop(statesync.FrameSynced)},
		"bookmarks lost": {bend: drop(statesync.FrameBookmark)},
		"changes lost":   {bend: drop(statesync.FrameChanges)},
		"an item skipped": {bend: func(_ statesync.Watch, f *statesync.Frame) bool {
			f.Items = f.Items[:max(0, len(f.Items)-1)]
			return false
		}},
		"items reversed": {bend: func(_ statesync.Watch, f *statesync.Frame) bool {
			f.Items = slices.Clone(f.Items)
			slices.Reverse(f.Items)
			return false
		}},
		"tombstones lost": {bend: func(_ statesync.Watch, f *statesync.Frame) bool {
			f.Items = slices.DeleteFunc(slices.Clone(f.Items), func(i statesync.Item) bool { return i.Deleted })
			return false
		}},
		"every frame consistent": {bend: func(_ statesync.Watch, f *statesync.Frame) bool { f.More = false; return false }},
		"another epoch in each":  {bend: func(_ statesync.Watch, f *statesync.Frame) bool { f.Epoch += string(f.Type); return false }},
		"all collections":        {ask: func(w *statesync.Watch) { w.Collections = nil }},
		"lists when resumed": {ask: func(w *statesync.Watch) {
			if w.Cursor.Version > 0 {
				w.Cursor = statesync.Cursor{}
			}
		}},
		"an unknown scope is empty": {end: func(err error) error {
			if errors.Is(err, statesync.ErrUnknownScope) {
				return errors.New("nothing there")
			}
			return err
		}},
		"no reason at the end": {end: func(error) error { return nil }},
		"no resync": {end: func(err error) error {
			if errors.Is(err, statesync.ErrResync) {
				return errors.New("something is wrong")
			}
			return err
		}},
	}
	var found atomic.Int64
	t.Cleanup(func() { fmt.Printf("figure server_planted_found %d/%d\n", found.Load(), len(bends)-1) })
	for name, b := range bends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := statesynctest.FirstFailure(t.Context(), func() statesynctest.Server { return bentServer(t, b) })
			if name == "nothing" {
				require.Empty(t, failed)
			} else {
				require.NotEmpty(t, failed, "no check finds it")
				found.Add(1)
			}
		})
	}
}

// bentServer serves a new log.
func bentServer(t *testing.T, b bent) statesynctest.Server {
	t.Helper()
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope(bentScope))
	server := &statesync.Server{Log: log, Heartbeat: 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	b.Source = server
	patience := 300 * time.Millisecond
	if b.bend == nil && b.ask == nil && b.end == nil {
		// What is right may take its time.
		patience = statesynctest.Limit
	}
	head := func(ctx context.Context) (statesync.Page, error) { return log.Read(ctx, bentScope, 0, 1<<20) }
	return statesynctest.Impatient(patience, statesynctest.Server{
		Source: b, Scope: bentScope,
		Commit: func(_ context.Context, changes ...statesync.Change) error { return log.Commit(changes...) },
		Forget: func(ctx context.Context) error {
			page, err := head(ctx)
			return errors.Join(err, log.Forget(bentScope, page.Head))
		},
		Restore: func(ctx context.Context) error {
			page, err := head(ctx)
			return errors.Join(err, log.Restore(bentScope, page.Items))
		},
	})
}
