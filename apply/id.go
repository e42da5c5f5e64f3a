//trueup:pure

package apply

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
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

// ParseID reads the form that [ID.String] writes. An object without a namespace
// is cluster-scoped: Namespace/shop, Deployment.apps/shop/web.
func ParseID(s string) (ID, error) {
	parts := strings.Split(s, "/")
	kind, group, _ := strings.Cut(parts[0], ".")
	id := ID{Group: group, Kind: kind}
	switch len(parts) {
	case 2:
		id.Name = parts[1]
	case 3:
		id.Namespace, id.Name = parts[1], parts[2]
	}
	if id.Kind == "" || id.Name == "" || len(parts) == 3 && id.Namespace == "" {
		return ID{}, fmt.Errorf("%q: want Kind.group/namespace/name, or Kind.group/name for a cluster-scoped object", s)
	}
	return id, nil
}

// ApplySetID returns the ApplySet ID (KEP-3659) of an object that is the parent of
// one: the value of the label applyset.kubernetes.io/part-of of its members.
func (id ID) ApplySetID() string {
	h := sha256.Sum256([]byte(strings.Join([]string{id.Name, id.Namespace, id.Kind, id.Group}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(h[:]) + "-v1"
}

// idOf returns the ID of the object of a change.
func idOf(c diff.Change) ID {
	kind := schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	return ID{Group: kind.Group, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}
