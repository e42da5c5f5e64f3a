package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"
)

const applyPatch = types.ApplyYAMLPatchType // JSON is YAML

// PruneOptions say what [Applier.Prune] may delete. The zero value deletes
// nothing, because it does not state completeness.
type PruneOptions struct {
	// Complete states that the set is the whole desired state, as of now.
	// Without it Prune does nothing and returns [ErrIncomplete].
	Complete bool
	// AllowEmpty lets the set be empty. Without it Prune returns
	// [ErrKeepNothing] then.
	AllowEmpty bool
	// Keep, if set, protects objects that are not in the set, such as those of a
	// service whose wanted state could not be read.
	Keep func(Observed) bool
	// Gone, if set, reports that the desired state itself names the object as
	// deleted. Such an object needs no grace. Keep comes first.
	Gone func(Observed) bool
	// Grace, if set, says how long an object must be absent from complete sets
	// before it is deleted. Nil: no grace.
	Grace func(schema.GroupKind) Grace
	// Limit bounds the deletions of one call.
	Limit Limit
	// Orphan, if set, says which objects are not deleted but released: they stay
	// as they are, without the owner's labels. They count as deletions for the
	// limit.
	Orphan func(Observed) bool
	// Propagation says what happens to the objects that a deleted one owns. Empty
	// means background: the garbage collector deletes them afterwards.
	Propagation metav1.DeletionPropagation
}

// Grace is how long an object must be absent: in at least Passes consecutive
// calls of Prune, the first of which lies at least Age back.
type Grace struct {
	Passes int
	Age    time.Duration
}

// Limit is the greater of a number of objects and a share of the owned ones. Its
// zero value means 5 objects or 10 percent; a negative Count with no Percent
// lets nothing be deleted.
type Limit struct {
	Count   int
	Percent int
	// Off lifts the limit.
	Off bool
}

func (l Limit) of(owned int) int {
	switch {
	case l.Off:
		return owned
	case l == Limit{}:
		return max(5, owned*10/100)
	default:
		return max(0, l.Count, owned*l.Percent/100)
	}
}

// LimitError says that more objects were to be deleted than the limit allows,
// and that therefore none was.
type LimitError struct {
	Wanted, Limit, Owned int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d of %d objects are to be deleted; the limit is %d, so none was", e.Wanted, e.Owned, e.Limit)
}

// PruneReport is what one call of Prune did.
type PruneReport struct {
	// Results holds what was deleted or released, and what could not be.
	Results []Result
	// Held holds what would be deleted if the limit allowed it.
	Held []ID
	// Pending counts the objects that are absent and still in their grace.
	Pending int
	// Unproven holds objects that carry the owner's labels, are not wanted, and
	// are left, because nothing shows that we applied them: copies of ours, or
	// those of a kind whose server keeps no managedFields. What a controller made
	// for another object, and which got the labels by inheritance, is none.
	Unproven []ID
}

// absence is how long an object has been absent.
type absence struct {
	since  time.Time
	passes int
}

// Prune deletes the objects of the owner that the set does not state. An object
// is deleted only if it carries all the owner's labels and fields that our
// manager applied, if the view of its kind is complete, if nothing that is wanted
// or kept lives in it or is defined by it, nor anything of a kind whose view is
// not complete might, and if it still is the very object that the view shows: the
// request carries its UID and resourceVersion. Deletion is in reverse order, and a
// failed one stops no other.
//
// The report is valid with an error: [ErrIncomplete], [ErrKeepNothing] or a
// [*LimitError] when nothing was deleted at all, or the joined errors of the
// results.
func (a *Applier) Prune(ctx context.Context, set *Set, options PruneOptions) (PruneReport, error) {
	if err := a.prepare(set); err != nil {
		return PruneReport{}, err
	}
	if err := options.permit(set); err != nil {
		return PruneReport{}, err
	}
	doom := a.planPrune(set, options, time.Now())
	a.missing = doom.missing
	report := PruneReport{Results: doom.refused, Pending: doom.pending, Unproven: doom.unproven}
	if err := doom.over(options.Limit); err != nil {
		for _, d := range doom.doomed {
			report.Held = append(report.Held, d.ID)
		}
		return report, errors.Join(err, Report{Results: report.Results}.Err())
	}
	for doomed := range doom.ranks() {
		results := make([]Result, len(doomed))
		each(len(doomed), a.Concurrency, func(i int) {
			results[i] = a.discard(ctx, doomed[i], precondition{string(doomed[i].UID), fmt.Sprint(doomed[i].version)}, options)
		})
		report.Results = append(report.Results, results...)
	}
	return report, errors.Join(Report{Results: report.Results}.Err(), context.Cause(ctx))
}

// permit returns why nothing may be deleted at all.
func (o PruneOptions) permit(set *Set) error {
	switch {
	case !o.Complete || set.nameless:
		return ErrIncomplete
	case set.empty && !o.AllowEmpty:
		return ErrKeepNothing
	default:
		return nil
	}
}

// discard deletes or releases one object.
func (a *Applier) discard(ctx context.Context, o Observed, must precondition, options PruneOptions) Result {
	v := a.Live.views[o.ID.GroupKind()]
	n := name{o.ID.Namespace, o.ID.Name}
	v.began(n)
	defer v.ended(n, true)
	action, send := Deleted, func() error { return a.remove(ctx, v, o.ID, must, options.Propagation) }
	if options.Orphan != nil && options.Orphan(o) {
		action, send = Released, func() error { return a.release(ctx, v, o.ID, must) }
	}
	err := send()
	if err != nil && !apierrors.IsNotFound(err) {
		return Result{o.ID, Failed, err}
	}
	v.change(n, func(r *record) {
		if r != nil && r.uid == packUID(o.UID) {
			r.pruned = true
		}
	})
	return Result{ID: o.ID, Action: action}
}

// remove sends one deletion.
func (a *Applier) remove(ctx context.Context, v *view, id ID, must precondition, propagation metav1.DeletionPropagation) error {
	propagation = cmp.Or(propagation, metav1.DeletePropagationBackground)
	uid := types.UID(must.uid)
	conditions := &metav1.Preconditions{UID: &uid}
	if must.version != "" {
		conditions.ResourceVersion = &must.version
	}
	start := time.Now()
	err := a.resource(v, id).Delete(ctx, id.Name, metav1.DeleteOptions{Preconditions: conditions, PropagationPolicy: &propagation})
	a.wrote(Write{ID: id, Verb: "delete", Duration: time.Since(start), Err: err})
	return err
}

// release takes our marks off an object.
func (a *Applier) release(ctx context.Context, v *view, id ID, must precondition) error {
	labels := map[string]any{applySetPartOf: nil}
	for key := range a.Live.Owner.Labels {
		labels[key] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": must.uid, "resourceVersion": must.version, "labels": labels,
		"annotations": map[string]any{a.Live.Owner.hashAnnotation(): nil, a.Live.Owner.dependsOnAnnotation(): nil},
	}})
	if err != nil {
		return err
	}
	start := time.Now()
	_, err = a.resource(v, id).Patch(ctx, id.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: a.Live.Owner.Manager})
	a.wrote(Write{ID: id, Verb: "patch", Duration: time.Since(start), Err: err})
	return err
}

// resource reaches the resource of an object's kind, in its namespace.
func (a *Applier) resource(v *view, id ID) clientmetadata.ResourceInterface {
	v.mu.RLock()
	defer v.mu.RUnlock()
	resource := a.Live.Client.Resource(v.mapping.Resource)
	if id.Namespace == "" {
		return resource
	}
	return resource.Namespace(id.Namespace)
}
