//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
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
	ids      map[ID]membership  // every stated object
	members  members            // for the ApplySet
	empty    bool               // nothing is stated, except perhaps an ApplySet
	parent   *applySetParent    // of the ApplySet; nil: there is none
	part     view.Part
	accepted atomic.Pointer[acceptance]
	// nameless is whether an object with an unknown ID was left out: then no object
	// counts as absent from the set.
	nameless bool
}

// acceptance is a Live with the owner of a set, and when the set became the newest of
// its part there: a number that grows with each such set, 0 if it was not applied.
type acceptance struct {
	live   *Live
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
	// Policy, if set, decides about each object. Nil: every object is kept
	// as stated.
	Policy func(ID) ObjectPolicy
	// Gate makes the kinds that isolate or limit (NetworkPolicy and the policies of
	// Cilium and Calico, ResourceQuota, LimitRange, roles and their bindings) a
	// condition: when one of them fails, workloads of its namespace, or of every
	// namespace if it is cluster-scoped, wait.
	Gate bool
}

// ObjectPolicy decides how one object of a set is treated.
type ObjectPolicy int

// The policies.
const (
	// KeepAsStated creates and repairs the object.
	KeepAsStated ObjectPolicy = iota
	// CreateOnly creates the object if there is none of its name, and never changes
	// one that exists, of whatever origin.
	CreateOnly
	// LeaveOut does nothing. The object counts as stated: it is not pruned, and its
	// dependents wait until it is ready.
	LeaveOut
)

// membership is how a set treats an ID that it states.
type membership int

const (
	absent     membership = iota
	applicable            // it is applied
	leftOut               // LeaveOut: others write it
	invalid               // it cannot be applied
)

type item struct {
	// The fields that every pass reads come first, close together.
	at     view.Name
	group  int // index of the kind in Set.kinds
	hash   diff.Sum
	after  []ID // its dependencies
	rank   rank
	policy ObjectPolicy
	id     ID
	kind   schema.GroupVersionKind
	body   wire.Body // with the owner's labels and the hash annotation
	create wire.Body // body with the ignored fields; nil: there are none

	placed bool // rank is final
}

// NewSet makes the desired state of an owner. It copies the objects, which may
// hold whatever encoding/json can write, and adds the owner's labels and the
// hash annotation. A status is dropped, and so are labels and annotations that are
// null. The stringData of a Secret is applied as data, because changes to stringData by
// others could not be detected. The rules of a ClusterRole with an aggregationRule are
// dropped, because a controller fills them in.
//
// Objects are ordered by kind: definitions and namespaces first, routes and then
// admission webhooks last. An object may refine it with the annotation
// <Domain>/depends-on, a comma-separated list of IDs as [ID.String] writes them: it is
// applied after them, and not before they are ready ([Applier.Objects]).
//
// The set is valid together with an error: an object that cannot be applied
// (no kind, no name or one that is no path segment, a second object with the same
// ID in whatever version, a field that only the server may set, a dependency on
// itself, another part's label, more than 3 MiB, the limit of a server) is left out and
// named in the error, and the others are in the set. Objects left out still count as
// desired: they are not pruned, and a set with an object whose name is unknown prunes
// nothing. Only an invalid owner or part gives no set.
func NewSet(owner Owner, objects []*unstructured.Unstructured, options SetOptions) (*Set, error) {
	if err := owner.validate(); err != nil {
		return nil, err
	}
	if err := options.validate(owner); err != nil {
		return nil, err
	}
	s := &Set{
		owner:   owner.clone(),
		options: options,
		part:    view.PartOf(options.Part),
		items:   make([]item, 0, len(objects)),
		ids:     make(map[ID]membership, len(objects)),
	}
	var errs []error
	var parent *unstructured.Unstructured
	versions := map[ID][]string{} // of those stated more than once
	first := make(map[ID]string, len(objects))
	for i, object := range objects {
		id, err := identify(object)
		if err != nil {
			s.nameless = true
			errs = append(errs, fmt.Errorf("object %d (%s): %w", i, id, err))
			continue
		}
		if _, seen := s.ids[id]; seen {
			versions[id] = append(versions[id], object.GetAPIVersion())
			continue
		}
		first[id] = object.GetAPIVersion()
		if id == s.owner.ApplySet {
			s.ids[id], parent = applicable, object
			continue
		}
		if s.ids[id] = s.membership(id); s.ids[id] == leftOut {
			continue
		}
		prepared, err := s.prepare(id, object)
		if err != nil {
			s.ids[id] = invalid
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		s.items = append(s.items, prepared)
	}
	s.empty = len(s.ids) == 0
	errs = append(errs, s.addParent(parent))
	for _, id := range slices.SortedFunc(maps.Keys(versions), ID.Compare) {
		s.ids[id] = invalid
		errs = append(
			errs,
			fmt.Errorf(
				"%s: stated more than once (%s); none of them is applied",
				id,
				strings.Join(append([]string{first[id]}, versions[id]...), ", "),
			),
		)
	}
	s.items = slices.DeleteFunc(s.items, func(it item) bool { return s.ids[it.id] != applicable })
	errs = append(errs, s.order())
	s.number()
	if s.parent != nil {
		s.members = s.findMembers()
	}
	return s, errors.Join(errs...)
}

func (o SetOptions) validate(owner Owner) error {
	switch {
	case owner.PartLabel == "" && o.Part != "":
		return fmt.Errorf("apply: SetOptions.Part: is %q, must be empty without Owner.PartLabel", o.Part)
	case owner.PartLabel != "" && o.Part == "":
		return fmt.Errorf("apply: SetOptions.Part: is required with Owner.PartLabel, %s", owner.PartLabel)
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

// number gives each item the index of its kind.
func (s *Set) number() {
	index := map[schema.GroupKind]int{}
	for i := range s.items {
		kind := s.items[i].id.GroupKind()
		at, ok := index[kind]
		if !ok {
			at = len(s.kinds)
			index[kind] = at
			s.kinds = append(s.kinds, kind)
		}
		s.items[i].group = at
	}
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
