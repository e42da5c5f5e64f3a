package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// write makes one object as wanted.
func (p *pass) write(ctx context.Context, it *item) (Action, error) {
	if err := p.selected(it); err != nil {
		return Refused, err
	}
	if err := p.await(ctx, it); err != nil {
		return Waiting, err
	}
	v := p.Live.views[it.id.GroupKind()]
	n := name{it.id.Namespace, it.id.Name}
	var must precondition
	var bare, retaken bool
	v.read(n, func(r *record) {
		if r != nil {
			must.uid, bare = r.uid.String(), r.bare && !v.managed
			retaken = !r.unknown() && r.hash == it.hash && r.foreign()
		}
	})
	v.began(n)
	defer v.ended(n, false)
	if p.upserts(it) {
		return p.upsert(ctx, v, it)
	}
	if bare && p.same(ctx, v, it) {
		return unchanged, nil
	}
	if p.Conflicts != ForceConflicts || !retaken {
		return p.applyOnce(ctx, v, it, must, p.Conflicts == ForceConflicts)
	}
	force, err := p.fights.enter(it.id, p.now)
	if err != nil {
		return Refused, err
	}
	action, err := p.applyOnce(ctx, v, it, must, force)
	if !force { // the server's refusal has named who it is
		return p.fights.leave(it.id, p.now, action, err)
	}
	return action, err
}

// selected reports an object that the view of its kind would never show.
func (p *pass) selected(it *item) error {
	if p.Live.Selector == nil {
		return nil
	}
	object := unstructured.Unstructured{Object: p.stated(it)}
	return p.Live.selects(it.id.GroupKind(), object.GetLabels())
}

// applyOnce applies the object under the precondition, or, if the view was
// behind, under the one that a look at the server gives.
func (p *pass) applyOnce(ctx context.Context, v *view, it *item, must precondition, force bool) (Action, error) {
	err := p.send(ctx, v, it, must, force)
	if unmet(err) {
		// The object exists, or is another one by now.
		must, err = p.lookUp(ctx, v, it)
		if err == nil {
			err = p.send(ctx, v, it, must, force)
		}
	}
	if must.uid != "" && p.recreatable(it.id.GroupKind()) && immutable(err) {
		return p.recreate(ctx, v, it, must, err)
	}
	return p.outcome(it, must, err)
}

// outcome names how a write ended.
func (p *pass) outcome(it *item, must precondition, err error) (Action, error) {
	_, conflict := errors.AsType[*ConflictError](err)
	switch {
	case err == nil && must.uid == "":
		return Created, nil
	case err == nil:
		return Updated, nil
	case errors.Is(err, ErrTerminating):
		return Waiting, err
	case apierrors.HasStatusCause(err, namespaceTerminating):
		return Waiting, fmt.Errorf("%w: namespace %s: %w", ErrTerminating, it.id.Namespace, err)
	case errors.Is(err, ErrNotOurs) && p.Adoption == SkipForeign:
		return Skipped, nil
	case conflict, errors.Is(err, ErrNotOurs):
		return Refused, err
	case tooLarge(err):
		return Failed, fmt.Errorf("the object has %d bytes as JSON: %w", len(it.body), err)
	default:
		return Failed, err
	}
}

// namespaceTerminating is the cause that a server names when it creates nothing
// more in a namespace.
const namespaceTerminating = metav1.CauseType("NamespaceTerminating")

// send makes one server-side apply.
func (p *pass) send(ctx context.Context, v *view, it *item, must precondition, force bool) error {
	body, err := it.under(must)
	if err != nil {
		return err
	}
	start := time.Now()
	answer, err := p.resource(v, it.id).Patch(ctx, it.id.Name, applyPatch, body,
		metav1.PatchOptions{FieldManager: p.Live.Owner.Manager, Force: &force})
	p.wrote(Write{ID: it.id, Verb: "patch", Duration: time.Since(start), Err: err})
	if conflict := conflictOf(err); conflict != nil {
		return conflict
	}
	if err != nil {
		return err
	}
	v.wrote(answer, it.hash)
	return nil
}

func (a *Applier) wrote(w Write) {
	if a.OnWrite != nil {
		a.OnWrite(w)
	}
}
