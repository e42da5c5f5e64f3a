package statesynctest

import (
	"context"
	"errors"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// doubts makes a stream wrong at version 4 or 5, and expects a list.
func (s *stand) doubts(ctx context.Context, wrong act, changes ...statesync.Change) error {
	s.door.next(wrong)
	if err := s.begun(ctx); err != nil {
		return err
	}
	requests := s.door.count()
	for _, change := range changes {
		if err := s.commit(ctx, change); err != nil {
			return err
		}
	}
	if err := s.asks(ctx, requests+1, true); err != nil {
		return err
	}
	_, err := s.reaches(ctx)
	return err
}

// readsLostFrame loses a frame that changes neither count nor digest: a tombstone of a key
// that was not there.
func readsLostFrame(ctx context.Context, s *stand) error {
	lost := make(chan struct{}, 1)
	s.door.next(bends(func(frame map[string]any, line []byte) []byte {
		if frame["type"] == "changes" && frame["version"] == 4.0 {
			lost <- struct{}{}
			return nil
		}
		return line
	}))
	if err := s.begun(ctx); err != nil {
		return err
	}
	requests := s.door.count()
	if err := s.commit(ctx, deletes("9")); err != nil {
		return err
	}
	// The next frame must not carry both.
	if err := s.served(ctx); err != nil {
		return err
	}
	if err := s.commit(ctx, puts("3", 1)); err != nil {
		return err
	}
	if err := s.asks(ctx, requests+1, true); err != nil {
		return err
	}
	_, err := s.reaches(ctx)
	if err == nil && len(lost) == 0 {
		err = errors.New("the test lost no frame")
	}
	return err
}

// served waits until the newest mark of the log was served.
func (s *stand) served(ctx context.Context) error {
	page, err := s.all(ctx)
	if err != nil {
		return err
	}
	return again(ctx, "the door serving the newest frame", func() (bool, error) {
		s.door.mu.Lock()
		defer s.door.mu.Unlock()
		return s.door.mark == page.Mark.String(), nil
	})
}

func readsLostItem(ctx context.Context, s *stand) error {
	return s.doubts(ctx, bends(func(frame map[string]any, line []byte) []byte {
		if items, ok := frame["items"].([]any); ok && frame["type"] == "changes" && frame["version"] == 4.0 {
			frame["items"] = items[:len(items)-1]
			return encoded(frame)
		}
		return line
	}), puts("1", 5)) // the count stays right
}

func readsWrongCount(ctx context.Context, s *stand) error {
	return s.doubts(ctx, bends(func(frame map[string]any, line []byte) []byte {
		if count, ok := frame["count"].(float64); ok && frame["version"] == 4.0 {
			frame["count"] = count + 1
			return encoded(frame)
		}
		return line
	}), puts("3", 1))
}

func readsWrongList(ctx context.Context, s *stand) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	requests := s.door.count()
	s.door.next(fails(http.StatusGone, "resync_required", "other-history"), bends(func(frame map[string]any, line []byte) []byte {
		switch items, _ := frame["items"].([]any); {
		case len(items) > 1: // one is lost
			frame["items"] = items[:1]
			return encoded(frame)
		default:
			return line
		}
	}))
	s.web.CloseClientConnections()
	for n, list := range []bool{false, true, true} {
		if err := s.asks(ctx, requests+1+n, list); err != nil {
			return err
		}
	}
	_, err := s.changes(ctx, puts("2", 2))
	return err
}
