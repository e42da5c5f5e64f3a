package statesynctest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func (s Server) resume(tape *Tape) statesync.Watch {
	return statesync.Watch{Scope: s.Scope, Cursor: tape.Cursor}
}

func checkResume(ctx context.Context, s Server) error {
	if err := s.many(ctx, "a", 10, 1); err != nil {
		return err
	}
	tape, err := s.synced(ctx, 10)
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, s.item("a", 3, 2), s.item("a", 4, 2), s.item("a", 3, 3)); err != nil {
		return err
	}
	again, sent := tape.Resume(), map[string]bool{}
	err = s.read(ctx, s.resume(tape), again, func(f statesync.Frame) (bool, error) {
		for _, i := range f.Items {
			sent[i.ID] = true
		}
		return again.Consistent && again.Cursor.Version >= 13, nil
	})
	if err == nil && (len(sent) != 2 || string(again.Items[statesync.Key{Collection: "a", ID: "3"}].Value) != "3") {
		err = fmt.Errorf("resumable: %v were sent after a change of 3 and 4", sent)
	}
	return err
}

func checkCollections(ctx context.Context, s Server) error {
	if err := s.Commit(ctx, s.item("a", 1, 1), s.item("b", 1, 1)); err != nil {
		return err
	}
	tape, changed := &Tape{}, false
	w := s.watch()
	w.Collections = []string{"a"}
	err := s.read(ctx, w, tape, func(f statesync.Frame) (bool, error) {
		for _, i := range f.Items {
			if i.Collection != "a" {
				return false, fmt.Errorf("collections: %s was sent to a reader of a", i.Key)
			}
		}
		if tape.Synced && !changed {
			changed = true
			return false, s.Commit(ctx, s.item("b", 1, 2), s.item("b", 2, 2))
		}
		return tape.Consistent && tape.Cursor.Version >= 4, nil
	})
	return errors.Join(err, tape.holds(map[string]string{"a/1": "1"}))
}

// checkHeartbeat waits for two frames without a change. It takes as long as the
// heartbeat of the server.
func checkHeartbeat(ctx context.Context, s Server) error {
	tape, bookmarks := &Tape{}, 0
	return s.read(ctx, s.watch(), tape, func(f statesync.Frame) (bool, error) {
		if f.Type == statesync.FrameBookmark {
			bookmarks++
		}
		return bookmarks == 2, nil
	})
}

func checkTombstone(ctx context.Context, s Server) error {
	if err := s.Commit(ctx, s.item("a", 1, 1), s.item("a", 2, 1)); err != nil {
		return err
	}
	tape, err := s.synced(ctx, 2)
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, s.deletion("a", 1)); err != nil {
		return err
	}
	again := tape.Resume()
	err = s.read(ctx, s.resume(tape), again, until(again, 3))
	if err == nil && !again.Items[statesync.Key{Collection: "a", ID: "1"}].Deleted {
		err = errors.New("tombstone: a reader that resumes does not get a deletion")
	}
	return errors.Join(err, again.holds(map[string]string{"a/2": "1"}))
}

// mustList returns nil if the stream of w ends with that resync reason before it sends
// any state.
func (s Server) mustList(ctx context.Context, w statesync.Watch, reason statesync.ResyncReason) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.patience, Limit))
	defer cancel()
	err := s.Source.Watch(ctx, w, func(f statesync.Frame) error {
		return fmt.Errorf("a stream from %s continues with a %s frame", w.Cursor, f.Type)
	})
	var resync *statesync.ResyncError
	if !errors.As(err, &resync) || resync.Reason != reason {
		return fmt.Errorf("%s: a cursor %s must end with a ResyncError, not with: %w", reason, w.Cursor, err)
	}
	return nil
}

func checkFloor(ctx context.Context, s Server) error {
	if s.Forget == nil {
		return fmt.Errorf("no Forget: %w", errors.ErrUnsupported)
	}
	if err := s.Commit(ctx, s.item("a", 1, 1), s.item("a", 2, 1)); err != nil {
		return err
	}
	tape, err := s.synced(ctx, 2)
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, s.deletion("a", 1)); err != nil {
		return err
	}
	if _, err := s.synced(ctx, 3); err != nil {
		return err
	}
	if err := s.Forget(ctx); err != nil {
		return err
	}
	// The server may be a moment behind the log.
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.patience, Limit))
	defer cancel()
	for {
		err := s.mustList(ctx, s.resume(tape), statesync.BelowFloor)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func checkFuture(ctx context.Context, s Server) error {
	if err := s.Commit(ctx, s.item("a", 1, 1)); err != nil {
		return err
	}
	tape, err := s.synced(ctx, 1)
	if err != nil {
		return err
	}
	w := s.resume(tape)
	w.Cursor.Version += 1000
	return s.mustList(ctx, w, statesync.FromTheFuture)
}

func checkEpoch(ctx context.Context, s Server) error {
	if err := s.Commit(ctx, s.item("a", 1, 1)); err != nil {
		return err
	}
	w := s.watch()
	w.Cursor = statesync.Cursor{Epoch: "another", Version: 1}
	return s.mustList(ctx, w, statesync.OtherEpoch)
}

func checkHistory(ctx context.Context, s Server) error {
	if err := s.Commit(ctx, s.item("a", 1, 1)); err != nil {
		return err
	}
	tape, err := s.synced(ctx, 1)
	if err != nil {
		return err
	}
	if tape.Cursor.Mark == (statesync.Mark{}) {
		return fmt.Errorf("no marks: %w", errors.ErrUnsupported)
	}
	if err := s.Commit(ctx, s.item("a", 2, 1)); err != nil {
		return err
	}
	again := tape.Resume()
	if err := s.read(ctx, s.resume(tape), again, until(again, 2)); err != nil {
		return fmt.Errorf("a cursor with its mark: %w", err)
	}
	w := s.resume(tape)
	w.Cursor.Mark.ID = "invented"
	if err := s.mustList(ctx, w, statesync.OtherHistory); err != nil {
		return err
	}
	w.Cursor.Mark = statesync.Mark{}
	again = tape.Resume()
	again.Cursor.Mark = statesync.Mark{}
	if err := s.read(ctx, w, again, until(again, 2)); err != nil {
		return fmt.Errorf("a cursor without a mark: %w", err)
	}
	return nil
}

func checkRestore(ctx context.Context, s Server) error {
	if s.Restore == nil {
		return fmt.Errorf("no Restore: %w", errors.ErrUnsupported)
	}
	if err := s.Commit(ctx, s.item("a", 1, 1)); err != nil {
		return err
	}
	tape := &Tape{}
	err := s.read(ctx, s.watch(), tape, func(f statesync.Frame) (bool, error) {
		if f.Type == statesync.FrameSynced {
			return false, s.Restore(ctx)
		}
		return false, nil
	})
	var resync *statesync.ResyncError
	if !errors.As(err, &resync) || resync.Reason != statesync.OtherEpoch {
		return fmt.Errorf("epoch: a stream over a restore must end with a ResyncError, not with: %w", err)
	}
	list, err := s.synced(ctx, 0)
	if err == nil && list.Cursor.Epoch == tape.Cursor.Epoch {
		err = errors.New("epoch: is the same after a restore")
	}
	return err
}

func checkUnknownScope(ctx context.Context, s Server) error {
	err := s.Source.Watch(ctx, statesync.Watch{Scope: s.Scope + "-unknown"}, func(f statesync.Frame) error {
		return fmt.Errorf("an unknown scope has a %s frame", f.Type)
	})
	if !errors.Is(err, statesync.ErrUnknownScope) {
		return fmt.Errorf("unknown scope: must be ErrUnknownScope, not: %w", err)
	}
	return nil
}

func checkInvalid(ctx context.Context, s Server) error {
	var errs []error
	for word, w := range map[string]statesync.Watch{
		"scope":       {},
		"collections": {Scope: s.Scope, Collections: []string{""}},
		"epoch":       {Scope: s.Scope, Cursor: statesync.Cursor{Version: 1}},
	} {
		err := s.Source.Watch(ctx, w, func(f statesync.Frame) error { return fmt.Errorf("%s: gets a %s frame", word, f.Type) })
		if !errors.Is(err, statesync.ErrInvalid) || !strings.Contains(err.Error(), word) {
			errs = append(errs, fmt.Errorf("%s: must be ErrInvalid and named, not: %w", word, err))
		}
	}
	return errors.Join(errs...)
}

func checkStop(ctx context.Context, s Server) error {
	tape := &Tape{}
	if err := s.read(ctx, s.watch(), tape, func(statesync.Frame) (bool, error) { return true, nil }); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	err := s.Source.Watch(ctx, s.watch(), func(f statesync.Frame) error {
		if f.Type == statesync.FrameSynced {
			cancel()
		}
		return nil
	})
	cancel()
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("stop: a stream whose ctx ended must return its error, not: %w", err)
	}
	return nil
}
