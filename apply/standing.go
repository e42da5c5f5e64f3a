//trueup:pure

package apply

import (
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
