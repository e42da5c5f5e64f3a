package external

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Prune removes what is recorded of parts that are not wanted, and of wanted parts what is no
// longer among their things, in the reverse order. For each part that has such things it calls
// free first. Its error says that something may still use them: they stay, and the error is Left
// of the part. A part that fails holds up only the parts that it needs. The status must be written
// afterwards, with [Pass.Merge]. In a pass that is wrong nothing is removed: the error of
// [Pass.Validate] is Left of each part with such things.
func (p *Pass) Prune(ctx context.Context, free func(ctx context.Context) error) {
	if p.refuse(func(t *Part, wrong error) {
		if len(t.obsolete(p.Recorded)) > 0 {
			t.Left = wrong
		}
	}) {
		return
	}
	for _, t := range slices.Backward(p.Parts) {
		obsolete := t.obsolete(p.Recorded)
		if len(obsolete) == 0 {
			continue
		}
		if t.Left = free(ctx); t.Left == nil {
			p.drop(obsolete, p.remove(ctx, t, obsolete, nil))
		}
	}
}

// Teardown removes everything that is recorded, in the reverse order, and reports whether all is
// gone. A part that fails holds up only the parts that it needs. The errors are joined, and each
// names its part. A queue tries again after any of them, since no event says that a service has
// changed. A part that waits is no error: Left of the part says what for. What is recorded
// and of no part is an error. The status must be written afterwards, with [Pass.Merge]. In a pass that
// is wrong nothing is removed, and the error is that of [Pass.Validate].
func (p *Pass) Teardown(ctx context.Context) (gone bool, err error) {
	if err := p.Validate(); err != nil {
		return false, err
	}
	var steps reconcile.Steps
	var kinds []string
	for _, t := range p.Parts {
		steps = append(steps, reconcile.Step{Name: t.Name, Undo: func(ctx context.Context) error { return p.undo(ctx, t) }})
		kinds = append(kinds, t.Kinds...)
	}
	err = steps.Undo(ctx)
	for _, e := range p.Recorded {
		if !slices.Contains(kinds, e.Kind) {
			err = errors.Join(err, fmt.Errorf("%s %s: is recorded, and no part has its kind", e.Kind, e.ID))
		}
	}
	return err == nil && len(p.Recorded) == 0, err
}

// lookAgainError is an error for which a queue does not park the object, also where it is marked with
// [reconcile.Terminal].
type lookAgainError struct{ error }

var errLookAgain = errors.New("no event says that a service has changed")

func (e lookAgainError) Unwrap() []error { return []error{e.error, errLookAgain} }

// undo removes one part.
func (p *Pass) undo(ctx context.Context, t *Part) error {
	if recorded := t.recorded(p.Recorded); len(recorded) > 0 {
		if p.remove(ctx, t, recorded, t.Early); errors.Is(t.Left, ErrWaits) {
			return nil
		}
		if t.Left != nil {
			return lookAgainError{t.Left}
		}
		p.drop(recorded, nil)
	}
	if t.Removed == nil {
		return nil
	}
	return t.Removed(ctx)
}

// remove deletes things of a part, in the reverse order, sets Left, and returns the things that
// are not known to be gone.
func (p *Pass) remove(ctx context.Context, t *Part, things []Thing, early func(context.Context)) (left []Thing) {
	var users []string
	for _, o := range p.Parts {
		if slices.Contains(o.Needs, t.Name) && len(o.recorded(p.Recorded)) > 0 {
			users = append(users, o.Name)
		}
	}
	if left = things; len(users) > 0 {
		t.Left = waitsFor(users)
		return left
	}
	t.Left = t.Gate.try(ctx, func(ctx context.Context) error {
		var failed []error
		var rest []Thing
		for _, e := range slices.Backward(things) {
			if err := t.Delete(ctx, e); err != nil {
				rest, failed = append(rest, e), append(failed, err)
			}
		}
		left = rest
		return errors.Join(failed...)
	}, &t.Left, early)
	return left
}

// drop takes what was recorded, and is not left, out of the record.
func (p *Pass) drop(recorded, left []Thing) {
	p.Recorded = slices.DeleteFunc(slices.Clone(p.Recorded), func(e Thing) bool {
		gone := slices.Contains(recorded, e) && !slices.Contains(left, e)
		if gone {
			p.gone = append(p.gone, e)
		}
		return gone
	})
}
