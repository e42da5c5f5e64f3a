package external

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Validate returns an error that names each field of the parts that is missing or wrong. It is
// marked with [reconcile.Terminal], since only another program cures it. [Pass.Plan], [Pass.Make],
// [Pass.Prune] and [Pass.Teardown] begin with it: they do nothing for a pass that is wrong.
func (p *Pass) Validate() error {
	if p.validated {
		return p.wrong
	}
	var wrong []error
	var before []string
	ofKind := map[string]string{}
	for i, t := range p.Parts {
		if t == nil {
			wrong = append(wrong, fmt.Errorf("external: Pass.Parts[%d]: is nil, must be a part", i))
			continue
		}
		wrong = append(wrong, t.validate(i, before)...)
		for _, kind := range t.Kinds {
			if other, taken := ofKind[kind]; taken {
				wrong = append(wrong, fmt.Errorf("external: Part %q.Kinds: has %q, must be kinds of no other part, and %q has it", t.Name, kind, other))
			}
			ofKind[kind] = t.Name
		}
		before = append(before, t.Name)
	}
	p.validated, p.wrong = true, reconcile.Terminal(errors.Join(wrong...))
	if p.wrong != nil { // who reads the parts after the error meets none that is nil
		p.Parts = slices.DeleteFunc(slices.Clone(p.Parts), func(t *Part) bool { return t == nil })
	}
	return p.wrong
}

// validate returns what is wrong in a part that comes after others.
func (t *Part) validate(at int, before []string) (wrong []error) {
	if t.Name == "" {
		return []error{fmt.Errorf("external: Pass.Parts[%d].Name: is empty, must be a name that no other part has", at)}
	}
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("external: Part %q."+format, append([]any{t.Name}, args...)...))
	}
	if slices.Contains(before, t.Name) {
		refuse("Name: is that of two parts, must be a name that no other part has")
	}
	for i, need := range t.Needs {
		if !slices.Contains(before, need) {
			refuse("Needs[%d]: is %q, must be the name of a part before it: %s", i, need, cmp.Or(strings.Join(before, ", "), "there is none"))
		}
	}
	if len(t.Kinds) > 0 && t.Delete == nil {
		refuse("Delete: is nil, must be a function: the part has Kinds")
	}
	for i, thing := range t.Things {
		if !slices.Contains(t.Kinds, thing.Kind) {
			refuse("Things[%d].Kind: is %q, must be one of Kinds: %s", i, thing.Kind, cmp.Or(strings.Join(t.Kinds, ", "), "there is none"))
		}
	}
	return wrong
}

// refuse reports whether the pass is wrong, and says so in each part by set.
func (p *Pass) refuse(set func(t *Part, wrong error)) bool {
	wrong := p.Validate()
	if wrong == nil {
		return false
	}
	for _, t := range p.Parts {
		set(t, wrong)
	}
	return true
}
