//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// identify returns the ID of an object, or why it has none.
func identify(object *unstructured.Unstructured) (ID, error) {
	if object == nil || object.Object == nil {
		return ID{}, errors.New("it is empty")
	}
	kind := object.GroupVersionKind()
	if stated := object.GetAPIVersion(); stated != "" && kind.Version == "" {
		return ID{}, fmt.Errorf("apiVersion: is %q, must be a version or group/version", stated)
	}
	id := ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	switch {
	case id.Name == "" && object.IsList():
		return id, fmt.Errorf("kind: is %q, a list: state its items", id.Kind)
	case id.Kind == "" || kind.Version == "" || id.Name == "" && object.GetGenerateName() == "":
		return id, errors.New("apiVersion, kind and metadata.name are required")
	case id.Name == "":
		return id, errors.New("metadata.name is required: with metadata.generateName each apply would make another object")
	}
	return id, nil
}

// prepare makes the item of an object.
func (s *Set) prepare(id ID, object *unstructured.Unstructured) (item, error) {
	desired, err := s.normalize(object)
	if err != nil {
		return item{}, err
	}
	after, err := s.owner.dependencies(desired.GetAnnotations())
	if err != nil {
		return item{}, err
	}
	it := item{
		id: id, at: view.NameOf(id.Namespace, id.Name), kind: object.GroupVersionKind(),
		after: after, rank: rank{stage: stageOf(id.GroupKind())}, policy: s.policy(id), left: s.options.Ignore,
	}
	it.handed = s.handoverOf(id, desired.Object)
	it.static = readiness.InMetadata(desired)
	err = s.encode(&it, desired.Object)
	return it, err
}

// handoverOf returns the first handover of fields of an object, nil without one.
func (s *Set) handoverOf(id ID, desired map[string]any) *handed {
	for _, h := range s.options.Handover {
		by := h.By(id)
		if by == (ID{}) || reflect.ValueOf(h.Fields.Strip(desired)).Pointer() == reflect.ValueOf(desired).Pointer() {
			continue // it has none of the fields
		}
		return &handed{by: by, at: view.NameOf(by.Namespace, by.Name), fields: h.Fields}
	}
	return nil
}

// encode fills the bodies and the hash of an item.
func (s *Set) encode(it *item, desired map[string]any) error {
	later := it.left.Strip(desired)
	hash, err := diff.Hash(later)
	if err != nil {
		return err
	}
	it.hash = hash
	if it.body, err = s.sign(later, hash); err != nil {
		return err
	}
	if reflect.ValueOf(later).Pointer() == reflect.ValueOf(desired).Pointer() {
		return nil // nothing was stripped
	}
	it.create, err = s.sign(desired, hash)
	return err
}

// sign encodes an object with the hash annotation.
func (s *Set) sign(object map[string]any, hash diff.Sum) (wire.Body, error) {
	// The caller's object stays unchanged: copy only the maps that get the annotation.
	signed := maps.Clone(object)
	metadata, _ := object["metadata"].(map[string]any)
	metadata = copyOf(metadata)
	annotations, _ := metadata["annotations"].(map[string]any)
	annotations = copyOf(annotations)
	annotations[s.owner.hashAnnotation()] = hash.String()
	metadata["annotations"], signed["metadata"] = annotations, metadata
	body, err := wire.Encode(signed)
	if err != nil {
		return nil, err
	}
	if len(body) > maxBytes {
		return nil, fmt.Errorf("has %d bytes as JSON; an API server reads at most %d", len(body), maxBytes)
	}
	return body, nil
}

// copyOf copies a map, and makes one for nil.
func copyOf(m map[string]any) map[string]any {
	copied := make(map[string]any, len(m)+1)
	maps.Copy(copied, m)
	return copied
}

// maxBytes is the limit of kube-apiserver on the body of a request. etcd limits a
// stored object further, to half of that by default.
const maxBytes = 3 << 20

// normalize copies an object without the fields that it must not state, and with the
// labels of the owner.
func (s *Set) normalize(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	// A copy as JSON would have it: with the number types that the API machinery expects, and
	// an error instead of a panic for what JSON cannot hold.
	content, err := wire.Copy(object.Object)
	if err != nil {
		return nil, err
	}
	desired := unstructured.Unstructured{Object: content}
	if err := check(&desired); err != nil {
		return nil, err
	}
	delete(desired.Object, "status")
	desired.Object = diff.SecretData(desired.Object)
	if desired.GroupVersionKind().GroupKind() == clusterRole && desired.Object["aggregationRule"] != nil {
		delete(desired.Object, "rules") // a controller fills them in
	}
	have := desired.GetLabels()
	if have == nil {
		have = map[string]string{}
	}
	for key, v := range s.owner.Labels {
		if stated, ok := have[key]; ok && stated != v {
			return nil, fmt.Errorf("metadata.labels: %s is %q; the owner's is %q", key, stated, v)
		}
		have[key] = v
	}
	if key := s.owner.PartLabel; key != "" {
		if stated, ok := have[key]; ok && stated != s.options.Part {
			return nil, fmt.Errorf("metadata.labels: %s is %q; the part of the set is %q", key, stated, s.options.Part)
		}
		have[key] = s.options.Part
	}
	if s.owner.ApplySet != (ID{}) {
		s.owner.join(&desired, have)
	}
	desired.SetLabels(have)
	return &desired, nil
}

var clusterRole = schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"} //nolint:gochecknoglobals // constant

// check refuses fields that only the server may set, and values that the API machinery
// would silently read as absent. It drops labels and annotations that are null.
func check(desired *unstructured.Unstructured) error {
	metadata := desired.Object["metadata"].(map[string]any) // present: the object has a name
	for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"} {
		if v, ok := metadata[key]; ok && v != nil {
			return fmt.Errorf("metadata.%s: is for the server to set; leave it out", key)
		}
		delete(metadata, key)
	}
	for _, key := range []string{"labels", "annotations"} {
		dropNull(metadata, key)
		if _, _, err := unstructured.NestedStringMap(desired.Object, "metadata", key); err != nil {
			return fmt.Errorf("metadata.%s: want a map of strings: %w", key, err)
		}
	}
	for _, problem := range pathvalidation.IsValidPathSegmentName(desired.GetName()) {
		return fmt.Errorf("metadata.name: %q: %s", desired.GetName(), problem)
	}
	if namespace := desired.GetNamespace(); namespace != "" {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			return fmt.Errorf("metadata.namespace: %q: %s", namespace, problem)
		}
	}
	return nil
}

// dropNull removes the map if it is null, and null values in it.
func dropNull(metadata map[string]any, key string) {
	if v, ok := metadata[key]; ok && v == nil {
		delete(metadata, key)
	}
	stated, ok := metadata[key].(map[string]any)
	if !ok {
		return
	}
	for name, v := range stated {
		if v == nil {
			delete(stated, name)
		}
	}
}

// join labels an object as a member of the owner's ApplySet, or as its parent.
func (o Owner) join(object *unstructured.Unstructured, labels map[string]string) {
	if id, err := identify(object); err == nil && id == o.ApplySet {
		labels[applySetID] = id.ApplySetID()
		return
	}
	labels[applySetPartOf] = o.ApplySet.ApplySetID()
}
