package operator

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// part is one kind of dependency that an Application has beside its workload.
type part struct {
	// name is the name of the step, such as database; condition its type.
	name, condition string
	enabled         bool
	// kinds are the kinds in its inventory.
	kinds []v1alpha1.ExternalKind
	// external names all that it has outside of the cluster when it is enabled.
	external []v1alpha1.External
	gate     gate
	// unset is why nothing of it can ever be made: the operator has no such service.
	unset error
	// apply makes the external objects as desired. It is called while the part is enabled.
	apply func(context.Context) error
	// note is what the condition says beside being true.
	note string
	// delete removes one thing outside, or leaves it as its policy says. What is not there
	// is no error.
	delete func(context.Context, v1alpha1.External) error
	// configs returns what the pods read. It is called when the part is usable.
	configs func(context.Context) ([]*unstructured.Unstructured, error)
	// child is its object in the cluster, removed after the external objects.
	child apply.ID

	err     error
	checked bool // the external objects were checked in this pass
}

// inventory returns the recorded external objects of the part in a status.
func (t *part) inventory(status []v1alpha1.External) (found []v1alpha1.External) {
	for _, e := range status {
		if slices.Contains(t.kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// made reports whether all that the part wants outside was seen complete, now or before.
func (t *part) made(status []v1alpha1.External) bool {
	for _, wanted := range t.external {
		if !slices.ContainsFunc(status, func(e v1alpha1.External) bool { return e.Kind == wanted.Kind && e.ID == wanted.ID && e.Made }) {
			return false
		}
	}
	return true
}

// usable reports whether pods may run with the part: it is as it should, or it was and
// cannot be looked at.
func (t *part) usable(status []v1alpha1.External) bool {
	return t.err == nil || len(t.external) > 0 && t.made(status)
}

// obsolete returns the recorded external objects of the part that are not wanted any more.
func (t *part) obsolete(status []v1alpha1.External) (found []v1alpha1.External) {
	for _, e := range t.inventory(status) {
		wanted := t.enabled && slices.ContainsFunc(t.external, func(w v1alpha1.External) bool { return e.Kind == w.Kind && e.ID == w.ID })
		if !wanted {
			found = append(found, e)
		}
	}
	return found
}

// remove deletes the recorded objects, in reverse order, and returns the remaining ones.
func (t *part) remove(ctx context.Context, recorded []v1alpha1.External) (left []v1alpha1.External, err error) {
	var failed []error
	for _, e := range slices.Backward(recorded) {
		if err := t.delete(ctx, e); err != nil {
			left, failed = append(left, e), append(failed, err)
		}
	}
	return left, errors.Join(failed...)
}

// inventory is what the pass records in a status: all that the status has, which may be of a later
// state than the one that the pass began with, but what the pass has removed.
func (p *pass) inventory(s *v1alpha1.ApplicationStatus) []v1alpha1.External {
	all := slices.Clone(p.external)
	for _, e := range s.External {
		same := func(o v1alpha1.External) bool { return o.Kind == e.Kind && o.ID == e.ID }
		if !slices.ContainsFunc(all, same) && !slices.ContainsFunc(p.gone, same) {
			all = append(all, e)
		}
	}
	return all
}

// drop takes what was recorded, and is not left, out of the inventory.
func (p *pass) drop(recorded, left []v1alpha1.External) {
	p.external = slices.DeleteFunc(p.external, func(e v1alpha1.External) bool {
		gone := slices.Contains(recorded, e) && !slices.Contains(left, e)
		if gone {
			p.gone = append(p.gone, e)
		}
		return gone
	})
}
