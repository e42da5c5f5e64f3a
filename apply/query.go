package apply

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// Synced reports whether the kind is synced, and the last failure to list or watch it,
// nil after a success. Both can occur: the kind was synced and cannot be refreshed now.
// A kind that is not watched is an error.
func (l *Live) Synced(kind schema.GroupKind) (bool, error) {
	if err := l.prepare(); err != nil {
		return false, err
	}
	v := l.registry.view(kind)
	if v == nil {
		return false, fmt.Errorf("%s is not watched: no set states it, and it is not in Live.Kinds", kind)
	}
	known := v.Known()
	return known.State == view.Served, known.Err
}

// WaitSynced returns nil once every watched kind is synced. When ctx ends first, the
// error names the kinds that are not, each with its last failure.
func (l *Live) WaitSynced(ctx context.Context) error {
	if err := l.prepare(); err != nil {
		return err
	}
	for { // the ApplySet's parent may add kinds
		views := l.registry.views()
		i := slices.IndexFunc(views, func(v *view.Kind) bool { return !v.Ever() })
		if i < 0 {
			return nil
		}
		select {
		case <-views[i].Complete():
		case <-ctx.Done():
			return l.unsynced()
		}
	}
}

// Unseen names the watched kinds that may have objects that cannot be seen now, each
// with the reason, wrapping [ErrNotSynced]. It is nil when each kind is synced and its
// watch works, or the server does not serve it.
func (l *Live) Unseen() error {
	if err := l.prepare(); err != nil {
		return err
	}
	var errs []error
	for _, v := range l.registry.views() {
		if err := v.Known().Doubt(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %w", v.GroupKind(), ErrNotSynced, err))
		}
	}
	return errors.Join(errs...)
}

// unsynced names the kinds that are not synced, nil if all are.
func (l *Live) unsynced() error {
	var errs []error
	for _, v := range l.registry.views() {
		switch known := v.Known(); {
		case known.State == view.Served:
		case known.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w: %w", v.GroupKind(), ErrNotSynced, known.Err))
		default:
			errs = append(errs, fmt.Errorf("%s: %w", v.GroupKind(), ErrNotSynced))
		}
	}
	return errors.Join(errs...)
}

// Get returns the observed state of one of our objects, in constant time. The error
// wraps [ErrAbsent] if there is none, and [ErrNotSynced], with the reason, if its kind
// is not synced.
func (l *Live) Get(id ID) (Observed, error) {
	if err := l.prepare(); err != nil {
		return Observed{}, err
	}
	v := l.registry.view(id.GroupKind())
	if v == nil {
		return Observed{}, fmt.Errorf("%s: %w: the kind is not watched", id, ErrNotSynced)
	}
	n := view.NameOf(id.Namespace, id.Name)
	switch look := v.Look(n); {
	case look.State != view.Served && look.Err != nil:
		return Observed{}, fmt.Errorf("%s: %w: %w", id, ErrNotSynced, look.Err)
	case look.State != view.Served:
		return Observed{}, fmt.Errorf("%s: %w", id, ErrNotSynced)
	case !look.Found:
		return Observed{}, fmt.Errorf("%s: %w", id, ErrAbsent)
	default:
		return observe(id.GroupKind(), n, &look.Record, l.identity), nil
	}
}

// All yields every object of the synced kinds, in no order.
func (l *Live) All() iter.Seq[Observed] {
	return l.list(func(v *view.Kind, take func(view.Name, *view.Record) bool) { v.Each(take) })
}

// Part yields every object of a part, of the synced kinds, in no order. Its cost
// depends on the part only.
func (l *Live) Part(part string) iter.Seq[Observed] {
	return l.list(func(v *view.Kind, take func(view.Name, *view.Record) bool) { v.EachOf(view.PartOf(part), take) })
}

// list copies the objects of one kind after the other. No lock is held while the caller
// looks at them.
func (l *Live) list(each func(*view.Kind, func(view.Name, *view.Record) bool)) iter.Seq[Observed] {
	return func(yield func(Observed) bool) {
		if l.prepare() != nil {
			return
		}
		for _, v := range l.registry.views() {
			var found []Observed
			each(v, func(n view.Name, r *view.Record) bool {
				found = append(found, observe(v.GroupKind(), n, r, l.identity))
				return true
			})
			for i := range found {
				if !yield(found[i]) {
					return
				}
			}
		}
	}
}
