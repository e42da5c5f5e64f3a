package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Start numbers what is committed, as the only one of all processes or as the
// standby of another, and wakes those that Wait in this process. It blocks until
// ctx ends, then returns nil. It returns an error only for what no retry cures:
// tables that are not there, a right that is missing, a damaged file. Any other
// failure is logged and tried again.
//
// A Store is started once.
func (s *Store) Start(ctx context.Context) error {
	if err := s.ready(); err != nil {
		return err
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
	// id is that of this process in its notifications.
	id string
	// notify holds the scopes of which other processes are notified; nil stands
	// for all of them.
	notify chan []string
	// notifyWake holds a Wake for the process that sequences.
	notifyWake chan struct{}
	// heads are those that the sequencer of this process gave last. A batch that
	// begins below is one after a loss.
	heads map[string]uint64
}

// supervise calls do until ctx ends or do's error is permanent, with growing
// pauses unless do has run well for a while.
func (r *running) supervise(ctx context.Context, what string, do func(context.Context) error) error {
	var pause backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := do(ctx)
		if ctx.Err() == nil && permanent(err) {
			return err
		}
		if ctx.Err() == nil {
			r.store.logger().WarnContext(ctx, "database: trying again", slog.String("what", what), slog.Any("error", err))
		}
		if time.Since(began) > time.Minute {
			pause = backoff{}
		}
		pause.wait(ctx)
	}
	return nil
}
