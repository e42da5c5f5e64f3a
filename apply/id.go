package apply

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ID names an object of one API server. The version of its kind is no part of
// it: the same object is served in several.
type ID struct {
	Group, Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
}

// GroupKind returns the kind without a version.
func (id ID) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: id.Group, Kind: id.Kind}
}

// String returns the form Kind.group/namespace/name, without what is empty:
// Deployment.apps/shop/web, Namespace/shop.
func (id ID) String() string {
	var b strings.Builder
	b.WriteString(id.GroupKind().String())
	for _, part := range []string{id.Namespace, id.Name} {
		if part != "" {
			b.WriteByte('/')
			b.WriteString(part)
		}
	}
	return b.String()
}

// Compare orders IDs by group, kind, namespace and name.
func (id ID) Compare(other ID) int {
	return cmp.Or(
		cmp.Compare(id.Group, other.Group), cmp.Compare(id.Kind, other.Kind),
		cmp.Compare(id.Namespace, other.Namespace), cmp.Compare(id.Name, other.Name))
}
