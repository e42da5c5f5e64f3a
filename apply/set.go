//trueup:pure

package apply

import (
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Set is a desired state: objects that are validated, labelled, ordered and
// hashed once, to be applied any number of times. It is immutable and safe for
// concurrent use. Make a new one only when the desired state changes: applying the same
// Set again costs next to nothing.
type Set struct {
	owner    Owner
	options  SetOptions
	items    []item             // by rank, then by ID
	kinds    []schema.GroupKind // of the items, each once
	runs     []run              // of the items, by kind
	hints    atomic.Pointer[hints]
	ids      map[ID]membership // every stated object
	members  members           // for the ApplySet
	empty    bool              // nothing is stated, except perhaps an ApplySet
	parent   *applySetParent   // of the ApplySet; nil: there is none
	part     view.Part
	accepted atomic.Pointer[acceptance]
	// nameless is whether an object with an unknown ID was left out: then no object
	// counts as absent from the set.
	nameless bool
}

// acceptance records which Live has accepted a set, by the identity of the owner there,
// and when the set became the newest of its part: a number that grows with each such set,
// 0 if it was not applied.
type acceptance struct {
	by     *identity.Identity
	number uint64
}

// SetOptions refine a [Set]. The zero value is a set without parts, every object
// of which is kept as stated.
type SetOptions struct {
	// Part is the value of the owner's part label ([Owner.PartLabel]): the UID of
	// the parent object, say. It is put on every object, and the set is pruned
	// without a look at other parts. Required if the owner has a part label, and
	// must be empty if it has none. To rename a part, or to give objects to another one,
	// release them ([DeleteOptions.Orphan]) and apply the set of the new part: it takes
	// the same objects.
	Part string
	// Ignore leaves fields to others. An object is created with them, because they
	// may be required, and every later apply does without: their owners keep them,
	// and a field that only we own stays as it is. The zero Ignore leaves none.
	Ignore diff.Ignore
	// Handover leaves fields to a controller while an object of ours configures it. The
	// first of an object counts.
	Handover []Handover
	// From has the resourceVersion of an object that its desired state was made from, such as
	// a Secret whose password was read. A write of an existing object then holds for this
	// version only: if another program has changed the object since, it fails with a conflict
	// (apierrors.IsConflict), and the change stays. Read again, and make another set. An ID that
	// the set does not state has no effect.
	From map[ID]string
	// Policy, if set, decides about each object. Nil: every object is kept
	// as stated.
	Policy func(ID) ObjectPolicy
	// Gate makes the kinds that isolate or limit (NetworkPolicy and the policies of
	// Cilium and Calico, ResourceQuota, LimitRange, roles and their bindings) a
	// condition: when one of them fails, workloads of its namespace, or of every
	// namespace if it is cluster-scoped, wait.
	Gate bool
}

// Handover leaves fields of an object to a controller for as long as an object exists that
// configures the controller: the replicas of a Deployment to its HorizontalPodAutoscaler.
//
// While the set states the configuring object, the fields are left as by
// [SetOptions.Ignore]: a new object is created with them, and on an existing one they keep
// their values. When a set no longer states it, the controller keeps the fields until the
// object is gone. Only then the values of the set are applied, so the two never fight: by
// the first Apply after the deletion, for which [Live.OnDrift] calls. While it cannot be
// seen whether the configuring object exists, the fields stay where they are. With
// [ReportConflicts], the value that a controller has left is a conflict.
type Handover struct {
	// Fields are the fields, of the objects that the rules match.
	Fields diff.Ignore
	// By returns the object that configures the controller of an object's fields. The
	// owner of the set applies it, in this or an earlier set. The zero ID: there is none.
	// Required.
	By func(ID) ID
}

func (o SetOptions) validate(owner Owner) error {
	switch {
	case owner.PartLabel == "" && o.Part != "":
		return fmt.Errorf("apply: SetOptions.Part: is %q, must be empty without Owner.PartLabel", o.Part)
	case owner.PartLabel != "" && o.Part == "":
		return fmt.Errorf("apply: SetOptions.Part: is required with Owner.PartLabel, %s", owner.PartLabel)
	}
	for i := range o.Handover {
		if o.Handover[i].By == nil {
			return fmt.Errorf("apply: SetOptions.Handover[%d].By: is required", i)
		}
	}
	for _, problem := range validation.IsValidLabelValue(o.Part) {
		return fmt.Errorf("apply: SetOptions.Part: is %q: %s", o.Part, problem)
	}
	return nil
}

func (s *Set) membership(id ID) membership {
	if s.policy(id) == LeaveOut {
		return leftOut
	}
	return applicable
}

func (s *Set) policy(id ID) ObjectPolicy {
	if s.options.Policy == nil {
		return KeepAsStated
	}
	return s.options.Policy(id)
}

// version returns the version of the first item of a kind.
func (s *Set) version(kind schema.GroupKind) string {
	for i := range s.items {
		if s.items[i].id.GroupKind() == kind {
			return s.items[i].kind.Version
		}
	}
	return ""
}

// Len returns how many objects the set can apply.
func (s *Set) Len() int { return len(s.items) }

// Has reports whether the set states the object, applicable or not.
func (s *Set) Has(id ID) bool { return s.ids[id] != absent }

// item returns the item of an object, nil if the set does not apply it.
func (s *Set) item(id ID) *item {
	if s.ids[id] != applicable {
		return nil
	}
	i := slices.IndexFunc(s.items, func(it item) bool { return it.id == id })
	if i < 0 {
		return nil
	}
	return &s.items[i]
}

// hasItem reports whether a small set has an item of the kind with that index in
// kinds. A pass has just read the items; the map behind Has is elsewhere in memory.
func (s *Set) hasItem(group int, at view.Name) bool {
	if group < 0 || len(s.items) > maxScanned {
		return false
	}
	for i := range s.items {
		if it := &s.items[i]; it.group == group && it.at == at {
			return true
		}
	}
	return false
}

// maxScanned is how many items are searched faster than the map.
const maxScanned = 16

// defines reports whether the set has the definition of a kind.
func (s *Set) defines(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.items, func(it item) bool {
		if !isDefinition(it.id.GroupKind()) {
			return false
		}
		spec, _ := it.body.Decode()["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		return spec["group"] == kind.Group && names["kind"] == kind.Kind
	})
}

// Part returns the value of the part label that the objects carry, empty if there
// is none.
func (s *Set) Part() string { return s.options.Part }

// ranks yields the items of one rank after the other.
func (s *Set) ranks() iter.Seq[[]item] {
	return func(yield func([]item) bool) {
		for start := 0; start < len(s.items); {
			end := start + 1
			for end < len(s.items) && s.items[end].rank == s.items[start].rank {
				end++
			}
			if !yield(s.items[start:end]) {
				return
			}
			start = end
		}
	}
}

// hintsOf returns the hints for these views of the set's kinds. The items of a set lie one after the
// other, and so do their records: with hints a pass over a million objects reads memory in order.
func (s *Set) hintsOf(kinds []*view.Kind) []view.Hint {
	found := s.hints.Load()
	for {
		found.once.Do(func() { copy(found.kinds, kinds) })
		if slices.Equal(found.kinds, kinds) {
			return found.items
		}
		found = newHints(len(s.kinds), len(s.items)) // those before are of another Live
		s.hints.Store(found)
	}
}

// kindsOf returns the views of the set's kinds, nil for one that is not among all.
func (s *Set) kindsOf(all []*view.Kind) []*view.Kind {
	kinds := make([]*view.Kind, len(s.kinds))
	for i, kind := range s.kinds {
		if at := slices.IndexFunc(all, func(v *view.Kind) bool { return v.GroupKind() == kind }); at >= 0 {
			kinds[i] = all[at]
		}
	}
	return kinds
}
