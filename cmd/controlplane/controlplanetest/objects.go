package controlplanetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Objects are those that an agent makes in a simulated world, for its judge.
type Objects struct {
	Kinds []simtest.Kind
	// Own reports whether the agent has made an object.
	Own func(simtest.Object) bool
}

// Key returns kind, namespace and name of an object.
func Key(o simtest.Object) string {
	return fmt.Sprintf("%s %s/%s", o["kind"], o.Namespace(), o.Name())
}

// Wanted returns an object with this content, as a server reads it.
func Wanted(content any) (o simtest.Object) {
	data, err := json.Marshal(content)
	must(err)
	must(json.Unmarshal(data, &o))
	return o
}

// Resource returns the resource of a kind, which must be one of Kinds.
func (a Objects) Resource(kind string) string {
	for _, k := range a.Kinds {
		if k.Kind == kind {
			return strings.TrimRight(k.Resource+"."+k.Group, ".")
		}
	}
	panic(kind)
}

// In returns the agent's objects of a world.
func (a Objects) In(w *simtest.World) (all []simtest.Object) {
	for _, k := range a.Kinds {
		for _, o := range w.AllStored(a.Resource(k.Kind)) {
			if a.Own(o) {
				all = append(all, o)
			}
		}
	}
	return all
}

// Unlike returns which of the wanted objects, by their keys, are missing or are not as wanted.
// It compares what is stated, and is not the comparison of package diff, which it judges.
func (a Objects) Unlike(w *simtest.World, wanted map[string]simtest.Object) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		errs = append(errs, a.unlike(w, key, wanted[key]))
	}
	return errors.Join(errs...)
}

func (a Objects) unlike(w *simtest.World, key string, want simtest.Object) error {
	kind, _ := want["kind"].(string)
	live := w.Stored(a.Resource(kind), want.Namespace(), want.Name())
	if live == nil || live.Deleting() {
		return fmt.Errorf("%s is missing", key)
	}
	if at := differs(map[string]any(want), map[string]any(live)); at != "" {
		return fmt.Errorf("%s differs at %s", key, at)
	}
	return nil
}

// Late is the bound of time in which the wanted objects are there, as wanted.
func (a Objects) Late(within time.Duration, wanted func() map[string]simtest.Object) simtest.Bound {
	return simtest.Bound{What: "the cluster is as wanted", Within: within, Late: func(w *simtest.World) (late []string) {
		all := wanted()
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if a.unlike(w, key, all[key]) != nil {
				late = append(late, key)
			}
		}
		return late
	}}
}

// differs returns where a live value is not what is wanted, empty if it is.
func differs(want, live any) string {
	switch v := want.(type) {
	case map[string]any:
		m, _ := live.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if at := differs(v[name], m[name]); at != "" {
				return "." + name + at
			}
		}
		return ""
	case []any:
		l, _ := live.([]any)
		if len(l) != len(v) {
			return fmt.Sprintf(": %v, want %v", live, want)
		}
		for i := range v {
			if at := differs(v[i], l[i]); at != "" {
				return fmt.Sprintf("[%d]%s", i, at)
			}
		}
		return ""
	}
	if want != live {
		return fmt.Sprintf(": %v, want %v", live, want)
	}
	return ""
}

// Content returns a line with the key of an object and what it states, to compare worlds.
func Content(o simtest.Object) string {
	data, err := json.Marshal(map[string]any{"spec": o["spec"], "data": o["data"]})
	must(err)
	return Key(o) + " " + string(data)
}

// ByHand has a person change one of the agent's objects, chosen by n, as with kubectl. change
// returns what is done to it, nil to delete it.
func (a Objects) ByHand(w *simtest.World, n int, change func(o simtest.Object) func(simtest.Object)) {
	all := a.In(w)
	if len(all) == 0 {
		return
	}
	o, person := all[n%len(all)], w.As("person")
	kind, _ := o["kind"].(string)
	if edit := change(o); edit != nil {
		_ = person.Update(a.Resource(kind), o.Namespace(), o.Name(), edit) // it exists
		return
	}
	_ = person.Delete(a.Resource(kind), o.Namespace(), o.Name()) // it exists
}

// Annotate adds an annotation of a person to an object.
func Annotate(o simtest.Object) { o.Set("yes", "metadata", "annotations", "example.com/note") }

// Unlabel returns a change that removes a label.
func Unlabel(name string) func(simtest.Object) {
	return func(o simtest.Object) {
		labels, _ := o.Field("metadata", "labels").(map[string]any)
		delete(labels, name)
	}
}

// OtherImage has the pods of a workload run another image.
func OtherImage(o simtest.Object) {
	containers, _ := o.Field("spec", "template", "spec", "containers").([]any)
	for _, c := range containers {
		c.(map[string]any)["image"] = "example.com/rival" //nolint:forcetypeassert // a server takes no other
	}
}
