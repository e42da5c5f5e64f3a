//trueup:pure

package apply

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// addParent stores the parent of the ApplySet, and makes one if the set does not state
// it.
func (s *Set) addParent(stated *unstructured.Unstructured) error {
	id := s.owner.ApplySet
	if id == (ID{}) {
		return nil
	}
	given := stated != nil
	if !given {
		if id.Group != "" || id.Kind != "ConfigMap" && id.Kind != "Secret" {
			s.ids[id] = invalid
			return fmt.Errorf("%s: the ApplySet's parent is not in the set, and only a ConfigMap or Secret can be made for it", id)
		}
		stated = &unstructured.Unstructured{Object: map[string]any{}}
		stated.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: id.Kind})
		stated.SetNamespace(id.Namespace)
		stated.SetName(id.Name)
	}
	object, err := s.normalize(stated)
	if err != nil {
		s.ids[id] = invalid
		return fmt.Errorf("%s: %w", id, err)
	}
	if s.owner.PartLabel != "" { // the parent belongs to all parts
		labels := object.GetLabels()
		delete(labels, s.owner.PartLabel)
		object.SetLabels(labels)
	}
	s.ids[id] = applicable
	// Before its members, but not before its namespace.
	at := rank{stage: stageDefinitions, depth: -1}
	if s.Has(ID{Kind: "Namespace", Name: id.Namespace}) {
		at = rank{stage: stageNamespaces, depth: 1}
	}
	it := item{id: id, at: view.NameOf(id.Namespace, id.Name), kind: object.GroupVersionKind(), rank: at, placed: true, left: s.options.Ignore}
	s.parent = &applySetParent{it, object, given}
	s.items = append(s.items, it)
	return nil
}

// findMembers returns the members of the set.
func (s *Set) findMembers() members {
	found := members{map[string]bool{}, map[string]bool{}}
	for id := range s.ids {
		if id == s.owner.ApplySet {
			continue
		}
		found.kinds[id.GroupKind().String()] = true
		if id.Namespace != "" && id.Namespace != s.owner.ApplySet.Namespace {
			found.namespaces[id.Namespace] = true
		}
	}
	return found
}

// parentOf returns the item of the ApplySet's parent for these members. It is partial if
// there may be more that are not known.
func (s *Set) parentOf(m members, partial bool) (item, error) {
	object := s.parent.object.DeepCopy()
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[applySetTooling] = s.owner.Manager + "/v1"
	annotations[applySetKinds] = strings.Join(slices.Sorted(maps.Keys(m.kinds)), ",")
	if len(m.namespaces) > 0 {
		annotations[applySetNamespaces] = strings.Join(slices.Sorted(maps.Keys(m.namespaces)), ",")
	}
	if partial {
		annotations[s.owner.Domain+applySetPartial] = "true"
	}
	object.SetAnnotations(annotations)
	it := s.parent.item
	err := s.encode(&it, object.Object)
	return it, err
}
