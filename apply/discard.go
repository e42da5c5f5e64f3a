package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
)

// planPrune decides what a prune does, and returns the absences for the next one. It
// changes nothing.
func (a *Applier) planPrune(set *Set, options PruneOptions, views []*view.Kind, now time.Time) (prunePlan, map[string]absence) {
	plan := prunePlan{unseen: unseenOf(views)}
	before := a.Live.absences.of(set.Part())
	var next map[string]absence
	for _, o := range a.unwanted(set, views, &plan) {
		if gone, absent := plan.choose(o, before, options, now); absent {
			if next == nil {
				next = map[string]absence{}
			}
			next[string(o.UID)] = gone
		}
	}
	a.finish(&plan, set, views)
	return plan, next
}

// overtaken returns an error if another set was applied after this one and states an
// object that the plan deletes. A set that was never applied is the newest.
func (a *Applier) overtaken(set *Set, plan *prunePlan) error {
	number := set.accepted.Load().number
	newest, ids := a.Live.registry.newest(set.Part())
	if number == 0 || number >= newest {
		return nil
	}
	for i := range plan.due {
		if id := plan.due[i].ID; ids[id] != absent {
			return fmt.Errorf("%w: another set was applied after this one, and states %s", ErrStalePlan, id)
		}
	}
	return nil
}

// unwanted returns the objects that are ours and that the set does not state. It costs what the
// part costs, or the kinds if there are no parts.
func (a *Applier) unwanted(set *Set, views []*view.Kind, plan *prunePlan) []Observed {
	var found []Observed
	var kind schema.GroupKind
	items := statement{set: set, hints: set.hintsOf(set.kindsOf(views))}
	take := func(n view.Name, r *view.Record) bool { //nolint:unparam // it ends no iteration
		going, unowned, strayed := r.Pruned() || r.Deleting(), r.Unowned(), r.Strayed()
		if set.hasItem(items.group, n) {
			return true
		}
		id := ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.Namespace(), Name: n.Name()}
		switch {
		case set.Has(id): // always true for the ApplySet's parent
		case going:
			plan.end(observe(kind, n, r, a.Live.identity))
		case strayed:
			plan.unproven = append(plan.unproven, id)
		case !unowned:
			found = append(found, observe(kind, n, r, a.Live.identity))
		case r.Controller() == "":
			plan.unproven = append(plan.unproven, id)
		default:
			// A controller copied our labels to this object from its owner; it is
			// deleted together with that owner.
		}
		return true
	}
	// The functions are made once, not for each kind: a pass over a part costs little more.
	next, count := items.next, plan.count
	other := func(n view.Name, r *view.Record) bool {
		count(r)
		return take(n, r)
	}
	for _, v := range views {
		kind = v.GroupKind()
		items.of(slices.Index(set.kinds, kind))
		if a.Live.Owner.PartLabel != "" {
			v.OthersOf(set.part, next, take)
		} else {
			v.Others(next, count, other)
		}
	}
	return found
}

// statement yields the items of one kind of a set, with their hints. A prune has one for all kinds.
type statement struct {
	set     *Set
	hints   []view.Hint
	group   int
	run, at int
}

// of begins with the items of another kind.
func (s *statement) of(group int) { s.group, s.run, s.at = group, 0, 0 }

// next returns the next item of the kind; false: there is none.
func (s *statement) next() (view.Name, *view.Hint, bool) {
	for ; s.run < len(s.set.runs); s.run++ {
		run := s.set.runs[s.run]
		s.at = max(s.at, run.begin)
		if i := s.at; run.group == s.group && i < run.end {
			s.at++
			return s.set.items[i].at, &s.hints[i], true
		}
	}
	return view.Name{}, nil, false
}

// planDelete decides about the objects of a deletion by name.
func (a *Applier) planDelete(ids []ID, views []*view.Kind) prunePlan {
	plan := prunePlan{}
	byKind := map[string]*view.Kind{}
	for _, v := range views {
		byKind[v.GroupKind().String()] = v
	}
	seen := map[ID]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		v := byKind[id.GroupKind().String()]
		n := view.NameOf(id.Namespace, id.Name)
		look := v.Look(n)
		r := &look.Record
		switch err := v.Known().Doubt(); {
		case err != nil:
			plan.refuse(Result{id, Waiting, fmt.Errorf("%w: %w", ErrNotSynced, err)})
		case !look.Found:
		case r.Pruned() || r.Deleting():
			plan.end(observe(id.GroupKind(), n, r, a.Live.identity))
		case r.Unowned():
			plan.refuse(Result{id, Refused, fmt.Errorf("%w: it carries our labels, and no field of it is ours", ErrNotOurs)})
		default:
			plan.due = append(plan.due, observe(id.GroupKind(), n, r, a.Live.identity))
		}
	}
	plan.noteWorkloads(seen, views, a.Live.identity)
	a.finish(&plan, nil, views)
	return plan
}

// noteWorkloads adds the workloads whose deletion has not ended and that a network policy of the plan may isolate. It sets
// blind if a kind of workload cannot be seen.
func (d *prunePlan) noteWorkloads(named map[ID]bool, views []*view.Kind, owner *identity.Identity) {
	isolated := map[string]bool{}
	for i := range d.due {
		if id := d.due[i].ID; isolates(id.GroupKind()) {
			isolated[id.Namespace] = true
		}
	}
	if len(isolated) == 0 {
		return // only then all objects are searched
	}
	for _, v := range views {
		kind := v.GroupKind()
		if stageOf(kind) != stageWorkloads {
			continue
		}
		d.blind = d.blind || podsIn(kind) && v.Known().Doubt() != nil
		v.Each(func(n view.Name, r *view.Record) bool {
			id := ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.Namespace(), Name: n.Name()}
			if (r.Pruned() || r.Deleting()) && !named[id] && (isolated[id.Namespace] || isolated[anywhere]) {
				d.ending = append(d.ending, observe(kind, n, r, owner))
			}
			return true
		})
	}
}

// finish removes from the plan what must stay, and orders the rest.
func (a *Applier) finish(plan *prunePlan, set *Set, views []*view.Kind) {
	contains := func(o Observed) bool { return isNamespace(o.ID.GroupKind()) || isDefinition(o.ID.GroupKind()) }
	if slices.ContainsFunc(plan.due, contains) {
		// Only then all objects are searched.
		if plan.unseen == nil {
			plan.unseen = unseenOf(views)
			defer func() { plan.unseen = nil }() // each named object has a result already
		}
		inhabited, defined := a.staying(plan, set, views)
		plan.contradict(inhabited, defined)
	}
	plan.order(a.Live.Owner)
}

// staying maps namespaces and definitions to an object of ours that needs them and
// stays.
func (a *Applier) staying(plan *prunePlan, set *Set, views []*view.Kind) (inhabited, defined map[string]ID) {
	going := make(map[ID]bool, len(plan.due))
	for i := range plan.due {
		going[plan.due[i].ID] = true
	}
	inhabited, defined = map[string]ID{}, map[string]ID{}
	note := func(id ID, plural string) {
		if id.Namespace != "" {
			inhabited[id.Namespace] = id
		}
		if plural != "" {
			defined[plural] = id
		}
	}
	plurals := map[string]string{}
	for _, v := range views {
		kind, plural := v.GroupKind(), v.Plural()
		plurals[kind.String()] = plural
		v.Each(func(n view.Name, r *view.Record) bool {
			id := ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.Namespace(), Name: n.Name()}
			if !going[id] && !r.Pruned() && !r.Deleting() && (r.Controller() == "" || !r.Unowned()) {
				note(id, plural)
			}
			return true
		})
	}
	if set != nil {
		for id := range set.ids {
			note(id, plurals[id.GroupKind().String()])
		}
	}
	return inhabited, defined
}

func unseenOf(views []*view.Kind) []unseen {
	var found []unseen
	for _, v := range views {
		if err := v.Known().Doubt(); err != nil {
			found = append(found, unseen{v.GroupKind(), v.Plural(), err})
		}
	}
	return found
}

// discard deletes or releases one object, once it holds the object's lock. If others
// have changed it since it was seen, recheck reports whether it must still be deleted;
// with a nil recheck it is kept.
func (a *Applier) discard(
	ctx context.Context,
	o *Observed,
	must wire.Must,
	options PruneOptions,
	plan *prunePlan,
	pods *inquiry,
	recheck func(Observed) bool,
) Result {
	v := a.Live.registry.view(o.ID.GroupKind())
	n := view.NameOf(o.ID.Namespace, o.ID.Name)
	end, err := v.Begin(ctx, n)
	if err != nil {
		return Result{o.ID, Failed, err}
	}
	defer end(true)
	mapping := v.Mapping()
	if mapping == nil {
		return Result{o.ID, Waiting, ErrNotSynced}
	}
	t := &write.Target{Resource: mapping.Resource, Kind: mapping.GroupVersionKind, Namespace: o.ID.Namespace, Name: o.ID.Name, Part: o.Part}
	action, stays := Deleted, error(nil)
	send := func(pods *inquiry) error {
		if plan.awaits(*o) {
			if stays = pods.mayGo(ctx, o); stays != nil {
				return nil //nolint:nilerr // it has a result of its own, below
			}
		}
		return a.writer.Delete(ctx, t, must, plan.propagationOf(o, options))
	}
	if options.Orphan != nil && options.Orphan(*o) {
		action = Released
		send = func(*inquiry) error {
			return a.writer.Release(ctx, t, must, a.ownerLabels(), []string{a.Live.identity.HashAnnotation, a.Live.identity.DependsOnAnnotation})
		}
	}
	err = send(pods)
	for try := 1; recheck != nil && apierrors.IsConflict(err) && try < discardTries; try++ {
		// Perhaps only its status has changed. Decide again once the view shows the
		// change.
		now, goes, ok := a.await(ctx, v, o)
		if goes {
			err = nil // another has deleted it
		}
		if !ok || !recheck(now) {
			break
		}
		o, must = &now, now.must()
		err = send(a.Live.inquire(a.Objects, plan.podsOf)) // it may select other pods now
	}
	switch {
	case errors.Is(stays, ErrNeeded):
		return Result{o.ID, Refused, stays}
	case stays != nil:
		return Result{o.ID, Waiting, stays}
	}
	if err != nil && !write.Gone(err) {
		return Result{o.ID, Failed, err}
	}
	v.Prune(n, string(o.UID))
	a.Live.rejections.forget(o.ID)
	a.Live.fights.forget(o.ID)
	return Result{ID: o.ID, Action: action}
}

// discardTries bounds the attempts of a deletion while others change the object, and
// discardWait the wait for the view after each attempt.
const (
	discardTries = 4
	discardWait  = 2 * time.Second
)

// await returns the object as the view shows it after another change, and whether it still is the same object, ours, and not
// being deleted. Goes is that it is being deleted. What is not found may have lost its labels, and still be there.
func (a *Applier) await(ctx context.Context, v *view.Kind, o *Observed) (now Observed, goes, ok bool) {
	n := view.NameOf(o.ID.Namespace, o.ID.Name)
	changed := make(chan struct{})
	v.Await(n, o.record.Version(), changed, sync.OnceFunc(func() { close(changed) }))
	defer v.Forget(n, changed)
	late := time.NewTimer(discardWait)
	defer late.Stop()
	select {
	case <-changed:
	case <-late.C:
	case <-ctx.Done():
	}
	look := v.Look(n)
	r := &look.Record
	if !look.Found || r.UID() != string(o.UID) || r.Version() == o.record.Version() || r.Deleting() || r.Unowned() || r.Part() != o.Part {
		return Observed{}, look.Found && r.UID() == string(o.UID) && r.Deleting(), false
	}
	return observe(o.ID.GroupKind(), n, r, a.Live.identity), false, true
}

// ownerLabels returns the keys of our ownership labels.
func (a *Applier) ownerLabels() []string {
	keys := slices.Sorted(maps.Keys(a.Live.identity.Labels))
	if part := a.Live.identity.PartLabel; part != "" {
		keys = append(keys, part)
	}
	return append(keys, applySetPartOf)
}
