package apply

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// doom is what a prune is about to do.
type doom struct {
	doomed   []Observed // in the order of deletion
	rank     map[ID]rank
	refused  []Result // must not be deleted, and why
	unproven []ID
	owned    int
	pending  int
	missing  map[string]absence // by UID: what the next call has to know
}

// planPrune decides what a prune does. It changes nothing.
func (a *Applier) planPrune(set *Set, options PruneOptions, now time.Time) doom {
	plan := doom{missing: map[string]absence{}}
	var kept []ID // not wanted, and alive afterwards
	for o := range a.Live.All() {
		if o.pruned || o.Deleting {
			continue
		}
		if !o.owned {
			// What a controller made carries our labels by inheritance, and goes
			// with what it was made for.
			if !set.Has(o.ID) && !o.made {
				kept = append(kept, o.ID)
				plan.unproven = append(plan.unproven, o.ID)
			}
			continue
		}
		plan.owned++
		if set.Has(o.ID) {
			continue
		}
		if options.Keep != nil && options.Keep(o) {
			kept = append(kept, o.ID)
			continue
		}
		gone := a.missing[string(o.UID)]
		if gone.passes == 0 {
			gone.since = now
		}
		gone.passes++
		plan.missing[string(o.UID)] = gone
		if gone.due(o, options, now) {
			plan.doomed = append(plan.doomed, o)
		} else {
			kept = append(kept, o.ID)
			plan.pending++
		}
	}
	plan.contradict(a.Live, set, kept)
	plan.order(a.Live.Owner)
	slices.SortFunc(plan.unproven, ID.Compare)
	return plan
}

func (g absence) due(o Observed, options PruneOptions, now time.Time) bool {
	if options.Gone != nil && options.Gone(o) {
		return true
	}
	var grace Grace
	if options.Grace != nil {
		grace = options.Grace(o.ID.GroupKind())
	}
	return g.passes >= grace.Passes && now.Sub(g.since) >= grace.Age
}

// contradict takes out what must stay because something else does: a namespace
// with what lives in it, a definition with the objects of its kind.
func (d *doom) contradict(live *Live, set *Set, kept []ID) {
	inhabited := map[string]ID{}
	kinds := map[schema.GroupKind]ID{}
	note := func(id ID) {
		if id.Namespace != "" {
			inhabited[id.Namespace] = id
		}
		kinds[id.GroupKind()] = id
	}
	for id := range set.ids {
		note(id)
	}
	for _, id := range kept {
		note(id)
	}
	defined := map[string]ID{}
	for kind, id := range kinds {
		if v := live.views[kind]; v != nil {
			if plural := v.plural(); plural != "" {
				defined[plural] = id
			}
		}
	}
	d.doomed = slices.DeleteFunc(d.doomed, func(o Observed) bool {
		var needed ID
		switch o.ID.GroupKind() {
		case schema.GroupKind{Kind: "Namespace"}:
			needed = inhabited[o.ID.Name]
		case definitions():
			needed = defined[o.ID.Name]
		}
		if needed != (ID{}) {
			d.refused = append(d.refused, Result{o.ID, Refused, fmt.Errorf("%w: %s is to stay", ErrNeeded, needed)})
			return true
		}
		if kind, ok := live.unseenIn(o.ID); ok {
			d.refused = append(d.refused, Result{o.ID, Waiting, fmt.Errorf("%w: of kind %s something may need it", ErrNotSynced, kind)})
			return true
		}
		return false
	})
	slices.SortFunc(d.refused, func(a, b Result) int { return a.ID.Compare(b.ID) })
}

// unseenIn returns a kind whose objects are not known yet, and would go with a
// namespace or definition. A kind that the server does not serve has none.
func (l *Live) unseenIn(id ID) (schema.GroupKind, bool) {
	for _, kind := range l.Kinds {
		v := l.views[kind.GroupKind()]
		synced, err := v.status()
		if synced || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		switch plural := v.plural(); {
		case id.GroupKind() == definitions() && (plural == id.Name || plural == "" && strings.HasSuffix(id.Name, "."+kind.Group)),
			id.GroupKind() == schema.GroupKind{Kind: "Namespace"}:
			return kind.GroupKind(), true
		}
	}
	return schema.GroupKind{}, false
}

// order sorts in reverse: what depends on something goes before it.
func (d *doom) order(owner Owner) {
	byID := make(map[ID]*item, len(d.doomed))
	for _, o := range d.doomed {
		// An annotation that cannot be read orders nothing.
		after, _ := owner.dependencies(map[string]string{owner.dependsOnAnnotation(): o.after})
		byID[o.ID] = &item{id: o.ID, after: after, rank: rank{stage: stageOf(o.ID.GroupKind())}}
	}
	walk := ordering{byID: byID, known: func(ID) bool { return true }, visiting: map[ID]bool{}}
	d.rank = make(map[ID]rank, len(byID))
	for id, it := range byID {
		// Those that depend on each other go in the order of their kinds.
		_ = walk.place(it)
		d.rank[id] = it.rank
	}
	slices.SortFunc(d.doomed, func(x, y Observed) int {
		if c := d.rank[y.ID].compare(d.rank[x.ID]); c != 0 {
			return c
		}
		return x.ID.Compare(y.ID)
	})
}

// ranks yields what goes in parallel, one after the other.
func (d *doom) ranks() iter.Seq[[]Observed] {
	return func(yield func([]Observed) bool) {
		for rest := d.doomed; len(rest) > 0; {
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

// over returns a LimitError if more is to be deleted than the limit allows.
func (d *doom) over(limit Limit) error {
	if most := limit.of(d.owned); len(d.doomed) > most {
		return &LimitError{Wanted: len(d.doomed), Limit: most, Owned: d.owned}
	}
	return nil
}
