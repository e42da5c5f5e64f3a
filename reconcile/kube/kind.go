package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Kind selects the objects of one kind that a [Controller] watches.
type Kind struct {
	// Resource names the kind by its plural: {Version: "v1", Resource: "secrets"}.
	// Required.
	Resource schema.GroupVersionResource

	// Namespace restricts the watch to one namespace. Default all, which is also
	// the value for kinds without a namespace.
	Namespace string

	// LabelSelector and FieldSelector restrict the watch to the objects that they
	// select, in the form of kubectl's flags. An object that is not selected is
	// absent for the Controller. A label on all children keeps the other objects of
	// a cluster out of the cache. Default all.
	LabelSelector string
	FieldSelector string

	// Whole keeps the whole objects, so that a pass can read them without a
	// request. Default false: only the metadata is kept, which is enough to start a
	// pass for any change and to list what exists. With Controller.Metadata the
	// data of a Secret then never reaches this process.
	Whole bool

	// Drop names fields of whole objects that the cache does not keep, because no pass
	// reads them: paths of field names with dots between, separated by commas, such as
	// "spec.template,status.images". Objects are handed out without these fields, and
	// must therefore be written by patches only. A path ends at a field of a JSON
	// object; it does not go through lists, nor into metadata. Default none.
	Drop string
}

// dropped returns the paths of Drop.
func (k *Kind) dropped() (paths [][]string) {
	if k.Drop == "" {
		return nil
	}
	for path := range strings.SplitSeq(k.Drop, ",") {
		paths = append(paths, strings.Split(path, "."))
	}
	return paths
}

// Reference names an object that another object uses, whether or not it exists.
type Reference struct {
	// Resource is the kind, one of Controller.Referenced or the Controller's own.
	Resource schema.GroupVersionResource
	// Namespace is empty for kinds without one.
	Namespace string
	// Name of the object.
	Name string
}

func (r Reference) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// KeyOf returns the key of an object: its namespace and name.
func KeyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// validate returns an error that names the wrong field as a field of owner.
func (k *Kind) validate(owner string) error {
	if k.Resource.Empty() {
		return fmt.Errorf("kube: %s.Resource: is required", owner)
	}
	if k.Resource.Version == "" || k.Resource.Resource == "" {
		return fmt.Errorf("kube: %s.Resource: is %q, must have a version and the plural name of a resource", owner, k.Resource.String())
	}
	if _, err := labels.Parse(k.LabelSelector); err != nil {
		return fmt.Errorf("kube: %s.LabelSelector: is %q, must be a label selector: %w", owner, k.LabelSelector, err)
	}
	if _, err := fields.ParseSelector(k.FieldSelector); err != nil {
		return fmt.Errorf("kube: %s.FieldSelector: is %q, must be a field selector: %w", owner, k.FieldSelector, err)
	}
	for _, path := range k.dropped() {
		if slices.Contains(path, "") || slices.Contains([]string{"metadata", "apiVersion", "kind"}, path[0]) {
			return fmt.Errorf("kube: %s.Drop: is %q, must be paths such as spec.template, outside of metadata, separated by commas", owner, k.Drop)
		}
	}
	if k.Drop != "" && !k.Whole {
		return fmt.Errorf("kube: %s.Drop: is %q, must be empty without Whole: only metadata is cached", owner, k.Drop)
	}
	return nil
}

// describe adds to err the object, or with an empty key the kind.
func describe(resource schema.GroupVersionResource, key types.NamespacedName, err error) error {
	switch {
	case key.Name == "":
		return fmt.Errorf("kube: %s: %w", resource.GroupResource(), err)
	case key.Namespace == "":
		return fmt.Errorf("kube: %s %s: %w", resource.GroupResource(), key.Name, err)
	default:
		return fmt.Errorf("kube: %s %s: %w", resource.GroupResource(), key, err)
	}
}
