//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
)

// prunePlan lists what a prune is about to do.
type prunePlan struct {
	due       []Observed // in the order of deletion
	rank      map[ID]rank
	refused   []Result // objects that must not be deleted, and why
	unproven  []ID
	unseen    []unseen
	pending   int
	remaining int // objects whose deletion is accepted already
	owned     int // objects of an owner without parts that may be deleted, if no set states them
	// orphan selects those that are released; propagation is what is to happen to the objects
	// of the others, empty for the default. An approval is for both.
	orphan      func(Observed) bool
	propagation metav1.DeletionPropagation

	waits     []Result              // what stays because it is needed, with ErrNeeded
	waiting   []Observed            // what waits for pods, and what it needs
	postponed []Result              // of it, what isolates the pods of workloads that stay or end
	podsOf    func(Observed) string // the pods for which what isolates them waits; nil: those that end

	staying []Observed            // workloads that must be deleted: in their grace, or held
	ending  []Observed            // workloads whose deletion is accepted already
	after   map[ID][]ID           // what they depend on
	unit    func(Observed) string // of the guard; nil: there is none
	blind   bool                  // pods may run that a deletion by name cannot see
	// within has what is left to a namespace that goes, by namespace.
	within map[string][]Observed
	// foreground has the namespaces whose workloads exist until their pods are gone.
	foreground map[string]bool
}

// unseen is a kind whose objects cannot be seen.
type unseen struct {
	kind   schema.GroupKind
	plural string // <plural>.<group>, empty if unknown
	err    error
}

func (g absence) due(o *Observed, options PruneOptions, now time.Time) bool {
	if options.Gone != nil && options.Gone(*o) {
		return true
	}
	var grace Grace
	if options.Grace != nil {
		grace = options.Grace(o.ID.GroupKind())
	}
	return g.passes >= grace.Passes && now.Sub(g.since) >= grace.Age
}

// count counts an object of an owner without parts.
func (d *prunePlan) count(r *view.Record) {
	if !r.Pruned() && !r.Deleting() && !r.Unowned() {
		d.owned++
	}
}

// must is the precondition of a deletion.
func (o *Observed) must() wire.Must {
	return wire.Must{UID: string(o.UID), Version: strconv.FormatUint(o.record.Version(), 10)}
}

// choose adds an object that is not desired to the plan.
func (d *prunePlan) choose(o Observed, before map[string]absence, options PruneOptions, now time.Time) (next absence, absent bool) {
	if options.Keep != nil && options.Keep(o) {
		return absence{}, false
	}
	next = before[string(o.UID)]
	if next.passes == 0 {
		next.since = now
	}
	next.passes++
	if next.due(&o, options, now) {
		d.due = append(d.due, o)
	} else {
		d.stay(o)
		d.pending++
	}
	return next, true
}

// contradict removes from the plan what an object that stays needs: its namespace, or
// the definition of its kind. inhabited and defined map the name of a namespace and of
// a definition to such an object.
func (d *prunePlan) contradict(inhabited, defined map[string]ID) {
	d.due = slices.DeleteFunc(d.due, func(o Observed) bool {
		var needed ID
		switch kind := o.ID.GroupKind(); {
		case isNamespace(kind):
			needed = inhabited[o.ID.Name]
		case isDefinition(kind):
			needed = defined[o.ID.Name]
		}
		if needed != (ID{}) {
			d.refuse(Result{o.ID, Refused, fmt.Errorf("%w: %s must stay", ErrNeeded, needed)})
			return true
		}
		if kind, ok := d.unseenIn(o.ID); ok {
			d.refuse(Result{o.ID, Waiting, fmt.Errorf("%w: an object of kind %s may need it", ErrNotSynced, kind)})
			return true
		}
		return false
	})
}

// stay notes an object that must be deleted, and is not deleted now.
func (d *prunePlan) stay(o Observed) {
	switch kind := o.ID.GroupKind(); {
	case stageOf(kind) == stageWorkloads:
		d.staying = append(d.staying, o)
	case isolates(kind):
		d.isolate(o)
	}
}

// isolate has the workloads in the namespace of what isolates them exist until their pods are gone.
func (d *prunePlan) isolate(o Observed) {
	if d.foreground == nil {
		d.foreground = map[string]bool{}
	}
	d.foreground[o.ID.Namespace] = true
}

// end notes an object whose deletion is accepted already.
func (d *prunePlan) end(o Observed) {
	d.remaining++
	if stageOf(o.ID.GroupKind()) == stageWorkloads {
		d.ending = append(d.ending, o)
	}
}

func (d *prunePlan) refuse(r Result) {
	d.refused = append(d.refused, r)
	slices.SortFunc(d.refused, func(a, b Result) int { return a.ID.Compare(b.ID) })
}

// wait notes an object that stays because it is needed.
func (d *prunePlan) wait(id ID, why error) {
	d.waits = append(d.waits, Result{id, Refused, why})
	d.pending++
}

func neededBy(by ID) error { return fmt.Errorf("%w: %s must stay", ErrNeeded, by) }

var errUnseenPods = fmt.Errorf("%w, perhaps, by pods of a kind that cannot be seen", ErrNeeded)

// awaits reports whether the deletion of o waits for pods of its namespace.
func (d *prunePlan) awaits(o Observed) bool {
	return isolates(o.ID.GroupKind()) && o.ID.Namespace != anywhere && (d.orphan == nil || !d.orphan(o))
}

// unseenIn returns a kind whose objects cannot be seen and would be deleted with a
// namespace or definition.
func (d *prunePlan) unseenIn(id ID) (schema.GroupKind, bool) {
	for _, u := range d.unseen {
		switch {
		case isNamespace(id.GroupKind()),
			isDefinition(id.GroupKind()) && (u.plural == id.Name || u.plural == "" && groupOf(id.Name) == u.kind.Group):
			return u.kind, true
		}
	}
	return schema.GroupKind{}, false
}

// order sorts in reverse: an object is deleted after those that depend on it.
func (d *prunePlan) order(owner Owner) {
	slices.SortFunc(d.unproven, ID.Compare)
	if len(d.due) == 0 {
		return
	}
	d.after = map[ID][]ID{}
	needs := func(o *Observed) []ID {
		// An unreadable annotation is ignored.
		after, _ := owner.dependencies(map[string]string{owner.dependsOnAnnotation(): o.record.DependsOn()})
		if len(after) > 0 {
			d.after[o.ID] = after
		}
		return after
	}
	for i := range d.staying {
		needs(&d.staying[i])
	}
	byID := make(map[ID]*item, len(d.due))
	for i := range d.due {
		o := &d.due[i]
		byID[o.ID] = &item{id: o.ID, after: needs(o), rank: rank{stage: stageOf(o.ID.GroupKind())}}
	}
	walk := ordering{byID: byID, stated: func(ID) bool { return true }, visiting: map[ID]bool{}}
	d.rank = make(map[ID]rank, len(byID))
	for id, it := range byID {
		// Objects that depend on each other are deleted in the order of their kinds.
		_ = walk.place(it)
		d.rank[id] = it.rank
	}
	slices.SortFunc(d.due, func(x, y Observed) int {
		if c := d.rank[y.ID].compare(d.rank[x.ID]); c != 0 {
			return c
		}
		return x.ID.Compare(y.ID)
	})
}

// all yields what is deleted, in its order: what is left to a namespace goes after it.
func (d *prunePlan) all() iter.Seq[*Observed] {
	return func(yield func(*Observed) bool) {
		for i := range d.due {
			if !yield(&d.due[i]) {
				return
			}
			inside := d.inside(&d.due[i])
			for j := range inside {
				if !yield(&inside[j]) {
					return
				}
			}
		}
	}
}

// inside returns what is left to an object that is a namespace.
func (d *prunePlan) inside(o *Observed) []Observed {
	if !isNamespace(o.ID.GroupKind()) {
		return nil
	}
	return d.within[o.ID.Name]
}

// ranks yields one rank after the other. Objects of one rank are deleted in parallel.
func (d *prunePlan) ranks() iter.Seq[[]Observed] {
	return func(yield func([]Observed) bool) {
		for rest := d.due; len(rest) > 0; {
			end := 1
			for end < len(rest) && d.rank[rest[end].ID] == d.rank[rest[0].ID] {
				end++
			}
			if !yield(rest[:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// hold removes from the plan what stops selects, with the namespaces and definitions
// that it needs, and returns all of it.
func (d *prunePlan) hold(stops func(Observed) bool) (held []Observed) {
	inside, defined := map[string]bool{}, map[string]bool{}
	take := func(stops func(Observed) bool) {
		d.due = slices.DeleteFunc(d.due, func(o Observed) bool {
			if !stops(o) {
				return false
			}
			held = append(held, o)
			d.stay(o)
			inside[o.ID.Namespace], defined[o.ID.Group] = true, true
			return true
		})
	}
	take(stops)
	take(func(o Observed) bool {
		kind := o.ID.GroupKind()
		return isNamespace(kind) && inside[o.ID.Name] || isDefinition(kind) && defined[groupOf(o.ID.Name)]
	})
	slices.SortFunc(held, func(a, b Observed) int { return a.ID.Compare(b.ID) })
	return held
}

// unseenError names the kinds that cannot be seen, nil if there are none.
func (d *prunePlan) unseenError() error {
	var errs []error
	for _, u := range d.unseen {
		errs = append(errs, fmt.Errorf("%s: %w: %w", u.kind, ErrNotSynced, u.err))
	}
	return errors.Join(errs...)
}

func (d *prunePlan) unseenKinds() []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, u := range d.unseen {
		kinds = append(kinds, u.kind)
	}
	return kinds
}

// groupOf returns the group in the name of a definition, <plural>.<group>.
func groupOf(definition string) string {
	_, group, _ := strings.Cut(definition, ".")
	return group
}

// standing returns the objects that the plan does not delete now.
func (d *prunePlan) standing(plural func(schema.GroupKind) string) *standing {
	s := &standing{unit: d.unit, plural: plural, by: map[need]ID{}, own: map[string]bool{}, owners: map[types.UID]bool{}}
	for _, list := range [][]Observed{d.due, d.staying, d.ending} {
		for i := range list {
			if stageOf(list[i].ID.GroupKind()) == stageWorkloads {
				s.owners[list[i].UID] = true
				s.own[s.unitOf(&list[i])] = true
			}
		}
	}
	for _, list := range [][]Observed{d.staying, d.waiting} {
		for i := range list {
			s.add(&list[i], d.after[list[i].ID])
		}
	}
	for i := range d.ending {
		s.end(&d.ending[i])
	}
	return s
}

// settle takes out of the plan what an object needs that stays, and what isolates pods in a namespace that goes: the
// server deletes that after the pods. Until then it isolates them. Where it goes by itself, the workloads beside it are
// deleted in the foreground: they exist until their pods are gone.
func (d *prunePlan) settle(s *standing, options PruneOptions, closing func(namespace string) bool) {
	released := func(o *Observed) bool { return options.Orphan != nil && options.Orphan(*o) }
	going := map[string]bool{}
	for i := range d.due {
		if o := &d.due[i]; isNamespace(o.ID.GroupKind()) && !released(o) {
			going[o.ID.Name] = true
		}
	}
	d.within = map[string][]Observed{}
	blind := d.blind || slices.ContainsFunc(d.unseen, func(u unseen) bool { return podsIn(u.kind) })
	d.due = slices.DeleteFunc(d.due, func(o Observed) bool {
		kind, namespace, isolates := o.ID.GroupKind(), o.ID.Namespace, s.isolates(&o)
		switch {
		case isolates && closing(namespace):
			s.define(&o)
			d.remaining++
			return true
		case isolates && going[namespace]:
			s.define(&o)
			d.within[namespace] = append(d.within[namespace], o)
			return true
		case isolates:
			d.isolate(o)
		}
		if by, needed := s.needing(&o); needed || isolates && blind { // pods may run that cannot be seen
			s.add(&o, d.after[o.ID])
			why := errUnseenPods
			if needed {
				why = neededBy(by)
			}
			d.wait(o.ID, why)
			if isolates {
				d.postponed = append(d.postponed, Result{o.ID, Refused, why})
			}
			if isNamespace(kind) {
				for _, inside := range d.within[o.ID.Name] {
					d.wait(inside.ID, why)
				}
				going[o.ID.Name] = false
			}
			return true
		}
		if !released(&o) && (isPod(kind) || options.Propagation == "" || options.Propagation == metav1.DeletePropagationForeground) {
			s.end(&o)
		}
		return false
	})
}

// propagationOf returns what is to happen to the objects that one owns.
func (d *prunePlan) propagationOf(o *Observed, options PruneOptions) metav1.DeletionPropagation {
	isolated := d.foreground[o.ID.Namespace] || d.foreground[anywhere]
	if options.Propagation == "" && isolated && hasPods(o.ID.GroupKind()) {
		return metav1.DeletePropagationForeground
	}
	return options.Propagation
}
