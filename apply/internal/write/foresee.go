package write

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Supersedes reports whether a write would take over fields of superseded managers.
func (w *Writer) Supersedes(live *unstructured.Unstructured) bool {
	return w.Objects != nil && w.Owner.Superseded(live.GetManagedFields())
}

// Foresee returns the object as the server would store it after an apply that no longer
// states the fields at these paths: they may return to a default. It sends a dry run of the
// apply, and if there are such fields one more, of a replacement of its result without them:
// the first does not know that they would be ours.
func (w *Writer) Foresee(
	ctx context.Context,
	t *Target,
	live *unstructured.Unstructured,
	paths []string,
) (*unstructured.Unstructured, error) {
	data, err := t.Body.Under(wire.Must{UID: string(live.GetUID())})
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		applied, err := w.object(t).Patch(ctx, t.Name, types.ApplyYAMLPatchType, data, metav1.PatchOptions{
			FieldManager: w.Owner.Manager, Force: new(true), DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationIgnore,
		})
		if err != nil || len(paths) == 0 {
			return applied, err
		}
		removed, err := diff.NewIgnore(diff.Rule{Paths: paths})
		if err != nil {
			return nil, err
		}
		without := &unstructured.Unstructured{Object: removed.Strip(applied.Object)}
		foreseen, err := w.object(t).Update(ctx, without, metav1.UpdateOptions{FieldManager: w.Owner.Manager, DryRun: []string{metav1.DryRunAll}})
		if try == foreseeTries || !apierrors.IsConflict(err) { // perhaps only its status has changed
			return foreseen, err
		}
	}
}

// foreseeTries bounds the attempts while others change the object.
const foreseeTries = 4
