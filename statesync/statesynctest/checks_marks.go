package statesynctest

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func lacksMarks(s Store) string {
	if _, ok := s.Log.(statesync.Marks); !ok {
		return "Marks"
	}
	return ""
}

func lacksMarksOrPrune(s Store) string {
	if what := lacksMarks(s); what != "" {
		return what
	}
	return lacksPrune(s)
}

// markOf returns the mark of the head, and an error if it is none.
func markOf(ctx context.Context, s Store, scope string) (statesync.Mark, error) {
	page, err := s.Log.Read(ctx, scope, 0, 1)
	switch {
	case err != nil:
		return statesync.Mark{}, err
	case page.Mark.Version != page.Head || page.Mark.ID == "":
		return statesync.Mark{}, fmt.Errorf("the mark of a head at %d is %q", page.Head, page.Mark)
	}
	return page.Mark, page.Mark.Validate()
}

// has returns an error unless the log has each of the marks, or none.
func has(ctx context.Context, s Store, want bool, marks ...statesync.Mark) error {
	log, ok := s.Log.(statesync.Marks)
	if !ok {
		return errors.New("the log leaves no marks")
	}
	for _, mark := range marks {
		if got, err := log.Marked(ctx, scope, mark); err != nil || got != want {
			return fmt.Errorf("the log has the mark %s: %t, not %t: %w", mark, got, want, orNone(err))
		}
	}
	return nil
}

func leavesMarks(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope, "other"); err != nil {
		return err
	}
	page, err := s.Log.Read(ctx, scope, 0, 1)
	if err != nil || page.Mark != (statesync.Mark{}) || page.Since != (statesync.Mark{}) {
		return fmt.Errorf("an empty scope has the mark %s: %w", page.Mark, orNone(err))
	}
	var marks []statesync.Mark
	for n := range 5 {
		if err := commit(ctx, s, put("a", n), put("b", n), putIn("other", "a", n), putIn("other", "b", n)); err != nil {
			return err
		}
		mark, err := markOf(ctx, s, scope)
		if err != nil {
			return err
		}
		marks = append(marks, mark)
	}
	if err := has(ctx, s, true, marks...); err != nil {
		return err
	}
	other, err := markOf(ctx, s, "other")
	if err != nil {
		return err
	}
	if other == marks[4] {
		return fmt.Errorf("two scopes have the mark %s", other)
	}
	last := marks[4]
	if err := has(
		ctx,
		s,
		false,
		other,
		statesync.Mark{Version: last.Version, ID: marks[3].ID},
		statesync.Mark{Version: last.Version - 1, ID: last.ID},
		statesync.Mark{Version: last.Version + 1, ID: last.ID},
		statesync.Mark{Version: last.Version, ID: "invented"},
	); err != nil {
		return err
	}
	for _, mark := range marks {
		page, err := s.Log.Read(ctx, scope, mark.Version, 1)
		if err != nil || page.Since != mark || page.Mark != last {
			return fmt.Errorf("a page after %d is since %q of %q, not %q of %q: %w", mark.Version, page.Since, page.Mark, mark, last, orNone(err))
		}
	}
	log, _ := s.Log.(statesync.Marks)
	if _, err := log.Marked(ctx, "never-made", last); !errors.Is(err, statesync.ErrUnknownScope) {
		return fmt.Errorf("a mark of a scope that was never made: %w, not ErrUnknownScope", orNone(err))
	}
	return nil
}

func prunesMarks(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	var marks []statesync.Mark
	for _, c := range []statesync.Change{put("a", 1), remove("a"), remove("b"), put("c", 1)} {
		if err := commit(ctx, s, c); err != nil {
			return err
		}
		mark, err := markOf(ctx, s, scope)
		if err != nil {
			return err
		}
		marks = append(marks, mark)
	}
	page, err := pruned(ctx, s)
	if err != nil {
		return err
	}
	for _, mark := range marks {
		if mark.Version >= page.Floor {
			err = errors.Join(err, has(ctx, s, true, mark))
		}
	}
	return err
}
