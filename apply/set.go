package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
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
	items []item      // by rank, then by ID
	ids   map[ID]bool // what is stated, and whether it can be applied
	empty bool        // nothing is stated, but perhaps an ApplySet
	// nameless is whether an object was left out whose ID is unknown: then
	// nothing can be said to be absent from the set.
	nameless bool
}

type item struct {
	id    ID
	kind  schema.GroupVersionKind
	after []ID // what it depends on
	rank  rank
	hash  diff.Sum
	body  []byte // as encode gives it, with the owner's labels and the hash annotation

	placed bool // rank says its place
}

// NewSet makes the desired state of an owner. It copies the objects, which may
// hold whatever encoding/json can write, and adds the owner's labels and the
// hash annotation. The stringData of a Secret is applied as data, because others'
// changes to it could not be told otherwise. To leave fields to others, take them
// out before ([diff.Ignore]).
//
// The order is that of the kinds: definitions and namespaces first, routes last.
// An object may refine it with the annotation <Domain>/depends-on, a
// comma-separated list of IDs as [ID.String] writes them: it is applied after
// them, and not before they are ready ([Applier.Objects]).
//
// The set is valid together with an error: an object that cannot be applied
// (no kind, no name, a second object with the same ID, a field that only the
// server may set, a dependency on itself, more than 3 MiB, which is what a server
// reads at most) is left out and named in the error, and the others are in the
// set. Objects left out still count as wanted: they are not pruned, and a set
// with an object whose name is unknown prunes nothing. Only an invalid owner
// gives no set.
func NewSet(owner Owner, objects []*unstructured.Unstructured) (*Set, error) {
	if err := owner.validate(); err != nil {
		return nil, err
	}
	s := &Set{owner: owner.clone(), items: make([]item, 0, len(objects)), ids: make(map[ID]bool, len(objects))}
	var errs []error
	var parent *unstructured.Unstructured
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
		if id == s.owner.ApplySet {
			s.ids[id], parent = true, object
			continue
		}
		prepared, err := s.prepare(id, object)
		s.ids[id] = err == nil
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
			continue
		}
		s.items = append(s.items, prepared)
	}
	s.empty = len(s.ids) == 0
	errs = append(errs, s.parent(parent))
	for _, id := range slices.SortedFunc(maps.Keys(duplicates), ID.Compare) {
		s.ids[id] = false
		errs = append(errs, fmt.Errorf("%s: stated more than once; none of them is applied", id))
	}
	s.items = slices.DeleteFunc(s.items, func(it item) bool { return !s.ids[it.id] })
	errs = append(errs, s.order())
	return s, errors.Join(errs...)
}

// Len returns how many objects the set can apply.
func (s *Set) Len() int { return len(s.items) }

// Has reports whether the set states the object, applicable or not.
func (s *Set) Has(id ID) bool {
	_, ok := s.ids[id]
	return ok
}

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
	desired.Object = diff.SecretData(desired.Object)
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
	s.join(id, &desired)
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
	after, err := s.owner.dependencies(annotations)
	if err != nil {
		return item{}, err
	}
	body, err := encode(desired.Object)
	if err != nil {
		return item{}, err
	}
	if len(body) > mostBytes {
		return item{}, fmt.Errorf("has %d bytes as JSON; an API server reads at most %d", len(body), mostBytes)
	}
	return item{
		id: id, kind: object.GroupVersionKind(), after: after, rank: rank{stage: stageOf(id.GroupKind())}, hash: hash, body: body,
	}, nil
}

// mostBytes is the limit of kube-apiserver on the body of a request. What it
// stores is limited further, by etcd, to half of that unless configured.
const mostBytes = 3 << 20

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

// bodyHead is what every encoded object begins with.
const bodyHead = `{"metadata":{`

// encode writes an object as JSON, its metadata first, so that a precondition can
// be put into it without decoding.
func encode(object map[string]any) ([]byte, error) {
	rest := maps.Clone(object)
	delete(rest, "metadata")
	head, err := json.Marshal(object["metadata"])
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(`{"metadata":`)+len(head)+len(tail))
	body = append(append(body, `{"metadata":`...), head...)
	return append(append(body, ','), tail[1:]...), nil // neither is empty: there are a name and a kind
}

// under returns the body of an apply of the object under a precondition.
func (it *item) under(must precondition) ([]byte, error) {
	if must.uid == "" {
		must.version = neverVersion
	}
	condition, err := json.Marshal(struct {
		UID     string `json:"uid,omitempty"`
		Version string `json:"resourceVersion,omitempty"`
	}{must.uid, must.version})
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(it.body)+len(condition))
	body = append(append(body, bodyHead...), condition[1:len(condition)-1]...)
	return append(append(body, ','), it.body[len(bodyHead):]...), nil
}

// desired decodes the object of an item.
func (it *item) desired() (map[string]any, error) {
	var object map[string]any
	err := utiljson.Unmarshal(it.body, &object)
	return object, err
}
