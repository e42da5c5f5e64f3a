package simtest

import (
	"fmt"
	"slices"
	"strings"
)

// collector is the garbage collector and the controller of namespaces.
const collector = "garbage collector"

// collect does what these controllers do next, and returns the writes that were
// accepted. What it did may give it more to do.
func (s *Server) collect() (done []call) {
	s.mu.Lock()
	var todo []call
	dependents := s.dependents()
	for _, k := range s.keysOfAll() {
		todo = append(todo, s.chores(k, dependents)...)
	}
	s.mu.Unlock()
	for _, c := range todo {
		if a := s.serve(c); !a.failed() {
			done = append(done, c)
		}
	}
	return done
}

func (s *Server) keysOfAll() []key {
	all := make([]key, 0, len(s.objects))
	for k := range s.objects {
		all = append(all, k)
	}
	slices.SortFunc(all, compareKeys)
	return all
}

// dependents are the objects by the UIDs of their owners.
func (s *Server) dependents() map[string][]key {
	all := map[string][]key{}
	for _, k := range s.keysOfAll() {
		for _, r := range s.objects[k].owners() {
			all[r.text("uid")] = append(all[r.text("uid")], k)
		}
	}
	return all
}

// chores are the calls that an object gives rise to. The lock is held.
func (s *Server) chores(k key, dependents map[string][]key) []call {
	o := s.objects[k]
	mine := dependents[o.UID()]
	switch {
	case o.Deleting() && k.group == "" && k.resource == "namespaces":
		return s.empty(k, o)
	case o.Deleting() && o.heldBy(orphanFinalizer):
		var all []call
		for _, dependent := range mine {
			all = append(all, s.disown(dependent, []string{o.UID()}))
		}
		return append(all, s.release(k, orphanFinalizer))
	case o.Deleting() && o.heldBy(foregroundFinalizer):
		if !slices.ContainsFunc(mine, func(dependent key) bool { return s.objects[dependent].blocks(o.UID()) }) {
			return []call{s.release(k, foregroundFinalizer)}
		}
		return nil // its dependents are about to go
	case o.Deleting(), len(o.owners()) == 0:
		return nil
	}
	return s.judge(k, o, mine)
}

// judge decides about an object with owners.
func (s *Server) judge(k key, o Object, mine []key) []call {
	var solid, waiting, gone []string
	for _, r := range o.owners() {
		owner, known := s.owner(k, r)
		switch {
		case !known:
			solid = append(solid, r.text("uid"))
		case owner == nil:
			gone = append(gone, r.text("uid"))
		case owner.Deleting() && owner.heldBy(foregroundFinalizer):
			waiting = append(waiting, r.text("uid"))
		default:
			solid = append(solid, r.text("uid"))
		}
	}
	switch {
	case len(solid) > 0 && len(waiting)+len(gone) == 0:
		return nil
	case len(solid) > 0:
		return []call{s.disown(k, append(gone, waiting...))}
	}
	policy := "Background"
	switch {
	case len(waiting) > 0 && len(mine) > 0, o.heldBy(foregroundFinalizer):
		policy = "Foreground"
	case o.heldBy(orphanFinalizer):
		policy = "Orphan"
	}
	body := fmt.Sprintf(`{"propagationPolicy":%q,"preconditions":{"uid":%q}}`, policy, o.UID())
	return []call{s.local(collector, "delete", k, []byte(body))}
}

// owner returns the object that a reference of k is to, nil if there is none. known
// is whether the server has its kind.
func (s *Server) owner(k key, r Object) (owner Object, known bool) {
	group, _, found := strings.Cut(r.text("apiVersion"), "/")
	if !found {
		group = ""
	}
	is := func(kind Kind) bool { return kind.Group == group && kind.Kind == r.text("kind") }
	var kind Kind
	if i := slices.IndexFunc(s.Kinds, is); i >= 0 {
		kind = s.Kinds[i]
	} else if i := slices.IndexFunc(unasked, is); i >= 0 {
		kind = unasked[i]
	} else {
		return nil, false
	}
	at := key{kind.Group, kind.Resource, k.namespace, r.text("name")}
	if kind.Cluster {
		at.namespace = ""
	}
	if o := s.objects[at]; o.UID() == r.text("uid") {
		return o, true
	}
	return nil, true
}

func (o Object) heldBy(finalizer string) bool {
	return slices.Contains(o.list("metadata", "finalizers"), any(finalizer))
}

// blocks reports whether the deletion of an owner waits for the object.
func (o Object) blocks(owner string) bool {
	return slices.ContainsFunc(o.owners(), func(r Object) bool {
		return r.text("uid") == owner && r.Field("blockOwnerDeletion") == true
	})
}

// edit is a call that changes an object as it is now.
func (s *Server) edit(k key, subresource string, change func(Object)) call {
	o := clone(s.objects[k])
	change(o)
	o.drop("metadata", "resourceVersion") // others may have written in between
	body, err := encode(Object{"metadata": map[string]any{
		"finalizers": o.Field("metadata", "finalizers"), "ownerReferences": o.Field("metadata", "ownerReferences"), "uid": o.UID(),
	}})
	verb := "patch"
	if subresource != "" {
		verb = "update"
		body, err = encode(o)
	}
	if err != nil {
		body = nil // of what JSON has decoded: it cannot fail
	}
	c := s.local(collector, verb, k, body)
	c.Subresource = subresource
	return c
}

// release takes a finalizer from an object.
func (s *Server) release(k key, finalizer string) call {
	return s.edit(k, "", func(o Object) {
		left := slices.DeleteFunc(slices.Clone(o.list("metadata", "finalizers")), func(each any) bool { return each == finalizer })
		o.Set(left, "metadata", "finalizers")
	})
}

// disown takes the references to some owners from an object.
func (s *Server) disown(k key, owners []string) call {
	return s.edit(k, "", func(o Object) {
		left := slices.DeleteFunc(slices.Clone(o.list("metadata", "ownerReferences")), func(each any) bool {
			r, _ := each.(map[string]any)
			return slices.Contains(owners, Object(r).text("uid"))
		})
		o.Set(left, "metadata", "ownerReferences")
	})
}

// empty deletes what is in a namespace, and then lets it go.
func (s *Server) empty(k key, namespace Object) []call {
	var all []call
	content := false
	for _, each := range s.keysOfAll() {
		if each.namespace != k.name {
			continue
		}
		content = true
		if !s.objects[each].Deleting() {
			all = append(all, s.local(collector, "delete", each, nil))
		}
	}
	if content || len(namespace.list("spec", "finalizers")) == 0 {
		return all
	}
	return []call{s.edit(k, "finalize", func(o Object) { o.Set([]any{}, "spec", "finalizers") })}
}
