package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Start assigns versions to committed changes, as the only leader among all processes
// or as a standby, and wakes the callers of Wait in this process. It blocks until ctx
// ends, then returns nil. It returns an error only if no retry can succeed: tables or
// rights are missing, or the file is damaged. Any other failure is logged and retried.
//
// A Store is started once.
func (s *Store) Start(ctx context.Context) error {
	if err := s.ready(); err != nil {
		return err
	}
	if err := s.opened(ctx); errors.Is(err, ErrNoBusyTimeout) || errors.Is(err, errUnfit) {
		return err
	} else if err != nil && ctx.Err() == nil {
		s.logger().WarnContext(ctx, "options of the database cannot be read", slog.Any("error", err))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	var all sync.WaitGroup
	run := func(what string, do func(context.Context) error) {
		all.Go(func() {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				select {
				case failed <- fmt.Errorf("%s: %w", what, err):
				default: // the first is enough
				}
				cancel()
			}
		})
	}
	s.progress.moving(nothingSeen)
	r := &running{store: s, id: rand.Text(), notify: make(chan []string, 1), notifyWake: make(chan struct{}, 1), heads: map[string]uint64{}}
	run("sequencer", r.sequence)
	run("watcher", r.watch)
	run("pruning", r.keepPruned)
	if s.Dialect == PostgreSQL && s.Listen != nil {
		run("listener", r.listen)
		run("notifier", r.notifier)
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// running is a started store.
type running struct {
	store *Store
	// id identifies this process in its notifications.
	id string
	// notify holds the scopes for the next notification of other processes; nil stands
	// for all scopes.
	notify chan []string
	// notifyWake holds a Wake for the leader's process.
	notifyWake chan struct{}
	// acts is true while this process assigns versions: only then a Wake of another process
	// concerns it. A standby that took one for its own would send it on, also to itself.
	acts atomic.Bool
	// listens is true while notifications of other processes arrive.
	listens atomic.Bool
	// heads are the last heads that the sequencer of this process assigned. A batch
	// that begins below them shows a loss.
	heads map[string]uint64
}

// supervise calls do until ctx ends or its error is permanent. The pauses grow, and
// start over after do has run well for a while.
func (r *running) supervise(ctx context.Context, what string, do func(context.Context) error) error {
	var pause backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := do(ctx)
		if ctx.Err() == nil && permanent(err) {
			return err
		}
		if ctx.Err() == nil {
			r.store.logger().WarnContext(ctx, "database operation failed, retrying", slog.String("what", what), slog.Any("error", err))
		}
		if time.Since(began) > time.Minute {
			pause = backoff{}
		}
		pause.wait(ctx)
	}
	return nil
}
