package simtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Who makes changes, beside the user and the actors.
const (
	another   = "another client"
	backup    = "backup"
	byProgram = "program"
)

// touched, labelled and held are the annotation, the label and the finalizer that another client sets.
const (
	touched  = "simtest/touched"
	labelled = "simtest/labelled"
	held     = "simtest/held"
)

func touch(w *World, r applytest.Request) {
	if r.Writes() && r.Name != "" {
		number := w.served()
		// There may be no such object any more.
		_ = w.As(another).update(keyIn(r), func(o Object) { o.Set(fmt.Sprint(number), "metadata", "annotations", touched) })
	}
}

func label(w *World, r applytest.Request) {
	if r.Writes() && r.Name != "" {
		_ = w.As(another).update(keyIn(r), func(o Object) { o.Set("yes", "metadata", "labels", labelled) }) // likewise
	}
}

func hold(w *World, r applytest.Request) {
	k := keyIn(r)
	if o := w.server.stored(k); r.Writes() && r.Name != "" && o != nil && !o.Deleting() && !o.heldBy(held) {
		w.setHeld(k, true)
		w.freeLater(k)
	}
}

// setHeld puts the finalizer on an object that exists, or takes it away.
func (w *World) setHeld(k key, on bool) {
	_ = w.As(another).update(k, func(o Object) {
		finalizers := slices.DeleteFunc(slices.Clone(o.list("metadata", "finalizers")), func(f any) bool { return f == held })
		if on {
			finalizers = append(finalizers, held)
		}
		o.Set(finalizers, "metadata", "finalizers")
	})
}

// freeLater takes the finalizer away within ten seconds.
func (w *World) freeLater(k key) {
	length := time.Duration(1 + w.dice("hold").Int64N(int64(10*time.Second)))
	w.Disturb(time.Now().Add(length))
	w.After(length, func() {
		if o := w.server.stored(k); o != nil && o.heldBy(held) {
			w.setHeld(k, false)
		}
	})
}

// freed reports a finalizer of another client that the program has taken away.
func freed(c Change) error {
	if c.By != byProgram || c.Before == nil || !c.Before.heldBy(held) || c.After != nil && c.After.heldBy(held) {
		return nil
	}
	return fmt.Errorf("%s: it has taken away the finalizer of another client", c.Request)
}

func deleteDependent(w *World, r applytest.Request) {
	if r.Name == "" {
		return
	}
	k := keyIn(r)
	if o := w.server.stored(k); o != nil && o.Owner() != "" {
		_, _ = w.As(another).write("delete", k, nil) // likewise
	}
}

// stored returns an object, which must not be changed, or nil.
func (s *Server) stored(k key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k]
}

// held returns the objects that another client holds, in order.
func (s *Server) held() (keys []key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.objects {
		if o.heldBy(held) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func keyIn(r applytest.Request) key { return key{r.Group, r.Resource, r.Namespace, r.Name} }

// addReplica starts the program once more, if it elects a leader.
func addReplica(w *World, _ applytest.Request) {
	w.mu.Lock()
	leads := w.leads
	w.mu.Unlock()
	if leads {
		w.beside("another replica", w.scenario.Program)
	}
}

func runOlder(w *World, _ applytest.Request) {
	if w.scenario.Older != nil {
		w.beside("an older version", w.scenario.Older)
	}
}

// recreateKind deletes the objects of a custom kind. Those with finalizers stay until these
// are taken off, as they would with the definition.
func recreateKind(w *World, r applytest.Request) {
	kind, ok := w.server.kind(r.Group, "", r.Resource)
	if !ok || !kind.custom() {
		return
	}
	for _, o := range w.objects(r.Resource + "." + r.Group) {
		_ = w.As("definition").Delete(r.Resource+"."+r.Group, o.Namespace(), o.Name()) // it exists
	}
	w.server.endWatchesOf(r.Group, r.Resource)
}

// restoreStore restores a backup, which has at least what Scenario.Start has made. The actors look at each object that has changed.
func restoreStore(w *World, _ applytest.Request) {
	taken := later(w.start, time.Now().Add(-time.Duration(w.dice("backup").Int64N(int64(time.Minute)))))
	changes := w.server.restore(taken)
	w.Log("backup: %d objects restored", len(changes))
	w.collectLater()
	for _, k := range w.server.held() {
		w.freeLater(k) // what was taken away is back
	}
	for _, c := range changes {
		for _, act := range w.scenario.Actors {
			act(w, c)
		}
	}
	w.lateness()
}

// withNode calls a function with one of the Nodes, and a second one after a while.
func withNode(w *World, what string, now, then func(w *World, name string)) {
	if _, ok := w.server.kind("", "v1", "nodes"); !ok {
		return
	}
	dice := w.dice(what)
	if name, ok := pick(dice, w.objects("nodes")); ok {
		now(w, name)
		w.After(time.Duration(1+dice.Int64N(int64(2*time.Minute))), func() { then(w, name) })
	}
}

func pick(dice *rand.Rand, all []Object) (string, bool) {
	if len(all) == 0 {
		return "", false
	}
	return all[dice.IntN(len(all))].Name(), true
}

// become returns a function that sets the condition Ready of a Node.
func become(ready string) func(*World, string) {
	return func(w *World, name string) {
		_ = w.As("node controller").Update("nodes", "", name, func(o Object) { setCondition(o, "Ready", ready) }) // it may have gone
	}
}

func cordon(on bool) func(*World, string) {
	return func(w *World, name string) {
		_ = w.As("administrator").Update("nodes", "", name, func(o Object) { o.Set(on, "spec", "unschedulable") }) // likewise
	}
}

func flapNode(w *World, _ applytest.Request) {
	withNode(w, "flap", become("Unknown"), become("True"))
}

func cordonNode(w *World, _ applytest.Request) {
	withNode(w, "cordon", cordon(true), cordon(false))
}

func deleteNode(w *World, _ applytest.Request) {
	withNode(w, "delete node", func(w *World, name string) {
		_ = w.As("cloud-controller-manager").Delete("nodes", "", name) // it exists
	}, collectPods)
}
