package apply

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// upsertTries bounds how often a replacement is tried that others overtake.
const upsertTries = 4

func (a *Applier) upserts(it *item) bool {
	return a.Upsert != nil && a.Upsert(it.id.GroupKind())
}

// upsert creates the object; if it exists, it is read, and replaced by itself
// with what the set states, in the version that was read. Any other error is
// returned.
func (p *pass) upsert(ctx context.Context, v *view, it *item) (Action, error) {
	desired, err := it.desired()
	if err != nil {
		return Failed, err
	}
	exists := false
	v.read(name{it.id.Namespace, it.id.Name}, func(r *record) { exists = r != nil })
	if !exists {
		err := p.create(ctx, v, it)
		if !apierrors.IsAlreadyExists(err) {
			return p.outcome(it, precondition{}, err)
		}
	}
	for range upsertTries {
		action, err := p.replace(ctx, v, it, desired, precondition{})
		switch {
		case apierrors.IsNotFound(err):
			err = p.create(ctx, v, it)
			if !apierrors.IsAlreadyExists(err) {
				return p.outcome(it, precondition{}, err)
			}
		case !apierrors.IsConflict(err):
			return action, err
		}
	}
	return Failed, fmt.Errorf("replaced by others each time that it was read, %d times", upsertTries)
}

// upsertPlanned creates the object or replaces it in one version, and nothing
// else.
func (p *pass) upsertPlanned(ctx context.Context, v *view, it *item, must precondition) (Action, error) {
	if must.uid == "" {
		err := p.create(ctx, v, it)
		if apierrors.IsAlreadyExists(err) {
			return Refused, fmt.Errorf("%w: %w", ErrStalePlan, err)
		}
		return p.outcome(it, must, err)
	}
	desired, err := it.desired()
	if err != nil {
		return Failed, err
	}
	action, err := p.replace(ctx, v, it, desired, must)
	if apierrors.IsNotFound(err) {
		return Refused, fmt.Errorf("%w: %w", ErrStalePlan, err)
	}
	return action, err
}

func (p *pass) create(ctx context.Context, v *view, it *item) error {
	desired, err := it.desired()
	if err != nil {
		return err
	}
	start := time.Now()
	answer, err := p.object(v, it.id).Create(ctx, &unstructured.Unstructured{Object: desired},
		metav1.CreateOptions{FieldManager: p.Live.Owner.Manager})
	p.wrote(Write{ID: it.id, Verb: "create", Duration: time.Since(start), Err: err})
	if err != nil {
		return err
	}
	v.wrote(metadataOf(answer), it.hash)
	return nil
}

// replace reads the object and writes it back as wanted, unless it is.
func (p *pass) replace(ctx context.Context, v *view, it *item, desired map[string]any, must precondition) (Action, error) {
	found, err := p.object(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{})
	if err != nil {
		return Failed, err
	}
	if err := p.claim(found); err != nil {
		return p.outcome(it, precondition{}, err)
	}
	if must.version != "" && found.GetResourceVersion() != must.version {
		return Refused, fmt.Errorf("%w: it is in another version", ErrStalePlan)
	}
	must.uid = string(found.GetUID())
	if diff.States(found.Object, desired) && p.removes(found, desired) == 0 {
		v.wrote(metadataOf(found), it.hash)
		return unchanged, nil
	}
	start := time.Now()
	answer, err := p.object(v, it.id).Update(ctx, &unstructured.Unstructured{Object: p.overlay(found.Object, desired)},
		metav1.UpdateOptions{FieldManager: p.Live.Owner.Manager})
	p.wrote(Write{ID: it.id, Verb: "update", Duration: time.Since(start), Err: err})
	if p.recreatable(it.id.GroupKind()) && immutable(err) {
		return p.recreate(ctx, v, it, must, err)
	}
	if err != nil {
		if apierrors.IsConflict(err) {
			return Failed, err
		}
		return p.outcome(it, must, err)
	}
	v.wrote(metadataOf(answer), it.hash)
	return Updated, nil
}

// overlay returns the live object with what is stated put over it and without
// what we once stated and no longer do. What the server assigned, and what others
// added, stays; so does the resourceVersion. Lists are replaced as wholes.
func (p *pass) overlay(live, desired map[string]any) map[string]any {
	next := runtime.DeepCopyJSON(live)
	for _, path := range p.formerly(live, desired) {
		unstructured.RemoveNestedField(next, path...)
	}
	put(next, runtime.DeepCopyJSON(desired))
	return next
}

// put lays the stated fields over an object.
func put(live, desired map[string]any) {
	for key, v := range desired {
		stated, isMap := v.(map[string]any)
		have, hasMap := live[key].(map[string]any)
		if isMap && hasMap {
			put(have, stated)
			continue
		}
		live[key] = v
	}
}

// removes counts the fields that an overlay takes away.
func (p *pass) removes(found *unstructured.Unstructured, desired map[string]any) int {
	n := 0
	for _, path := range p.formerly(found.Object, desired) {
		if _, there, err := unstructured.NestedFieldNoCopy(found.Object, path...); there && err == nil {
			n++
		}
	}
	return n
}

// formerly returns the fields outside of lists that our updates own and that
// are no longer stated. The server sets those again that have a default.
func (p *pass) formerly(live, desired map[string]any) [][]string {
	object := unstructured.Unstructured{Object: live}
	if p.hashOf(&object) == p.hashOf(&unstructured.Unstructured{Object: desired}) {
		return nil // we stated the same the last time
	}
	var paths [][]string
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != p.Live.Owner.Manager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		owned, err := diff.Owned(&entry)
		if err != nil {
			continue // nothing is removed on the word of a broken record
		}
		owned.Leaves().Iterate(func(path fieldpath.Path) {
			if names, ok := fieldNames(path); ok && !states(desired, names) {
				paths = append(paths, names)
			}
		})
	}
	return paths
}

func (p *pass) hashOf(object *unstructured.Unstructured) string {
	return object.GetAnnotations()[p.Live.Owner.hashAnnotation()]
}

func fieldNames(path fieldpath.Path) ([]string, bool) {
	names := make([]string, 0, len(path))
	for _, at := range path {
		if at.FieldName == nil {
			return nil, false
		}
		names = append(names, *at.FieldName)
	}
	return names, true
}

func states(desired map[string]any, path []string) bool {
	_, there, err := unstructured.NestedFieldNoCopy(desired, path...)
	return there || err != nil
}

// same reports, for a kind without managedFields, whether the live object states
// what is wanted, and remembers it if so.
func (p *pass) same(ctx context.Context, v *view, it *item) bool {
	if p.Objects == nil {
		return false
	}
	found, err := p.object(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{})
	if err != nil || diff.Tracked(found.Object) {
		return false // a write settles it
	}
	desired, err := it.desired()
	if err != nil || !diff.States(found.Object, desired) {
		return false
	}
	v.wrote(metadataOf(found), it.hash)
	return true
}

// metadataOf returns what the live view holds of an object.
func metadataOf(object *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		DeletionTimestamp: object.GetDeletionTimestamp(), Labels: maps.Clone(object.GetLabels()),
		Annotations: object.GetAnnotations(), ManagedFields: object.GetManagedFields(),
	}}
}
