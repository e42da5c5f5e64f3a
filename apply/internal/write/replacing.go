package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// replacing writes by create, and, if the object exists, by reading and replacing it.
type replacing struct{ writer *Writer }

// maxTries bounds the attempts of a replacement while others change the object.
const maxTries = 4

// write creates the object. If it exists, it is read, the stated fields are put over
// it, and it is replaced in the version that was read. Any other error is returned.
func (r replacing) write(ctx context.Context, t *Target) (Done, *metav1.PartialObjectMetadata, error) {
	if t.UID == "" {
		answer, err := r.create(ctx, t)
		if !apierrors.IsAlreadyExists(err) {
			return created(answer, err)
		}
	}
	for range maxTries {
		done, answer, err := r.replace(ctx, t, wire.Must{})
		switch {
		case Gone(err):
			answer, err = r.create(ctx, t)
			if !apierrors.IsAlreadyExists(err) {
				return created(answer, err)
			}
		case !apierrors.IsConflict(err), t.From != "":
			return done, answer, err
		}
	}
	return Nothing, nil, fmt.Errorf("changed by others after each of %d reads", maxTries)
}

func created(answer *metav1.PartialObjectMetadata, err error) (Done, *metav1.PartialObjectMetadata, error) {
	if err != nil {
		return Nothing, nil, err
	}
	return Created, answer, nil
}

// writeIn creates the object or replaces it in one version, and nothing else.
func (r replacing) writeIn(ctx context.Context, t *Target, must wire.Must) (Done, *metav1.PartialObjectMetadata, error) {
	if must.UID == "" {
		answer, err := r.create(ctx, t)
		if apierrors.IsAlreadyExists(err) {
			return Nothing, nil, fmt.Errorf("%w: %w", ErrStale, err)
		}
		return created(answer, err)
	}
	done, answer, err := r.replace(ctx, t, must)
	if Gone(err) {
		return Nothing, nil, fmt.Errorf("%w: %w", ErrStale, err)
	}
	return done, answer, err
}

func (r replacing) create(ctx context.Context, t *Target) (*metav1.PartialObjectMetadata, error) {
	body := t.Body
	if t.Create != nil {
		body = t.Create
	}
	var answer *unstructured.Unstructured
	err := r.writer.request(t, "create", func() (err error) {
		answer, err = r.writer.object(t).Create(ctx, &unstructured.Unstructured{Object: body.Decode()},
			metav1.CreateOptions{FieldManager: r.writer.Owner.Manager})
		return err
	})
	if err != nil {
		return nil, err
	}
	return MetadataOf(answer), nil
}

// replace reads the object and writes it back as desired, unless nothing differs.
func (r replacing) replace(ctx context.Context, t *Target, must wire.Must) (Done, *metav1.PartialObjectMetadata, error) {
	found, err := r.writer.object(t).Get(ctx, t.Name, metav1.GetOptions{})
	if err != nil {
		return Nothing, nil, err
	}
	if err := r.writer.Claim(t, found); err != nil {
		return Nothing, nil, err
	}
	if must.Version != "" && found.GetResourceVersion() != must.Version {
		return Nothing, nil, fmt.Errorf("%w: it is in another version", ErrStale)
	}
	t.UID = string(found.GetUID())
	desired := t.Body.Decode()
	if t.From != "" && found.GetResourceVersion() != t.From {
		return Nothing, nil, apierrors.NewConflict(t.Resource.GroupResource(), t.Name, errors.New("others have changed it since it was read"))
	}
	if diff.States(found.Object, desired) && r.removes(t, found, desired) == 0 {
		return Nothing, MetadataOf(found), nil
	}
	var answer *unstructured.Unstructured
	err = r.writer.request(t, "update", func() (err error) {
		answer, err = r.writer.object(t).Update(ctx, &unstructured.Unstructured{Object: r.overlay(t, found.Object, desired)},
			metav1.UpdateOptions{FieldManager: r.writer.Owner.Manager})
		return err
	})
	if err != nil {
		return Nothing, nil, err
	}
	return Updated, MetadataOf(answer), nil
}

// rehearse sends the replacement as a dry run, of the version that was read or, if
// others change it meanwhile, of a later one.
func (r replacing) rehearse(ctx context.Context, t *Target, live metav1.Object) error {
	whole, ok := live.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	for try := 1; ; try++ {
		_, err := r.writer.object(t).Update(ctx, &unstructured.Unstructured{Object: r.overlay(t, whole.Object, t.Body.Decode())},
			metav1.UpdateOptions{FieldManager: r.writer.Owner.Manager, DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsConflict(err) || try == maxTries {
			return err
		}
		if whole, err = r.writer.object(t).Get(ctx, t.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// overlay returns the live object with the stated fields, and without fields that were
// stated once and no longer are. Fields that the server assigned, that others added, or
// that are left to others stay, and so does the resourceVersion. A list is replaced as
// a whole.
func (r replacing) overlay(t *Target, live, desired map[string]any) map[string]any {
	next := runtime.DeepCopyJSON(live)
	for _, path := range r.formerly(t, live, desired) {
		unstructured.RemoveNestedField(next, path...)
	}
	put(next, desired)
	return next
}

// put writes the stated fields into the live object.
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
func (r replacing) removes(t *Target, found *unstructured.Unstructured, desired map[string]any) int {
	n := 0
	for _, path := range r.formerly(t, found.Object, desired) {
		if _, there, err := unstructured.NestedFieldNoCopy(found.Object, path...); there && err == nil {
			n++
		}
	}
	return n
}

// formerly returns the fields outside of lists that our updates own, that are no longer
// stated, and that are not left to others. The server sets fields with a default again.
func (r replacing) formerly(t *Target, live, desired map[string]any) [][]string {
	object := unstructured.Unstructured{Object: live}
	wanted := unstructured.Unstructured{Object: desired}
	annotation := r.writer.Owner.HashAnnotation
	if object.GetAnnotations()[annotation] == wanted.GetAnnotations()[annotation] {
		return nil // the last write stated the same
	}
	var paths [][]string
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != r.writer.Owner.Manager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		owned, err := diff.Owned(&entry)
		if err != nil {
			continue // nothing is removed on the word of a broken record
		}
		owned = owned.Difference(t.Left.Covered(desired, owned))
		owned.Leaves().Iterate(func(path fieldpath.Path) {
			if names, ok := fieldNames(path); ok && !states(desired, names) {
				paths = append(paths, names)
			}
		})
	}
	return paths
}

// Replaceable returns an error if a field inside a list is left to others: a list is
// replaced as a whole, and such a field would be lost with it.
func Replaceable(t *Target) error {
	if t.Create == nil {
		return nil
	}
	if path, found := cutList(t.Create.Decode(), t.Body.Decode(), ""); found {
		return fmt.Errorf("a field in the list %s is left to others; without server-side apply, only the whole list can be", path)
	}
	return nil
}

// cutList returns a list that is not the same in both objects.
func cutList(create, later map[string]any, at string) (path string, found bool) {
	for _, key := range slices.Sorted(maps.Keys(later)) {
		switch v := later[key].(type) {
		case []any:
			if !reflect.DeepEqual(v, create[key]) {
				return at + "." + key, true
			}
		case map[string]any:
			if whole, ok := create[key].(map[string]any); ok {
				if path, found := cutList(whole, v, at+"."+key); found {
					return path, true
				}
			}
		}
	}
	return "", false
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
