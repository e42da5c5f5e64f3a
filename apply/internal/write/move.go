package write

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// lastApplied is the annotation in which kubectl keeps the object of its last
// client-side apply.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// moveFields changes the ownership of fields of a live object in one patch, and no
// field itself. Fields of superseded managers become ours, so that an apply removes
// those that are no longer stated. Fields that are left to others get a manager of
// their own, so that an apply without them does not reset them.
func (w *Writer) moveFields(ctx context.Context, t *Target, found *metav1.PartialObjectMetadata) error {
	return w.onCurrent(ctx, t, found, func(found *metav1.PartialObjectMetadata) error { return w.moveFieldsOf(ctx, t, found) })
}

func (w *Writer) moveFieldsOf(ctx context.Context, t *Target, found *metav1.PartialObjectMetadata) error {
	entries := slices.Clone(found.ManagedFields)
	taken, err := w.take(&entries, t, found.Annotations[lastApplied])
	if err != nil {
		return err
	}
	left, err := w.leave(&entries, t)
	if err != nil || !taken && !left {
		return err
	}
	metadata := map[string]any{"managedFields": entries}
	if taken && found.Annotations[lastApplied] != "" {
		metadata["annotations"] = map[string]any{lastApplied: nil}
	}
	return w.patchMetadata(ctx, t, found, metadata)
}

// Moved returns a live object with the fields of superseded managers as ours, as a
// write would find it.
func (w *Writer) Moved(t *Target, live *unstructured.Unstructured) *unstructured.Unstructured {
	entries := slices.Clone(live.GetManagedFields())
	if taken, err := w.take(&entries, t, live.GetAnnotations()[lastApplied]); err != nil || !taken {
		return live
	}
	moved := live.DeepCopy()
	moved.SetManagedFields(entries)
	return moved
}

// moves bounds how often a patch is repeated because the object has changed since it
// was read. A controller that reports its status does so a few times in a row.
const moves = 5

// onCurrent calls change with the object as read, and again with a fresh read if
// another program has changed it in between.
func (w *Writer) onCurrent(
	ctx context.Context,
	t *Target,
	found *metav1.PartialObjectMetadata,
	change func(*metav1.PartialObjectMetadata) error,
) error {
	err := change(found)
	for range moves - 1 {
		if !apierrors.IsConflict(err) {
			return err
		}
		next, failed := w.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
		if failed != nil {
			return errors.Join(err, failed)
		}
		if next.UID != found.UID {
			return err
		}
		found = next
		err = change(found)
	}
	return err
}

// patchMetadata sends one merge patch, guarded by UID and resourceVersion. found gets the new
// resourceVersion.
func (w *Writer) patchMetadata(ctx context.Context, t *Target, found *metav1.PartialObjectMetadata, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = found.UID, found.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	var answer *metav1.PartialObjectMetadata
	err = w.request(t, "patch", func() (err error) {
		answer, err = w.metadata(t).Patch(ctx, t.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: w.Owner.Manager})
		return err
	})
	if err != nil {
		return fmt.Errorf("moving the ownership of fields: %w", err)
	}
	found.ResourceVersion = answer.ResourceVersion
	return nil
}

// lastAppliedPath is the path of the annotation in a field set.
func lastAppliedPath() fieldpath.Path {
	return fieldpath.MakePathOrDie("metadata", "annotations", lastApplied)
}

// take makes the fields of superseded managers ours. If a manager wrote the
// annotation, whose text is applied, only the fields in the annotation become ours; its
// others are the server's defaults and lose their owner.
func (w *Writer) take(entries *[]metav1.ManagedFieldsEntry, t *Target, applied string) (bool, error) {
	union := &fieldpath.Set{}
	taken := false
	rest := (*entries)[:0:0]
	var ours *metav1.ManagedFieldsEntry
	for _, e := range *entries {
		superseded := w.Owner.Supersede(e)
		own := e.Manager == w.Owner.Manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil
		if !superseded && !own {
			rest = append(rest, e)
			continue
		}
		set, err := diff.Owned(&e)
		if err != nil {
			return false, fmt.Errorf("the fields of %s: %w", e.Manager, err)
		}
		if superseded && set.Has(lastAppliedPath()) {
			var stated map[string]any
			if err := utiljson.Unmarshal([]byte(applied), &stated); err != nil {
				stated = nil // an unreadable record removes nothing
			}
			set = diff.Stated(stated, set)
		}
		union = union.Union(set)
		if own {
			ours = &e
		}
		taken = taken || superseded
	}
	if !taken {
		return false, nil
	}
	union = union.Difference(fieldpath.NewSet(lastAppliedPath()))
	next := metav1.ManagedFieldsEntry{
		Manager: w.Owner.Manager, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: t.Kind.GroupVersion().String(), FieldsType: "FieldsV1", Time: now(),
	}
	if ours != nil {
		next.APIVersion = ours.APIVersion
	} else if i := slices.IndexFunc(*entries, w.Owner.Supersede); i >= 0 {
		next.APIVersion = (*entries)[i].APIVersion
	}
	var err error
	if next.FieldsV1, err = fieldsOf(union); err != nil {
		return false, err
	}
	rest = append(rest, next)
	*entries = rest
	return true, nil
}

// leave moves the fields that an update leaves to others to a manager of their own,
// unless another manager owns them already.
func (w *Writer) leave(entries *[]metav1.ManagedFieldsEntry, t *Target) (bool, error) {
	if t.Create == nil {
		return false, nil
	}
	i := slices.IndexFunc(*entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == w.Owner.Manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil
	})
	if i < 0 {
		return false, nil
	}
	ours := (*entries)[i]
	owned, err := diff.Owned(&ours)
	if err != nil {
		return false, fmt.Errorf("the fields of %s: %w", ours.Manager, err)
	}
	given := t.Left.Covered(t.Create.Decode(), owned)
	for j, e := range *entries {
		if j == i || e.FieldsV1 == nil {
			continue
		}
		if others, err := diff.Owned(&e); err == nil {
			given = given.Difference(others)
		}
	}
	if given.Empty() {
		return false, nil
	}
	if ours.FieldsV1, err = fieldsOf(owned.Difference(given)); err != nil {
		return false, err
	}
	next := metav1.ManagedFieldsEntry{
		Manager: w.Owner.Manager + "-left", Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: ours.APIVersion, FieldsType: "FieldsV1", Time: now(),
	}
	if next.FieldsV1, err = fieldsOf(given); err != nil {
		return false, err
	}
	(*entries)[i] = ours
	*entries = append(*entries, next)
	return true, nil
}

func now() *metav1.Time {
	t := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	return &t
}

func fieldsOf(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	var b bytes.Buffer
	if err := set.ToJSONStream(&b); err != nil {
		return nil, err
	}
	return &metav1.FieldsV1{Raw: b.Bytes()}, nil
}

// outdated reports that the server cannot read an entry in the applied version: the entry
// has another version, and a field of one is not in the schema of the other. A field that
// only the applied object has wrong is no reason to move entries.
func outdated(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && !apierrors.IsInvalid(err) && strings.Contains(status.ErrStatus.Message, "field not declared in schema") &&
		!strings.Contains(status.ErrStatus.Message, "failed to create typed patch object")
}

// moveVersion changes the version of all entries to the applied one: the server converts
// the object to the version of each, and the kind's own controller may have written
// the status in the old one. It returns the cause if they are equal already.
func (w *Writer) moveVersion(ctx context.Context, t *Target, cause error) (moved bool, err error) {
	found, err := w.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
	if err != nil {
		return false, errors.Join(cause, err)
	}
	if string(found.UID) != t.UID {
		return false, cause
	}
	version := t.Kind.GroupVersion().String()
	err = w.onCurrent(ctx, t, found, func(found *metav1.PartialObjectMetadata) error {
		moved = false
		entries := slices.Clone(found.ManagedFields)
		for i := range entries {
			if e := &entries[i]; e.APIVersion != version {
				e.APIVersion, moved = version, true
			}
		}
		if !moved {
			return nil
		}
		return w.patchMetadata(ctx, t, found, map[string]any{"managedFields": entries})
	})
	switch {
	case err != nil:
		return false, errors.Join(cause, err)
	case !moved:
		return false, cause
	default:
		return true, nil
	}
}
