// Package write makes one live object match one desired object: by server-side apply,
// by create and replace, or by deletion and creation. Before a write it checks whose
// the live object is, and it never writes to one that it has not read or named by UID.
package write

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Writer writes single objects. It is safe for concurrent use.
type Writer struct {
	Owner    *identity.Identity
	Metadata clientmetadata.Interface
	// Objects reaches whole objects; nil: only server-side apply works.
	Objects dynamic.Interface
	// OnRequest is called after each write request.
	OnRequest func(t *Target, verb string, took time.Duration, err error)
}

// Target is one desired object, and the observed state of the live one.
type Target struct {
	Resource        schema.GroupVersionResource
	Kind            schema.GroupVersionKind
	Namespace, Name string
	Body            wire.Body
	// Create is the body of a create, if it differs: it has the fields that an update
	// leaves to others.
	Create wire.Body
	// Left are the fields that are left to others after the create; the zero Ignore:
	// none.
	Left diff.Ignore
	Hash diff.Sum
	Part string

	UID        string // of the observed object; empty: there is none
	Version    string // its resourceVersion if it is as desired, as far as that is seen
	Lost       string // the version in which another program removed or unlabelled it
	LostUID    string // its UID then
	From       string // the version that the desired state was made from; empty: of any
	Bare       bool   // the live object has no managedFields
	Superseded bool   // a superseded manager has fields of the live object

	Force    bool // take fields that others own
	Adopt    bool // take over an object without an owner
	Recreate bool // delete and create again for an immutable field
	Upsert   bool // create and replace instead of server-side apply
}

// Done is how a write ended.
type Done int

// The ends of a write that succeeded.
const (
	Nothing Done = iota // the object is as desired already
	Created
	Updated
	Recreated
)

// Errors for conditions that callers branch on.
var (
	ErrNotOurs     = errors.New("belongs to another owner")
	ErrClaimed     = errors.New("belongs to another part")
	ErrTerminating = errors.New("is being deleted")
	ErrStale       = errors.New("the plan no longer holds")
)

// method is a way to write.
type method interface {
	// write makes the object as desired, or returns why it does not.
	write(ctx context.Context, t *Target) (Done, *metav1.PartialObjectMetadata, error)
	// writeIn does so only to the object that must describes.
	writeIn(ctx context.Context, t *Target, must wire.Must) (Done, *metav1.PartialObjectMetadata, error)
	// create makes the object, which must not exist.
	create(ctx context.Context, t *Target) (*metav1.PartialObjectMetadata, error)
	// rehearse sends the write as a dry run.
	rehearse(ctx context.Context, t *Target, live metav1.Object) error
}

func (w *Writer) method(t *Target) method {
	if t.Upsert {
		return replacing{w}
	}
	return applying{w}
}

// Write makes the object as desired. The answer is the object on the server then; nil:
// no request was sent, or it failed.
func (w *Writer) Write(ctx context.Context, t *Target) (Done, *metav1.PartialObjectMetadata, error) {
	done, answer, err := w.method(t).write(ctx, t)
	if t.Recreate && Immutable(err) {
		return w.recreate(ctx, t, err)
	}
	return done, answer, err
}

// WriteIn is Write for the object that must describes and no other: it fails with
// ErrStale, or a conflict, if another object has the name.
func (w *Writer) WriteIn(ctx context.Context, t *Target, must wire.Must) (Done, *metav1.PartialObjectMetadata, error) {
	return w.method(t).writeIn(ctx, t, must)
}

// Rehearse returns the error with which Write would end for the live object, as far
// as a dry run shows it, and whether the object would be recreated. Of a write that takes
// fields back it returns only that the object would be invalid: who may read but not write,
// or has an admission webhook without dry runs, still learns what differs. A server
// without server-side apply may be one without dry runs, so it is asked only for kinds that
// may be recreated.
func (w *Writer) Rehearse(ctx context.Context, t *Target, live metav1.Object) (recreate bool, err error) {
	if !t.Recreate && t.Upsert {
		return false, nil
	}
	err = w.method(t).rehearse(ctx, t, live)
	switch {
	case t.Recreate && Immutable(err) && w.Recreatable(live, err) == nil:
		return true, err
	case t.Recreate && Immutable(err):
		return false, w.Recreatable(live, err)
	case !t.Recreate && t.Force && !apierrors.IsInvalid(err):
		return false, nil
	default:
		return false, err
	}
}

// Claim returns an error if the live object must not be written.
func (w *Writer) Claim(t *Target, found metav1.Object) error {
	standing := w.Owner.Standing(found.GetLabels())
	part := found.GetLabels()[w.Owner.PartLabel]
	unowned := standing == identity.Unlabelled && !w.Owner.Wrote(found) && !sameController(t, found)
	controller := metav1.GetControllerOfNoCopy(found)
	// An object with another controller is left to that one.
	foreign := unowned && (controller != nil || !w.Owner.Predecessor(found.GetManagedFields()))
	switch {
	case standing == identity.Others:
		return fmt.Errorf("%w: its labels name another one", ErrNotOurs)
	case foreign && !t.Adopt:
		return fmt.Errorf("%w: it was made by %s and is not taken over", ErrNotOurs, managers(found))
	case foreign && controller != nil:
		return fmt.Errorf("%w: %s %s controls it and would change it again", ErrNotOurs, controller.Kind, controller.Name)
	case w.Owner.PartLabel != "" && part != "" && part != t.Part && !w.Owner.Strayed(found):
		return fmt.Errorf("%w: its label %s is %q", ErrClaimed, w.Owner.PartLabel, part)
	case found.GetDeletionTimestamp() != nil:
		return ErrTerminating
	default:
		return nil
	}
}

// sameController reports whether the object has the controller that the desired object
// names: an object of an earlier program for the same parent belongs to that parent.
func sameController(t *Target, found metav1.Object) bool {
	controller := metav1.GetControllerOfNoCopy(found)
	if controller == nil {
		return false
	}
	desired := unstructured.Unstructured{Object: t.Body.Decode()}
	ours := metav1.GetControllerOfNoCopy(&desired)
	return ours != nil && ours.UID == controller.UID
}

// managers names the field managers of an object.
func managers(m metav1.Object) string {
	seen := map[string]bool{}
	var list []string
	for _, entry := range m.GetManagedFields() {
		if !seen[entry.Manager] {
			seen[entry.Manager] = true
			list = append(list, fmt.Sprintf("%q", entry.Manager))
		}
	}
	if len(list) == 0 {
		return "an unknown manager"
	}
	return fmt.Sprint(list)
}

// Look reads the live object, whole if that is possible.
func (w *Writer) Look(ctx context.Context, t *Target) (metav1.Object, error) {
	if w.Objects == nil {
		return w.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
	}
	return w.object(t).Get(ctx, t.Name, metav1.GetOptions{})
}

// Delete sends one deletion, under a precondition. A zero propagation means
// background.
func (w *Writer) Delete(ctx context.Context, t *Target, must wire.Must, propagation metav1.DeletionPropagation) error {
	propagation = cmp.Or(propagation, metav1.DeletePropagationBackground)
	uid := types.UID(must.UID)
	conditions := &metav1.Preconditions{UID: &uid}
	if must.Version != "" {
		conditions.ResourceVersion = &must.Version
	}
	return w.request(t, "delete", func() error {
		return w.metadata(t).Delete(ctx, t.Name, metav1.DeleteOptions{Preconditions: conditions, PropagationPolicy: &propagation})
	})
}

// request sends one write and reports it.
func (w *Writer) request(t *Target, verb string, send func() error) error {
	start := time.Now()
	err := send()
	if w.OnRequest != nil {
		w.OnRequest(t, verb, time.Since(start), err)
	}
	return err
}

func (w *Writer) metadata(t *Target) clientmetadata.ResourceInterface {
	resource := w.Metadata.Resource(t.Resource)
	if t.Namespace == "" {
		return resource
	}
	return resource.Namespace(t.Namespace)
}

func (w *Writer) object(t *Target) dynamic.ResourceInterface {
	resource := w.Objects.Resource(t.Resource)
	if t.Namespace == "" {
		return resource
	}
	return resource.Namespace(t.Namespace)
}

// Gone reports that the server has answered that the object does not exist. A path that
// it does not serve is a 404, too, and proves nothing about the object.
func Gone(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name != "" &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// MetadataOf returns the metadata of an object.
func MetadataOf(object *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Generation: object.GetGeneration(), DeletionTimestamp: object.GetDeletionTimestamp(), Labels: object.GetLabels(),
		Annotations: object.GetAnnotations(), OwnerReferences: object.GetOwnerReferences(), ManagedFields: object.GetManagedFields(),
	}}
}

// Release removes labels and annotations from an object, under a precondition.
// Afterwards it no longer belongs to the owner.
func (w *Writer) Release(ctx context.Context, t *Target, must wire.Must, labels, annotations []string) error {
	none := func(keys []string) map[string]any {
		m := map[string]any{}
		for _, key := range keys {
			m[key] = nil
		}
		return m
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": must.UID, "resourceVersion": must.Version, "labels": none(labels), "annotations": none(annotations),
	}})
	if err != nil {
		return err
	}
	return w.request(t, "patch", func() error {
		_, err := w.metadata(t).Patch(ctx, t.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: w.Owner.Manager})
		return err
	})
}
