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

// join makes an object a member of the owner's ApplySet, or its parent.
func (s *Set) join(id ID, object *unstructured.Unstructured) {
	if s.owner.ApplySet == (ID{}) {
		return
	}
	have := object.GetLabels()
	if have == nil {
		have = map[string]string{}
	}
	if id != s.owner.ApplySet {
		have[applySetPartOf] = s.owner.ApplySet.ApplySetID()
		object.SetLabels(have)
		return
	}
	have[applySetID] = id.ApplySetID()
	object.SetLabels(have)
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[applySetTooling] = s.owner.Manager + "/v1"
	annotations[applySetKinds] = strings.Join(s.memberKinds(), ",")
	if namespaces := s.memberNamespaces(); len(namespaces) > 0 {
		annotations[applySetNamespaces] = strings.Join(namespaces, ",")
	}
	object.SetAnnotations(annotations)
}

// parent adds the object that stands for the ApplySet, or completes it where the
// caller states it.
func (s *Set) parent(stated *unstructured.Unstructured) error {
	id := s.owner.ApplySet
	if id == (ID{}) {
		return nil
	}
	if stated == nil {
		if id.Group != "" || id.Kind != "ConfigMap" && id.Kind != "Secret" {
			s.ids[id] = false
			return fmt.Errorf("%s: the ApplySet's parent is not in the set, and only a ConfigMap or Secret can be made for it", id)
		}
		stated = &unstructured.Unstructured{Object: map[string]any{}}
		stated.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: id.Kind})
		stated.SetNamespace(id.Namespace)
		stated.SetName(id.Name)
	}
	it, err := s.prepare(id, stated)
	s.ids[id] = err == nil
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	// Before its members, as far as it can live before its namespace.
	it.rank = rank{stage: stageNamespaces, depth: 1}
	s.items = append(s.items, it)
	return nil
}

func (s *Set) memberKinds() []string {
	kinds := map[string]bool{}
	for id := range s.ids {
		if id != s.owner.ApplySet {
			kinds[id.GroupKind().String()] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

func (s *Set) memberNamespaces() []string {
	namespaces := map[string]bool{}
	for id := range s.ids {
		if id.Namespace != "" && id.Namespace != s.owner.ApplySet.Namespace {
			namespaces[id.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(namespaces))
}
