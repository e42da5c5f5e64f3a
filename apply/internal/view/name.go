package view

import "unique"

// Name is an object's name within its kind. Objects of a namespace share its
// text.
type Name struct {
	namespace unique.Handle[string]
	name      string
}

// NameOf returns the name of an object; the namespace of a cluster-scoped one is
// empty.
func NameOf(namespace, name string) Name {
	return Name{unique.Make(namespace), name}
}

// Namespace returns the namespace, empty for a cluster-scoped object.
func (n Name) Namespace() string { return n.namespace.Value() }

// Name returns the name within the namespace.
func (n Name) Name() string { return n.name }
