package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Set is a desired state: objects that are validated, labelled, ordered and
// hashed once, to be applied any number of times. It is immutable and safe for
// concurrent use. Make a new one only when the desired state changes: applying
// the same Set again is what costs next to nothing.
type Set struct {
	owner Owner
	items []item // by stage, then by ID
	ids   map[ID]struct{}
	// nameless is whether an object was left out whose ID is unknown: then
	// nothing can be said to be absent from the set.
	nameless bool
}

type item struct {
	id    ID
	kind  schema.GroupVersionKind
	stage int
	hash  diff.Sum
	body  []byte // JSON, with the owner's labels and the hash annotation
}

// NewSet makes the desired state of an owner. It copies the objects, which may
// hold whatever encoding/json can write, and adds the owner's labels and the
// hash annotation.
//
// The set is valid together with an error: an object that cannot be applied
// (no kind, no name, a second object with the same ID, a field that only the
// server may set) is left out and named in the error, and the others are in the
// set. Objects left out still count as wanted: they are not pruned, and a set
// with an object whose name is unknown prunes nothing. Only an invalid owner
// gives no set.
func NewSet(owner Owner, objects []*unstructured.Unstructured) (*Set, error) {
	if err := owner.validate(); err != nil {
		return nil, err
	}
	s := &Set{owner: owner.clone(), items: make([]item, 0, len(objects)), ids: make(map[ID]struct{}, len(objects))}
	var errs []error
	duplicates := map[ID]bool{}
	for i, object := range objects {
		id, ok := identify(object)
		if !ok {
			s.nameless = true
			errs = append(errs, fmt.Errorf("object %d (%s): apiVersion, kind and metadata.name are required", i, id))
			continue
		}
		if _, seen := s.ids[id]; seen {
			duplicates[id] = true
			continue
		}
		s.ids[id] = struct{}{}
		prepared, err := s.prepare(id, object)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		s.items = append(s.items, prepared)
	}
	s.items = slices.DeleteFunc(s.items, func(it item) bool { return duplicates[it.id] })
	for id := range duplicates {
		errs = append(errs, fmt.Errorf("%s: stated more than once; none of them is applied", id))
	}
	slices.SortFunc(s.items, func(a, b item) int {
		if a.stage != b.stage {
			return a.stage - b.stage
		}
		return a.id.Compare(b.id)
	})
	return s, errors.Join(errs...)
}

// Len returns how many objects the set can apply.
func (s *Set) Len() int { return len(s.items) }

// Has reports whether the set states the object, applicable or not.
func (s *Set) Has(id ID) bool {
	_, ok := s.ids[id]
	return ok
}

// identify returns the ID of an object, and whether it is complete.
func identify(object *unstructured.Unstructured) (ID, bool) {
	if object == nil || object.Object == nil {
		return ID{}, false
	}
	kind := object.GroupVersionKind()
	id := ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	return id, id.Kind != "" && kind.Version != "" && id.Name != ""
}

func (s *Set) prepare(id ID, object *unstructured.Unstructured) (item, error) {
	// Through JSON: a copy, with the number types that the API machinery
	// expects, and an error instead of a panic for what JSON cannot hold.
	data, err := json.Marshal(object.Object)
	if err != nil {
		return item{}, err
	}
	var desired unstructured.Unstructured
	if err := utiljson.Unmarshal(data, &desired.Object); err != nil {
		return item{}, err
	}
	if err := s.check(&desired); err != nil {
		return item{}, err
	}
	have := desired.GetLabels()
	if have == nil {
		have = map[string]string{}
	}
	for key, v := range s.owner.Labels {
		if stated, ok := have[key]; ok && stated != v {
			return item{}, fmt.Errorf("metadata.labels: %s is %q; the owner's is %q", key, stated, v)
		}
		have[key] = v
	}
	desired.SetLabels(have)
	hash, err := diff.Hash(desired.Object)
	if err != nil {
		return item{}, err
	}
	annotations := desired.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[s.owner.hashAnnotation()] = hash.String()
	desired.SetAnnotations(annotations)
	body, err := json.Marshal(desired.Object)
	if err != nil {
		return item{}, err
	}
	return item{id: id, kind: object.GroupVersionKind(), stage: stageOf(id.GroupKind()), hash: hash, body: body}, nil
}

// check refuses what only the server may set, and what the API machinery would
// quietly read as absent.
func (s *Set) check(desired *unstructured.Unstructured) error {
	metadata := desired.Object["metadata"].(map[string]any) // it held a name
	for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"} {
		if v, ok := metadata[key]; ok && v != nil {
			return fmt.Errorf("metadata.%s: is for the server to set; leave it out", key)
		}
		delete(metadata, key)
	}
	for _, key := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(desired.Object, "metadata", key); err != nil {
			return fmt.Errorf("metadata.%s: want a map of strings: %w", key, err)
		}
	}
	if id := desired.GetNamespace(); id != "" {
		for _, problem := range validation.IsDNS1123Label(id) {
			return fmt.Errorf("metadata.namespace: %q: %s", id, problem)
		}
	}
	return nil
}

// desired decodes the object of an item.
func (it *item) desired() (map[string]any, error) {
	var object map[string]any
	err := utiljson.Unmarshal(it.body, &object)
	return object, err
}
