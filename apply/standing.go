//trueup:pure

package apply

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// standing has the objects that must be deleted and are still there, by what they need: the namespace, the definition of the
// kind, what they depend on and, as long as pods may run, what isolates and configures these.
type standing struct {
	unit   func(Observed) string         // of the guard; nil: there is none
	plural func(schema.GroupKind) string // <plural>.<group> of a kind; empty if unknown
	by     map[need]ID                   // one object for each need
	own    map[string]bool               // units with workloads of their own
	owners map[types.UID]bool            // workloads that take what they control with them
}

// need is what an object needs. One field is set, or namespace and one of running and ending.
type need struct {
	object     ID
	definition string
	namespace  string
	unit       string
	// running is for a workload that stays for now, and ending for one that is there until its deletion ends.
	running, ending bool
}

// anywhere is the namespace of what isolates or configures the workloads of all namespaces.
const anywhere = ""

// standing returns the objects that the plan does not delete now.
func (d *prunePlan) standing(plural func(schema.GroupKind) string) *standing {
	s := &standing{unit: d.unit, plural: plural, by: map[need]ID{}, own: map[string]bool{}, owners: map[types.UID]bool{}}
	for _, list := range [][]Observed{d.due, d.staying, d.ending} {
		for i := range list {
			if stageOf(list[i].ID.GroupKind()) == stageWorkloads {
				s.owners[list[i].UID] = true
				s.own[s.unitOf(&list[i])] = true
			}
		}
	}
	for i := range d.staying {
		s.add(&d.staying[i], d.after[d.staying[i].ID])
	}
	for i := range d.ending {
		s.end(&d.ending[i])
	}
	return s
}

func (s *standing) unitOf(o *Observed) string {
	if s.unit == nil {
		return ""
	}
	return s.unit(*o)
}

// add adds an object that stays. It depends on the objects of after.
func (s *standing) add(o *Observed, after []ID) {
	for _, id := range after {
		s.note(need{object: id}, o.ID)
	}
	s.note(need{object: ID{Kind: "Namespace", Name: o.ID.Namespace}}, o.ID)
	s.define(o)
	delete(s.owners, o.UID)
	if stageOf(o.ID.GroupKind()) == stageWorkloads {
		for _, namespace := range []string{anywhere, o.ID.Namespace} {
			s.note(need{namespace: namespace, running: true}, o.ID)
			s.note(need{namespace: namespace, running: true, unit: s.unitOf(o)}, o.ID)
		}
	}
}

// define notes that an object exists for now: without its definition it would not.
func (s *standing) define(o *Observed) {
	if plural := s.plural(o.ID.GroupKind()); plural != "" {
		s.note(need{definition: plural}, o.ID)
	}
}

// end adds an object that is there until its deletion ends.
func (s *standing) end(o *Observed) {
	if stageOf(o.ID.GroupKind()) == stageWorkloads {
		s.note(need{namespace: anywhere, ending: true}, o.ID)
		s.note(need{namespace: o.ID.Namespace, ending: true}, o.ID)
	}
}

// note stores the first object that has a need.
func (s *standing) note(n need, by ID) {
	if _, known := s.by[n]; !known {
		s.by[n] = by
	}
}

// needing returns an object that needs o, and false if there is none. A unit with workloads of its own has its
// configuration for itself.
func (s *standing) needing(o *Observed) (ID, bool) {
	kind := o.ID.GroupKind()
	needs := []need{{object: o.ID}}
	switch here := (need{namespace: o.ID.Namespace, running: true}); {
	case isDefinition(kind):
		needs = append(needs, need{definition: o.ID.Name})
	case s.isolates(o):
		needs = append(needs, here, need{namespace: o.ID.Namespace, ending: true})
	case stageOf(kind) == stageConfiguration:
		if unit := s.unitOf(o); s.own[unit] {
			here.unit = unit
		}
		needs = append(needs, here)
	}
	for _, n := range needs {
		if by, ok := s.by[n]; ok {
			return by, true
		}
	}
	return ID{}, false
}

// isolates reports whether an object isolates pods of others than its own controller, which takes it along.
func (s *standing) isolates(o *Observed) bool {
	return isolates(o.ID.GroupKind()) && !s.owners[o.Controller]
}

// settle takes out of the plan what an object needs that stays, and what isolates pods in a namespace that goes: the
// server deletes that after the pods. Until then it isolates them. Where it goes by itself, the workloads beside it are
// deleted in the foreground: they exist until their pods are gone.
func (d *prunePlan) settle(s *standing, options PruneOptions, closing func(namespace string) bool) {
	released := func(o *Observed) bool { return options.Orphan != nil && options.Orphan(*o) }
	going := map[string]bool{}
	for i := range d.due {
		if o := &d.due[i]; isNamespace(o.ID.GroupKind()) && !released(o) {
			going[o.ID.Name] = true
		}
	}
	d.within = map[string][]Observed{}
	blind := slices.ContainsFunc(d.unseen, func(u unseen) bool { return hasPods(u.kind) || isPod(u.kind) })
	d.due = slices.DeleteFunc(d.due, func(o Observed) bool {
		kind, namespace, isolates := o.ID.GroupKind(), o.ID.Namespace, s.isolates(&o)
		switch {
		case isolates && closing(namespace):
			s.define(&o)
			d.remaining++
			return true
		case isolates && going[namespace]:
			s.define(&o)
			d.within[namespace] = append(d.within[namespace], o)
			return true
		case isolates:
			d.isolate(o)
		}
		if _, needed := s.needing(&o); needed || isolates && blind { // pods may run that cannot be seen
			s.add(&o, d.after[o.ID])
			d.pending++
			if isNamespace(kind) {
				d.pending += len(d.within[o.ID.Name])
				going[o.ID.Name] = false
			}
			return true
		}
		if !released(&o) && (isPod(kind) || options.Propagation == "" || options.Propagation == metav1.DeletePropagationForeground) {
			s.end(&o)
		}
		return false
	})
}

// propagationOf returns what is to happen to the objects that one owns.
func (d *prunePlan) propagationOf(o *Observed, options PruneOptions) metav1.DeletionPropagation {
	isolated := d.foreground[o.ID.Namespace] || d.foreground[anywhere]
	if options.Propagation == "" && isolated && hasPods(o.ID.GroupKind()) {
		return metav1.DeletePropagationForeground
	}
	return options.Propagation
}
