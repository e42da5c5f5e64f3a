package external

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Pass is one pass for the parts of one object. Make a new one for each pass: it keeps what it has
// found. It is not safe for concurrent use. Passes of different objects may run at the same time.
type Pass struct {
	// Parts are all parts that the object can have, wanted or not, in the order in which they are
	// made.
	Parts []*Part
	// Recorded are the things in the status of the object, and then what it should have there.
	Recorded []Thing
	// Checks store when each part was last found correct. Required for Make.
	Checks *Checks
	// UID is the UID of the object. Version changes when something else is wanted.
	UID     types.UID
	Version string

	gone      []Thing // what the pass has removed
	planned   bool
	validated bool
	wrong     error // what Validate has found
}

// Plan records all that is wanted, before Make makes any of it. It calls record, which must store
// in the status of the object what [Pass.Merge] returns for the things there, and return the things
// that the status has then. The error is the error of record, or says that the status has
// other things, because the object was changed or deleted, or that of [Pass.Validate]. After an error
// Make makes nothing.
func (p *Pass) Plan(record func() (status []Thing, err error)) error {
	if err := p.Validate(); err != nil {
		return err
	}
	p.Recorded = slices.Clone(p.Recorded)
	for _, t := range p.Parts {
		if !t.Wanted || t.Unset != nil {
			continue
		}
		for _, wanted := range t.Things {
			if at := slices.IndexFunc(p.Recorded, wanted.same); at < 0 {
				p.Recorded = append(p.Recorded, wanted)
			} else {
				p.Recorded[at].Policy = wanted.Policy
			}
		}
	}
	stored, err := record()
	if err == nil && !slices.Equal(stored, p.Recorded) {
		err = errors.New("record what is made outside: the object has changed meanwhile")
	}
	p.planned = err == nil
	return err
}

// Merge returns what a status that has these things must have: all of them, since it may be of
// a later state than the one that the pass began with, but what the pass has removed.
func (p *Pass) Merge(status []Thing) []Thing {
	merged := slices.Clone(p.Recorded)
	for _, e := range status {
		if !has(merged, e) && !has(p.gone, e) {
			merged = append(merged, e)
		}
	}
	p.Recorded = merged
	return slices.Clone(merged)
}

// Make makes the parts that are wanted, in their order, and sets Err of each. A part that fails
// holds up only parts that need it. Parts that were found correct a short time ago are not looked
// at. When ctx ends, Make returns, and the parts are in part unknown. It returns when the next
// part is due. The status must be written afterwards, with [Pass.Merge]. In a pass that is wrong, as
// [Pass.Validate] or a missing Checks has it, nothing is made: the error is Err of each wanted part,
// and an hour is returned.
func (p *Pass) Make(ctx context.Context) (again time.Duration) {
	if p.Validate() == nil && p.Checks == nil {
		p.wrong = reconcile.Terminal(errors.New("external: Pass.Checks: is nil, must be the Checks of all passes of the program"))
	}
	if p.refuse(func(t *Part, wrong error) {
		if t.Wanted {
			t.Err = wrong
		}
	}) {
		return time.Hour
	}
	again = p.Checks.Interval
	for _, t := range p.Parts {
		if !t.Wanted || t.Make == nil {
			continue
		}
		due, in := p.Checks.due(p.UID, t.Name, p.Version)
		again = min(again, in)
		if !due && p.made(t) && (t.Lost == nil || !t.Lost()) {
			continue
		}
		start := p.Checks.now()
		t.Err = p.try(ctx, t)
		if ctx.Err() != nil {
			return again
		}
		t.Checked, t.Took = true, p.Checks.now().Sub(start)
		if t.Err == nil {
			p.complete(t)
		}
		p.Checks.done(p.UID, t.Name, p.Version, t.Err == nil)
	}
	return again
}

func (p *Pass) try(ctx context.Context, t *Part) error {
	if t.Unset != nil {
		return reconcile.Terminal(t.Unset)
	}
	if len(t.Things) > 0 && !p.planned {
		return errors.New("nothing is made that is not recorded")
	}
	usable := func(name string) bool {
		return slices.ContainsFunc(p.Parts, func(o *Part) bool { return o.Name == name && o.Wanted && p.Usable(o) })
	}
	if missing := slices.DeleteFunc(slices.Clone(t.Needs), usable); len(missing) > 0 {
		return waitsFor(missing)
	}
	return t.Gate.try(ctx, t.Make, &t.Err, t.Early)
}

func waitsFor(names []string) error {
	return fmt.Errorf("%w for: %s", ErrWaits, strings.Join(names, ", "))
}

// complete notes that all of a part was seen complete.
func (p *Pass) complete(t *Part) {
	for i, e := range p.Recorded {
		p.Recorded[i].Made = e.Made || has(t.Things, e)
	}
}

// made reports whether all of a part was seen complete, now or before.
func (p *Pass) made(t *Part) bool {
	return !slices.ContainsFunc(t.Things, func(wanted Thing) bool {
		return !slices.ContainsFunc(p.Recorded, func(e Thing) bool { return e.Made && e.same(wanted) })
	})
}

// Usable reports whether what needs a part can go on: the part is as it should be, or it was, and
// cannot be looked at.
func (p *Pass) Usable(t *Part) bool {
	return p.made(t) && (t.Err == nil || len(t.Things) > 0)
}
