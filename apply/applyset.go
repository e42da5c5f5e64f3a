//trueup:pure

package apply

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// The labels and annotations of KEP-3659, by which kubectl and other tools see
// which objects belong together.
const (
	applySetPartOf     = "applyset.kubernetes.io/part-of"
	applySetID         = "applyset.kubernetes.io/id"
	applySetTooling    = "applyset.kubernetes.io/tooling"
	applySetKinds      = "applyset.kubernetes.io/contains-group-kinds"
	applySetNamespaces = "applyset.kubernetes.io/additional-namespaces"
)

// ApplySetID returns the ApplySet ID (KEP-3659) of an object that is the parent of
// one: the value of the label applyset.kubernetes.io/part-of of its members.
func (id ID) ApplySetID() string {
	h := sha256.Sum256([]byte(strings.Join([]string{id.Name, id.Namespace, id.Kind, id.Group}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(h[:]) + "-v1"
}

// join labels an object as a member of the owner's ApplySet, or as its parent.
func (o Owner) join(object *unstructured.Unstructured, labels map[string]string) {
	if id, err := identify(object); err == nil && id == o.ApplySet {
		labels[applySetID] = id.ApplySetID()
		return
	}
	labels[applySetPartOf] = o.ApplySet.ApplySetID()
}

// applySetParent is the object that stands for an ApplySet, without what depends on
// its members.
type applySetParent struct {
	item   item
	object *unstructured.Unstructured
	stated bool // the set states the parent; otherwise one is made, the same for all sets
}

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
	it := item{id: id, at: view.NameOf(id.Namespace, id.Name), kind: object.GroupVersionKind(), rank: at, placed: true}
	s.parent = &applySetParent{it, object, given}
	s.items = append(s.items, it)
	return nil
}

// members are the kinds and namespaces that the parent of an ApplySet lists.
type members struct{ kinds, namespaces map[string]bool }

// membersOf reads the annotations of a parent.
func membersOf(annotations map[string]string) members {
	read := func(key string) map[string]bool {
		found := map[string]bool{}
		for part := range strings.SplitSeq(annotations[key], ",") {
			if part = strings.TrimSpace(part); part != "" {
				found[part] = true
			}
		}
		return found
	}
	return members{read(applySetKinds), read(applySetNamespaces)}
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

// union returns the kinds and namespaces that are in either.
func (m members) union(other members) members {
	both := members{maps.Clone(m.kinds), maps.Clone(m.namespaces)}
	if both.kinds == nil {
		both.kinds = map[string]bool{}
	}
	if both.namespaces == nil {
		both.namespaces = map[string]bool{}
	}
	maps.Copy(both.kinds, other.kinds)
	maps.Copy(both.namespaces, other.namespaces)
	return both
}

// parentOf returns the item of the ApplySet's parent for these members.
func (s *Set) parentOf(m members) (item, error) {
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
	object.SetAnnotations(annotations)
	it := s.parent.item
	err := s.encode(&it, object)
	return it, err
}
