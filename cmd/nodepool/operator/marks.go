package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/parallel"
)

// writeAttempts is how often a write is tried that another client's write has preceded.
const writeAttempts = 5

// evictionsAtOnce is how many pods of one Node are evicted at a time.
const evictionsAtOnce = 8

// errChanged means that a Node is not as the pass saw it.
var errChanged = errors.New("the Node is not as it was seen")

// marks records on Nodes what a pool uses its machines for. It implements [cloud.Nodes].
type marks struct {
	client dynamic.Interface
	world  *world
	pool   *v1alpha1.NodePool
	now    func() time.Time
	// look starts a pass of a Node that the server does not have: if the watch does not either,
	// it is dropped. A Node that was written here, and deleted while the watch was away, is in no
	// event.
	look func(nodes ...types.NamespacedName)
}

func (o *operator) marksOf(pool *v1alpha1.NodePool) *marks {
	return &marks{client: o.client, world: o.world, pool: pool, now: o.now, look: o.nodes.Add}
}

// Mark implements [cloud.Nodes].
func (m *marks) Mark(ctx context.Context, mark cloud.Mark) error {
	err := m.Change(ctx, mark.Node, func(n *corev1.Node) error {
		if _, id := instanceOf(n.Spec.ProviderID); id != mark.Instance.ID {
			return fmt.Errorf("its machine is %q, not %s: %w", n.Spec.ProviderID, mark.Instance.ID, errChanged)
		}
		state := cloud.State(n.Labels[v1alpha1.LabelState])
		if state == cloud.StateRunning && mark.To == state && mark.From == cloud.StateStandby {
			return nil // a pass of the pool has seen that the machine runs, and was faster
		}
		if state != mark.From {
			return fmt.Errorf("its state is %q, not %q: %w", state, mark.From, errChanged)
		}
		return m.apply(n, mark)
	})
	if apierrors.IsNotFound(err) && mark.Instance.AvailabilityZone != "" {
		return m.create(ctx, mark)
	}
	return err
}

// apply changes what the Node of a machine says in a state.
func (m *marks) apply(n *corev1.Node, mark cloud.Mark) error {
	now := m.now()
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	started := now
	if at := mark.Instance.LaunchTime; at.Before(now) && !at.Before(stateSince(n)) {
		started = at // before this process has seen it; neither time has fractions
	}
	maps.Copy(n.Labels, m.pool.Spec.Template.Labels)
	n.Labels[v1alpha1.LabelPool], n.Labels[v1alpha1.LabelInstanceID] = m.pool.Name, mark.Instance.ID
	n.Labels[v1alpha1.LabelState], n.Labels[v1alpha1.LabelStateSince] = string(mark.To), strconv.FormatInt(now.Unix(), 10)
	n.Annotations[v1alpha1.AnnotationPoolUID] = string(m.pool.UID)
	n.Spec.Unschedulable = mark.To != cloud.StateRunning
	delete(n.Annotations, v1alpha1.AnnotationIntent)
	switch mark.To {
	case cloud.StateStandby:
		for _, a := range []string{v1alpha1.AnnotationScaleDownCandidate, v1alpha1.AnnotationScaleUpStarted, v1alpha1.AnnotationRuntimeWarned} {
			delete(n.Annotations, a)
		}
		if mark.From == cloud.StateWarmup {
			n.Annotations[v1alpha1.AnnotationWarmupCompleted] = formatTime(now)
		}
		// The machine is stopped: what its Node says now, it has said before the next start.
		text, err := formatSignals(n, m.world.networkPluginOf(n.Name))
		if err != nil {
			return err
		}
		if mark.From != mark.To {
			n.Annotations[v1alpha1.AnnotationSignalsAtStop] = text
		}
		addTaints(n, append(startupTaints(m.pool), standbyTaint())...)
	case cloud.StateRunning:
		removeTaints(n, standbyTaint())
		if mark.From == cloud.StateStandby {
			n.Annotations[v1alpha1.AnnotationLastStarted] = formatTime(started)
			n.Annotations[v1alpha1.AnnotationScaleUpStarted] = formatTime(now)
			addTaints(n, removable(m.pool)...) // another client may have taken them off
		}
	case cloud.StateTerminating:
		text, err := formatIntent(mark.Intent, mark.From)
		if err != nil {
			return err
		}
		n.Annotations[v1alpha1.AnnotationIntent] = text
	case cloud.StateWarmup:
	}
	return nil
}

// create makes the Node of a machine that has lost it.
func (m *marks) create(ctx context.Context, mark cloud.Mark) error {
	n := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: mark.Node, Labels: map[string]string{
			corev1.LabelTopologyZone:       mark.Instance.AvailabilityZone,
			corev1.LabelInstanceTypeStable: mark.Instance.InstanceType,
			corev1.LabelHostname:           mark.Node,
		}},
		Spec: corev1.NodeSpec{ProviderID: providerID(mark.Instance.AvailabilityZone, mark.Instance.ID), Taints: templateTaints(m.pool)},
	}
	if err := m.apply(n, mark); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		return err
	}
	written, err := m.client.Resource(nodesResource).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return m.wrote(written)
}

// SetEmpty implements [cloud.Nodes].
func (m *marks) SetEmpty(ctx context.Context, name string, empty bool) error {
	return m.Change(ctx, name, func(n *corev1.Node) error {
		if !empty {
			delete(n.Annotations, v1alpha1.AnnotationScaleDownCandidate)
		} else if n.Annotations[v1alpha1.AnnotationScaleDownCandidate] == "" {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[v1alpha1.AnnotationScaleDownCandidate] = formatTime(m.now())
		}
		return nil
	})
}

// Remove implements [cloud.Nodes].
func (m *marks) Remove(ctx context.Context, name, id string) error {
	n, err := m.read(ctx, name)
	if apierrors.IsNotFound(err) {
		m.world.dropNode(name, "")
		return nil
	}
	if err != nil {
		return err
	}
	if _, of := instanceOf(n.Spec.ProviderID); of != id {
		return nil // another machine has the name
	}
	err = m.client.Resource(nodesResource).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	m.world.dropNode(name, string(n.UID))
	return nil
}

// Drain implements [cloud.Nodes]. Pods that are being deleted are waited for.
func (m *marks) Drain(ctx context.Context, name string) (left int, err error) {
	pods := m.world.evictable(name)
	errs := make([]error, len(pods))
	parallel.Each(len(pods), evictionsAtOnce, func(i int) {
		if !pods[i].terminating {
			errs[i] = m.evict(ctx, pods[i])
		}
	})
	return len(pods), errors.Join(errs...)
}

// evict asks for the eviction of one pod. That a disruption budget forbids it now is no
// error.
func (m *marks) evict(ctx context.Context, pod podOnNode) error {
	eviction := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Name: pod.key.Name, Namespace: pod.key.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.uid}},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(eviction)
	if err != nil {
		return err
	}
	_, err = m.client.Resource(podsResource).Namespace(pod.key.Namespace).
		Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}, "eviction")
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict pod %s: %w", pod.key, err)
}

// Change changes a Node, and writes nothing if do changes nothing.
func (m *marks) Change(ctx context.Context, name string, do func(*corev1.Node) error) error {
	n, err := m.read(ctx, name)
	for attempt := 1; ; attempt++ {
		if err != nil {
			return err
		}
		patch, failed := patchOf(n, do)
		if failed != nil || patch == nil {
			return failed
		}
		written, failed := m.client.Resource(nodesResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if failed == nil {
			return m.wrote(written)
		}
		if apierrors.IsNotFound(failed) {
			m.look(types.NamespacedName{Name: name})
		}
		if attempt == writeAttempts || !apierrors.IsConflict(failed) {
			return failed
		}
		n, err = m.get(ctx, name)
	}
}

// patchOf returns the merge patch of what do changes on the metadata and spec of a Node,
// nil if that is nothing. It applies to this version of the Node alone.
func patchOf(n *corev1.Node, do func(*corev1.Node) error) ([]byte, error) {
	before := n.DeepCopy()
	if err := do(n); err != nil {
		return nil, err
	}
	metadata, spec := map[string]any{}, map[string]any{}
	if changed := changes(before.Labels, n.Labels); len(changed) > 0 {
		metadata["labels"] = changed
	}
	if changed := changes(before.Annotations, n.Annotations); len(changed) > 0 {
		metadata["annotations"] = changed
	}
	if before.Spec.Unschedulable != n.Spec.Unschedulable {
		spec["unschedulable"] = n.Spec.Unschedulable
	}
	if !slices.EqualFunc(before.Spec.Taints, n.Spec.Taints, sameTaint) {
		spec["taints"] = n.Spec.Taints
	}
	if len(metadata)+len(spec) == 0 {
		return nil, nil
	}
	metadata["uid"], metadata["resourceVersion"] = before.UID, before.ResourceVersion
	return json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
}

// changes returns what makes one map of the other in a merge patch.
func changes(from, to map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range to {
		if was, ok := from[key]; !ok || was != value {
			out[key] = value
		}
	}
	for key := range from {
		if _, ok := to[key]; !ok {
			out[key] = nil
		}
	}
	return out
}

// read returns the Node as it was seen or written last.
func (m *marks) read(ctx context.Context, name string) (*corev1.Node, error) {
	if n := m.world.cached(name); n != nil {
		return n, nil
	}
	return m.get(ctx, name)
}

func (m *marks) get(ctx context.Context, name string) (*corev1.Node, error) {
	o, err := m.client.Resource(nodesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return nodeOf(o)
}

// wrote shows the Node to whatever reads Nodes next: the watch is later.
func (m *marks) wrote(o *unstructured.Unstructured) error {
	n, err := nodeOf(o)
	if err != nil {
		return err
	}
	m.world.sawNode(n)
	return nil
}

func nodeOf(o *unstructured.Unstructured) (*corev1.Node, error) {
	n := &corev1.Node{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, n); err != nil {
		return nil, fmt.Errorf("node %s: %w", o.GetName(), err)
	}
	return n, nil
}
