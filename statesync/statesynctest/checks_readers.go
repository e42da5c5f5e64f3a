package statesynctest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func reports(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	for n, step := range []struct {
		session, sequence uint64
		stored            bool
	}{
		{5, 10, true}, {5, 10, false}, {5, 9, false}, {4, 99, false}, {5, 11, true}, {6, 1, true}, {5, 12, false}, {6, 1, false}, {6, 2, true},
	} {
		r := statesync.Report{Reader: "r", Session: step.session, Sequence: step.sequence, Body: []byte(strconv.Itoa(n))}
		before, err := s.Readers.Readers(ctx, scope)
		if err != nil {
			return err
		}
		stored, err := s.Readers.Report(ctx, scope, r)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		after, err := s.Readers.Readers(ctx, scope)
		switch {
		case err != nil:
			return err
		case stored != step.stored:
			return fmt.Errorf("report %d.%d: stored=%t", step.session, step.sequence, stored)
		case len(after) != 1:
			return fmt.Errorf("%d readers of one that has reported", len(after))
		case stored && (after[0].Session != step.session || after[0].Sequence != step.sequence || string(after[0].Body) != string(r.Body)):
			return fmt.Errorf("report %d.%d is stored as %+v", step.session, step.sequence, after[0])
		case !stored && !sameReader(before[0], after[0]):
			return fmt.Errorf(
				"report %d.%d is older and has changed the stored one from %+v to %+v",
				step.session,
				step.sequence,
				before[0],
				after[0],
			)
		}
	}
	return nil
}

func sameReader(a, b statesync.Reader) bool {
	return a.Reader == b.Reader && a.Session == b.Session && a.Sequence == b.Sequence && a.Applied == b.Applied &&
		string(a.Body) == string(b.Body) &&
		a.At.Equal(b.At)
}

func refusesReports(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	good := statesync.Report{Reader: "r", Session: 1}
	for _, bad := range []struct {
		field string
		edit  func(*statesync.Report)
	}{
		{"reader", func(r *statesync.Report) { r.Reader = "" }},
		{"session", func(r *statesync.Report) { r.Session = 0 }},
		{"epoch", func(r *statesync.Report) { r.Applied.Epoch = strings.Repeat("e", statesync.MaxName+1) }},
		{"body", func(r *statesync.Report) { r.Body = []byte("{") }},
	} {
		r := good
		bad.edit(&r)
		_, err := s.Readers.Report(ctx, scope, r)
		if !errors.Is(err, statesync.ErrInvalid) || !strings.Contains(err.Error(), bad.field) {
			return fmt.Errorf("a report with a bad %s: %w, not an ErrInvalid that names it", bad.field, orNone(err))
		}
	}
	if _, err := s.Readers.Report(ctx, "never-made", good); !errors.Is(err, statesync.ErrUnknownScope) {
		return fmt.Errorf("a report of a scope that was never made: %w, not ErrUnknownScope", orNone(err))
	}
	if _, err := s.Readers.Readers(ctx, "never-made"); !errors.Is(err, statesync.ErrUnknownScope) {
		return fmt.Errorf("the readers of a scope that was never made: %w, not ErrUnknownScope", orNone(err))
	}
	list, err := s.Readers.Readers(ctx, scope)
	if len(list) > 0 {
		err = errors.Join(err, fmt.Errorf("refused reports are stored: %v", list))
	}
	return err
}

func listsReaders(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope, "other"); err != nil {
		return err
	}
	// More than the clocks of two machines may differ.
	const skew = time.Minute
	began := time.Now().Add(-skew)
	names := []string{"b", "a", "B", "a-2", "é"}
	for n, name := range names {
		r := statesync.Report{Reader: name, Session: 1, Sequence: uint64(n), Applied: statesync.Cursor{Epoch: "e" + name, Version: uint64(n)}}
		if stored, err := s.Readers.Report(ctx, scope, r); err != nil || !stored {
			return fmt.Errorf("report of %s: stored=%t: %w", name, stored, orNone(err))
		}
	}
	if _, err := s.Readers.Report(ctx, "other", statesync.Report{Reader: "elsewhere", Session: 1}); err != nil {
		return err
	}
	got, err := s.Readers.Readers(ctx, scope)
	if err != nil {
		return err
	}
	order := slices.Sorted(slices.Values(names))
	if len(got) != len(order) {
		return fmt.Errorf("%d readers of %d", len(got), len(order))
	}
	for i, r := range got {
		n := uint64(slices.Index(names, order[i]))
		want := statesync.Reader{
			Report: statesync.Report{Reader: order[i], Session: 1, Sequence: n, Applied: statesync.Cursor{Epoch: "e" + order[i], Version: n}},
			At:     r.At,
		}
		if !sameReader(r, want) || r.Body != nil {
			return fmt.Errorf("reader %d is %+v, not %+v", i, r, want)
		}
		if r.At.Before(began) || r.At.After(time.Now().Add(skew)) {
			return fmt.Errorf("a report that has just come in is of %s", r.At)
		}
	}
	return nil
}

// pruned prunes, and returns everything that is left.
func pruned(ctx context.Context, s Store) (statesync.Page, error) {
	if err := s.Prune(ctx, scope); err != nil {
		return statesync.Page{}, fmt.Errorf("prune: %w", err)
	}
	return all(ctx, s, scope, 0)
}

func prunes(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	a, b, c, last := remove("a"), remove("b"), remove("c"), put("last", 1)
	if err := commit(ctx, s, a, b, c, last); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 0)
	if err != nil {
		return err
	}
	epoch := page.Epoch
	applied := func(reader string, sequence uint64, at statesync.Cursor) error {
		_, err := s.Readers.Report(ctx, scope, statesync.Report{Reader: reader, Session: 1, Sequence: sequence, Applied: at})
		return err
	}
	err = errors.Join(
		applied("slow", 1, statesync.Cursor{Epoch: epoch}),
		applied("fast", 1, statesync.Cursor{Epoch: epoch, Version: 4}),
		// It must start again in any case.
		applied("of another epoch", 1, statesync.Cursor{Epoch: "other", Version: 1}),
	)
	if err != nil {
		return err
	}
	page, err = pruned(ctx, s)
	if err := errors.Join(err, holds(page, item(1, a), item(2, b), item(3, c), item(4, last))); err != nil {
		return fmt.Errorf("a reader has applied nothing yet: %w", err)
	}
	if page.Floor != 0 {
		return fmt.Errorf("the floor is %d and nothing was pruned", page.Floor)
	}
	if err := applied("slow", 2, statesync.Cursor{Epoch: epoch, Version: 2}); err != nil {
		return err
	}
	page, err = pruned(ctx, s)
	if err := errors.Join(err, holds(page, item(3, c), item(4, last))); err != nil {
		return fmt.Errorf("every reader has applied version 2: %w", err)
	}
	return resumes(page, 2, 2)
}

// resumes checks that a log which has pruned tombstones up to cut refuses readers
// below, and that a reader at from may resume.
func resumes(page statesync.Page, cut, from uint64) error {
	below := page.Resumable(statesync.Cursor{Epoch: page.Epoch, Version: cut - 1})
	if !errors.Is(below, statesync.ErrResync) {
		return fmt.Errorf("tombstones up to %d are forgotten, and with floor %d a reader at %d may resume", cut, page.Floor, cut-1)
	}
	return page.Resumable(statesync.Cursor{Epoch: page.Epoch, Version: from})
}

func prunesDeadOnly(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	alive, dead, again, last := put("alive", 1), remove("dead"), put("again", 1), remove("last")
	if err := errors.Join(commit(ctx, s, alive, dead, remove("again"), again), commit(ctx, s, last)); err != nil {
		return err
	}
	// The store may or may not prune the newest tombstone of all; the head and every
	// live item must stay.
	page, err := pruned(ctx, s)
	if err != nil {
		return err
	}
	page.Items = slices.DeleteFunc(page.Items, func(i statesync.Item) bool { return equal(i, item(5, last)) })
	if err := errors.Join(holds(page, item(1, alive), item(4, again)), stays(ctx, s, scope, 5), resumes(page, 2, page.Floor)); err != nil {
		return err
	}
	next := put("next", 1)
	if err := commit(ctx, s, next); err != nil {
		return fmt.Errorf("after pruning: %w", err)
	}
	page, err = all(ctx, s, scope, 5)
	return errors.Join(err, holds(page, item(6, next)))
}

func epochs(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	a, b, c := put("a", 1), remove("b"), put("c", 1)
	if err := commit(ctx, s, a, b); err != nil {
		return err
	}
	before, err := all(ctx, s, scope, 0)
	if err != nil {
		return err
	}
	seen := map[string]bool{before.Epoch: true}
	for n := range 3 {
		if err := s.NewEpoch(ctx, scope); err != nil {
			return fmt.Errorf("new epoch: %w", err)
		}
		page, err := all(ctx, s, scope, 0)
		if err := errors.Join(err, holds(page, item(1, a), item(2, b))); err != nil {
			return err
		}
		if seen[page.Epoch] || page.Epoch == "" {
			return fmt.Errorf("epoch %q after %d others is not a new one", page.Epoch, n+1)
		}
		seen[page.Epoch] = true
		if err := page.Resumable(statesync.Cursor{Epoch: before.Epoch, Version: 2}); !errors.Is(err, statesync.ErrResync) {
			return errors.New("a reader of the epoch before may resume")
		}
	}
	if err := commit(ctx, s, c); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 2)
	return errors.Join(err, holds(page, item(3, c)))
}
