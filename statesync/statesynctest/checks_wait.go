package statesynctest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// waits calls Wait until the position differs from at, since Wait may return
// early.
func waits(ctx context.Context, s Store, at statesync.Position) error {
	for {
		if err := s.Log.Wait(ctx, scope, at); err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		page, err := s.Log.Read(ctx, scope, 0, 1)
		if err != nil || page.Position != at {
			return err
		}
	}
}

func positioned(ctx context.Context, s Store) (statesync.Position, error) {
	if err := addScope(ctx, s, scope); err != nil {
		return statesync.Position{}, err
	}
	if err := commit(ctx, s, put("a", 1)); err != nil {
		return statesync.Position{}, err
	}
	page, err := s.Log.Read(ctx, scope, 0, 1)
	return page.Position, err
}

func waitEarly(ctx context.Context, s Store) error {
	at, err := positioned(ctx, s)
	if err != nil {
		return err
	}
	for _, old := range []statesync.Position{{}, {Epoch: at.Epoch}, {Epoch: "other", Head: at.Head}, {Epoch: at.Epoch, Head: at.Head, Floor: 7}} {
		if err := s.Log.Wait(ctx, scope, old); err != nil {
			return fmt.Errorf("wait at %+v of a log at %+v: %w", old, at, err)
		}
	}
	return nil
}

// whileWaiting calls do once Wait is blocked, as far as can be observed, and returns
// when Wait has returned.
func whileWaiting(ctx context.Context, s Store, waiting int, do func(at statesync.Position) error) error {
	at, err := positioned(ctx, s)
	if err != nil {
		return err
	}
	results := make(chan error, waiting)
	for range waiting {
		go func() { results <- waits(ctx, s, at) }()
	}
	// Long enough for Wait to block on most machines. On others the subtest is weaker,
	// not wrong.
	pause := time.NewTimer(20 * time.Millisecond)
	defer pause.Stop()
	<-pause.C
	err = do(at)
	for range waiting {
		err = errors.Join(err, <-results)
	}
	return err
}

func waitWakes(ctx context.Context, s Store) error {
	return whileWaiting(ctx, s, 1, func(statesync.Position) error { return commit(ctx, s, put("b", 1)) })
}

func waitMany(ctx context.Context, s Store) error {
	return whileWaiting(ctx, s, 200, func(statesync.Position) error { return commit(ctx, s, put("a", 2)) })
}

func waitFloor(ctx context.Context, s Store) error {
	return whileWaiting(ctx, s, 2, func(at statesync.Position) error {
		if err := commit(ctx, s, remove("a"), put("b", 1)); err != nil {
			return err
		}
		// If the wait has returned for the head, wait again for the floor.
		page, err := s.Log.Read(ctx, scope, 0, 1)
		if err != nil {
			return err
		}
		result := make(chan error, 1)
		go func() { result <- waits(ctx, s, page.Position) }()
		return errors.Join(s.Prune(ctx, scope), <-result)
	})
}

func waitEpoch(ctx context.Context, s Store) error {
	return whileWaiting(ctx, s, 2, func(statesync.Position) error { return s.NewEpoch(ctx, scope) })
}

func waitEnds(ctx context.Context, s Store) error {
	at, err := positioned(ctx, s)
	if err != nil {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Log.Wait(ended, scope, at); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("wait with a context that has ended: %w, not its error", orNone(err))
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	for n := 0; short.Err() == nil; n++ {
		if n == 20 {
			return errors.New("wait returns although nothing has changed, over and over")
		}
		err = s.Log.Wait(short, scope, at)
	}
	if !errors.Is(err, context.DeadlineExceeded) && err != nil {
		return fmt.Errorf("wait whose context ends: %w, not its error", err)
	}
	return nil
}
