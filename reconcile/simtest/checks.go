package simtest

import (
	"fmt"
	"strings"
)

// Checks returns a Scenario.Check that calls each of some in turn.
func Checks(all ...func(*World, Change) error) func(*World, Change) error {
	return func(w *World, c Change) error {
		for _, check := range all {
			if err := check(w, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// NotAnothers is a Scenario.Check: the program changes and deletes objects of a
// resource, such as "widgets.example.com", only if they are its own.
func NotAnothers(resource string, own func(Object) bool) func(*World, Change) error {
	return func(w *World, c Change) error {
		w.mustServe(resource)
		if c.By == "program" && c.Before != nil && c.resource() == resource && !own(c.Before) {
			return fmt.Errorf("%s: not an object of the program", c.Request)
		}
		return nil
	}
}

// NeverMore is a Scenario.Check: when the program creates an object of a resource,
// at most limit objects with the same key exist. An object that is being deleted, or with an
// empty key, does not count.
func NeverMore(resource string, limit int, key func(Object) string) func(*World, Change) error {
	return func(w *World, c Change) error {
		w.mustServe(resource)
		if c.By != "program" || c.Before != nil || c.resource() != resource || key(c.After) == "" {
			return nil
		}
		n := 0
		for _, o := range w.AllStored(resource) {
			if !o.Deleting() && key(o) == key(c.After) {
				n++
			}
		}
		if n > limit {
			return fmt.Errorf("%s: there are %d of %s, and never may be more than %d", c.Request, n, key(c.After), limit)
		}
		return nil
	}
}

// NeverTwice is a Scenario.Check: the program does not create an object of a
// resource with the same key twice in a history, be the first one deleted or not. One
// whose owners are all gone when it is created does not count, as after the restore of a
// backup that the program has not seen yet: the garbage collector deletes it at once. It
// keeps what it has seen, so make it for each world.
func NeverTwice(resource string, key func(Object) string) func(*World, Change) error {
	seen := map[string]string{}
	return func(w *World, c Change) error {
		w.mustServe(resource)
		if c.By != "program" || c.Before != nil || c.resource() != resource || w.abandoned(c.After) {
			return nil
		}
		k := key(c.After)
		if first, ok := seen[k]; ok {
			return fmt.Errorf("%s is created as %s, and was as %s", k, c.After.Name(), first)
		}
		seen[k] = c.After.Name()
		return nil
	}
}

// NeverBefore is a Scenario.Check: no object of a resource is deleted by the program, or by the garbage collector with its
// owner, while an object of another resource, in the same namespace, exists that needs it: no NetworkPolicy before the pods
// that it selects, say. One that is being deleted exists until it is gone.
func NeverBefore(resource, other string, needs func(other, o Object) bool) func(*World, Change) error {
	return func(w *World, c Change) error {
		w.mustServe(resource)
		w.mustServe(other)
		switch by := c.By; {
		case by == byProgram && c.Request.Verb == "delete" && c.resource() == resource:
		case by == collector && c.After == nil && len(c.Before.owners()) > 0 && w.server.resourceOf(c.Before) == resource:
		default:
			return nil
		}
		for _, o := range w.AllStored(other) {
			if o.Namespace() == c.Before.Namespace() && needs(o, c.Before) {
				return fmt.Errorf("the %s deletes %s %s/%s: %s %s needs it", c.By, resource, o.Namespace(), c.Before.Name(), other, o.Name())
			}
		}
		return nil
	}
}

// TrueAtRest is a Scenario.Converged: all objects of a resource that are not being
// deleted have a status condition that is True, of their own generation if it has
// one.
func TrueAtRest(resource, condition string) func(*World) error {
	return func(w *World) error {
		for _, o := range w.AllStored(resource) {
			if o.Deleting() {
				continue
			}
			c := o.condition(condition)
			if c.text("status") != "True" {
				return fmt.Errorf("%s %s is not %s: %v", resource, o.Name(), condition, o.Field("status", "conditions"))
			}
			if c["observedGeneration"] != nil && c.number("observedGeneration") != o.number("metadata", "generation") {
				return fmt.Errorf("%s %s is %s of an old generation: %v", resource, o.Name(), condition, c)
			}
		}
		return nil
	}
}

// resource returns the resource of the request with its group, as World.Objects takes it.
func (c Change) resource() string { return qualified(c.Request.Resource, c.Request.Group) }

// mustServe makes the history wrong if the scenario asks for a resource that it does not have: a
// check of it would hold whatever the program does.
func (w *World) mustServe(resource string) {
	name, group, _ := strings.Cut(resource, ".")
	if k, served := w.server.kind(group, "", name); served && k.resource() == resource || w.failed() {
		return
	}
	var names []string
	for _, k := range w.server.served() {
		names = append(names, k.resource())
	}
	w.Blame("the scenario asks for %q, which is no resource of Scenario.Kinds; want one of %q", resource, names)
}
