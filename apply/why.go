package apply

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// Why returns why a workload is not ready, from the object and the first 500 of the pods
// that its spec.selector selects; see [readiness.Why]. The zero Cause says that nothing shows. Each
// call costs two reads: it is for what [Applier.Readiness] does not report as Current. A
// cause may change without a change of the workload, so a caller that shows it asks again
// after a while. It needs Objects, and the right to list pods.
func (a *Applier) Why(ctx context.Context, id ID) (readiness.Cause, error) {
	if err := a.prepare(); err != nil {
		return readiness.Cause{}, err
	}
	if a.Objects == nil {
		return readiness.Cause{}, errors.New("apply: Applier.Objects: is required for readiness")
	}
	v := a.Live.registry.view(id.GroupKind())
	if v == nil {
		return readiness.Cause{}, fmt.Errorf("%s: %w: the kind is not watched", id, ErrNotSynced)
	}
	look := v.Look(view.NameOf(id.Namespace, id.Name))
	if look.Mapping == nil {
		return readiness.Cause{}, fmt.Errorf("%s: %w", id, ErrNotSynced)
	}
	workload, err := a.Objects.Resource(look.Mapping.Resource).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if write.Gone(err) {
		return readiness.Cause{}, nil
	}
	if err != nil {
		return readiness.Cause{}, fmt.Errorf("%s: %w", id, err)
	}
	pods, err := a.podsOf(ctx, workload)
	if err != nil {
		return readiness.Cause{}, fmt.Errorf("%s: pods: %w", id, err)
	}
	return readiness.Why(workload, pods...), nil
}

// RefusedPods returns why a Job, of this UID, has no pod: what its controller was answered last, by a
// quota, pod security or admission, which is in Events alone. The zero Cause says that nothing shows. It
// needs Objects, and the right to list events of events.k8s.io.
func (a *Applier) RefusedPods(ctx context.Context, namespace string, uid types.UID) (readiness.Cause, error) {
	if a.Objects == nil {
		return readiness.Cause{}, errors.New("apply: Applier.Objects: is required for Events")
	}
	resource := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	list, err := a.Objects.Resource(resource).Namespace(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "regarding.uid=" + string(uid) + ",reason=FailedCreate", Limit: 100})
	if err != nil {
		return readiness.Cause{}, err
	}
	var last *unstructured.Unstructured
	for i := range list.Items {
		if o := &list.Items[i]; last == nil || o.GetCreationTimestamp().After(last.GetCreationTimestamp().Time) {
			last = o
		}
	}
	if last == nil {
		return readiness.Cause{}, nil
	}
	note, _, err := unstructured.NestedString(last.Object, "note")
	return readiness.Refused(note), err
}

func (a *Applier) podsOf(ctx context.Context, workload *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	stated, found, err := unstructured.NestedMap(workload.Object, "spec", "selector")
	if err != nil || !found {
		return nil, err
	}
	var of metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stated, &of); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(&of)
	if err != nil || selector.Empty() {
		return nil, err
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	list, err := a.Objects.Resource(resource).Namespace(workload.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String(), Limit: 500})
	if err != nil {
		return nil, err
	}
	pods := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}
