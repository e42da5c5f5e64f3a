package simtest

import (
	"encoding/base64"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// What another client adds to objects of the program: an annotation, a key of the data, a container,
// or an environment variable.
const (
	addedAnnotation = "simtest/another"
	addedName       = "simtest-another"
	addedVariable   = "SIMTEST_ANOTHER"
)

// injected are the kinds into whose pod template others put something.
var injected = []string{"deployments.apps", "statefulsets.apps", "daemonsets.apps"} //nolint:gochecknoglobals // never changed

// addField lets another client add a field to the object of a request, or to another one, if the
// program has made it. It takes it back once there are no more faults, so that the end is that of a
// world without it.
func addField(w *World, r applytest.Request) {
	all := w.made()
	if len(all) == 0 {
		return
	}
	dice := w.dice("field of another")
	k := all[dice.IntN(len(all))]
	if slices.Contains(all, keyIn(r)) {
		k = keyIn(r)
	}
	kinds := additions(qualified(k.resource, k.group))
	_ = w.As(another).update(k, kinds[dice.IntN(len(kinds))]) // it may be one that does not change
	w.takeBackLater()
}

// made are the objects that the program has created, in order, without Leases and Events.
func (w *World) made() []key {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []key
	for k, o := range w.server.objects {
		if w.creators[o.UID()] == byProgram && !o.Deleting() && !incidental(k.group, k.resource) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, compareKeys)
	return all
}

// incidental reports whether a program writes objects of a kind beside its work.
func incidental(group, resource string) bool {
	return group == "coordination.k8s.io" || resource == "events"
}

// additions are what another client may add to an object of a resource.
func additions(resource string) []func(Object) {
	set := func(value string, path ...string) func(Object) { return func(o Object) { o.Set(value, path...) } }
	all := []func(Object){set("yes", "metadata", "annotations", addedAnnotation)}
	switch {
	case resource == "configmaps":
		return append(all, set("yes", "data", addedName))
	case resource == "secrets":
		return append(all, set(base64.StdEncoding.EncodeToString([]byte("yes")), "data", addedName))
	case slices.Contains(injected, resource):
		return append(all, addContainer, addVariable)
	}
	return all
}

func addContainer(o Object) {
	if slices.ContainsFunc(containersOf(o), func(c Object) bool { return c["name"] == addedName }) {
		return
	}
	all := o.list("spec", "template", "spec", "containers")
	o.Set(append(all, map[string]any{"name": addedName, "image": "example.com/sidecar:1"}), "spec", "template", "spec", "containers")
}

func addVariable(o Object) {
	for i, c := range containersOf(o) {
		if i == 0 && !slices.ContainsFunc(c.maps("env"), func(v Object) bool { return v["name"] == addedVariable }) {
			c["env"] = append(c.list("env"), map[string]any{"name": addedVariable, "value": "yes"})
		}
	}
}

// containersOf returns the containers of a pod template.
func containersOf(o Object) []Object { return o.maps("spec", "template", "spec", "containers") }

// takeBackLater plans that another client takes back what it has added, unless it is planned.
func (w *World) takeBackLater() {
	w.mu.Lock()
	planned := w.addition
	w.addition = true
	w.mu.Unlock()
	if !planned {
		w.After(10*time.Second, w.takeBack)
	}
}

func (w *World) takeBack() {
	w.mu.Lock()
	w.addition = false
	w.mu.Unlock()
	if w.faulty() {
		w.takeBackLater()
		return
	}
	for _, k := range w.made() {
		w.server.mu.Lock()
		live := w.server.objects[k]
		w.server.mu.Unlock()
		if left := clone(live); left.takeBack() {
			_ = w.As(another).update(k, func(o Object) { o.takeBack() }) // as above
		}
	}
}

// takeBack removes what another client has added, and reports whether there was any.
func (o Object) takeBack() bool {
	before := clone(o)
	o.drop("metadata", "annotations", addedAnnotation)
	o.drop("data", addedName)
	named := func(name string) func(any) bool {
		return func(each any) bool {
			m, _ := each.(map[string]any)
			return m["name"] == name
		}
	}
	if all := o.list("spec", "template", "spec", "containers"); slices.ContainsFunc(all, named(addedName)) {
		o.Set(slices.DeleteFunc(all, named(addedName)), "spec", "template", "spec", "containers")
	}
	for _, c := range containersOf(o) {
		if all := c.list("env"); slices.ContainsFunc(all, named(addedVariable)) {
			if c["env"] = slices.DeleteFunc(all, named(addedVariable)); len(c.list("env")) == 0 {
				delete(c, "env")
			}
		}
	}
	return !equal(before, o)
}
