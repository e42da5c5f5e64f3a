package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

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
	errs = append(errs, s.order(), s.handOver())
	s.number()
	s.hints.Store(newHints(len(s.kinds), len(s.items)))
	if s.parent != nil {
		s.members = s.findMembers()
	}
	return s, errors.Join(errs...)
}

// number sets three indexes for each item: of the item, of its kind, and of the kind whose objects
// take over its fields.
func (s *Set) number() {
	index := map[schema.GroupKind]int{}
	of := func(kind schema.GroupKind) int {
		at, ok := index[kind]
		if !ok {
			at = len(s.kinds)
			index[kind] = at
			s.kinds = append(s.kinds, kind)
		}
		return at
	}
	for i := range s.items {
		it := &s.items[i]
		it.number = i + 1
		if it.group = of(it.id.GroupKind()); it.handed != nil {
			it.handed.group = of(it.handed.by.GroupKind())
		}
		if last := len(s.runs) - 1; last >= 0 && s.runs[last].group == it.group {
			s.runs[last].end = i + 1
		} else {
			s.runs = append(s.runs, run{it.group, i, i + 1})
		}
	}
}
