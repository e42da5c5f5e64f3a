package simtest

import "strings"

// Objects returns copies of the objects of a resource, such as "pods" or
// "widgets.example.com", sorted by namespace and name. A resource that the scenario does not
// have makes the history wrong.
func (w *World) Objects(resource string) []Object {
	all := w.AllStored(resource)
	for i := range all {
		all[i] = clone(all[i])
	}
	return all
}

// AllStored is as Objects without the copies: what it returns may not be changed. It is for what
// looks after each write, such as [Bound.Late], where copies would take most of the time.
func (w *World) AllStored(resource string) []Object {
	w.mustServe(resource)
	return w.objects(resource)
}

// objects returns what may not be changed.
func (w *World) objects(resource string) []Object {
	name, group, _ := strings.Cut(resource, ".")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	var all []Object
	for _, k := range w.server.keys(w.server.objects, selector{group: group, resource: name}) {
		all = append(all, w.server.objects[k])
	}
	return all
}

// Object returns a copy of an object, nil if it does not exist. namespace is empty
// for kinds without one.
func (w *World) Object(resource, namespace, name string) Object {
	return clone(w.Stored(resource, namespace, name))
}

// Stored is as Object without the copy: what it returns may not be changed.
func (w *World) Stored(resource, namespace, name string) Object {
	w.mustServe(resource)
	return w.object(resource, namespace, name)
}

// object returns what may not be changed.
func (w *World) object(resource, namespace, name string) Object {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return w.server.objects[keyTo(resource, namespace, name)]
}

func keyTo(resource, namespace, name string) key {
	plural, group, _ := strings.Cut(resource, ".")
	return key{group, plural, namespace, name}
}

// abandoned reports whether an object has owners, and all are gone.
func (w *World) abandoned(o Object) bool {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, r := range o.owners() {
		if owner, known := w.server.owner(key{namespace: o.Namespace()}, r); !known || owner != nil {
			return false
		}
	}
	return len(o.owners()) > 0
}
