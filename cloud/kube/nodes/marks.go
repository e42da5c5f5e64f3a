package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// writeAttempts is how often a write is tried that another client's write has preceded.
const writeAttempts = 5

// ErrChanged means that a Node is not as it was seen, or that a pod came to it: nothing is
// written then, and no machine stopped.
var ErrChanged = errors.New("the Node is not as it was seen")

// Marks records on Nodes what a pool uses its machines for, and evicts their pods. It
// implements [cloud.Nodes], and is safe for concurrent use.
type Marks struct {
	// Client and Cluster are required.
	Client  dynamic.Interface
	Cluster *Cluster
	// Pool has the machines. It must have the Domain of the Cluster.
	Pool Pool
	// Look starts a pass of Nodes that the server does not have, if set: those that the watch
	// does not have either are dropped then. A Node that was written here, and deleted while
	// the watch was away, is in no event.
	Look func(nodes ...types.NamespacedName)
	// OnUnseen, if set, is called with a Node that was created or read here before the watch has shown
	// it. It should start a pass of it once the watch has reached its resourceVersion, as
	// kube.Controller.Wrote followed by Add does: without any later write to it, Look is not called.
	OnUnseen func(n *corev1.Node)

	now func() time.Time // of tests
}

func (m *Marks) time() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

// Mark implements [cloud.Nodes].
func (m *Marks) Mark(ctx context.Context, mark cloud.Mark) error {
	err := m.change(ctx, mark.Node, func(n *corev1.Node) error {
		if _, id := m.Cluster.platform.Machine(n.Spec.ProviderID); id != mark.Instance.ID {
			return fmt.Errorf("its machine is %q, not %s: %w", n.Spec.ProviderID, mark.Instance.ID, ErrChanged)
		}
		state := cloud.State(n.Labels[m.Pool.Domain.StateLabel()])
		if state == cloud.StateRunning && mark.To == state && mark.From == cloud.StateStandby {
			return nil // a pass of the pool has seen that the machine runs, and was faster
		}
		if state != mark.From {
			return fmt.Errorf("its state is %q, not %q: %w", state, mark.From, ErrChanged)
		}
		return m.apply(n, mark)
	})
	if apierrors.IsNotFound(err) && mark.Instance.State != "" { // the cloud was asked: it has the machine
		return m.create(ctx, mark)
	}
	return err
}

// apply changes what the Node of a machine says in a state.
func (m *Marks) apply(n *corev1.Node, mark cloud.Mark) error {
	now, d := m.time(), m.Pool.Domain
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	started := now
	if at := mark.Instance.LaunchTime; at.Before(now) && !at.Before(d.since(n)) {
		started = at // before this process has seen it; neither time has fractions
	}
	maps.Copy(n.Labels, m.Pool.Labels)
	n.Labels[d.PoolLabel()], n.Labels[d.instanceID()] = m.Pool.Name, mark.Instance.ID
	n.Labels[d.StateLabel()], n.Labels[d.stateSince()] = string(mark.To), strconv.FormatInt(now.Unix(), 10)
	n.Annotations[d.poolUID()] = m.Pool.UID
	n.Spec.Unschedulable = mark.To != cloud.StateRunning
	delete(n.Annotations, d.intent())
	switch mark.To {
	case cloud.StateStandby:
		for _, a := range []string{d.scaleDownCandidate(), d.scaleUpStarted(), d.runtimeWarned()} {
			delete(n.Annotations, a)
		}
		if mark.From == cloud.StateWarmup {
			n.Annotations[d.warmupCompleted()] = formatTime(now)
		}
		// The machine is stopped: what its Node says now, it has said before the next start.
		text, err := formatSignals(n, m.Cluster.networkPluginOf(n.Name))
		if err != nil {
			return err
		}
		if mark.From != mark.To {
			n.Annotations[d.signalsAtStop()] = text
		}
		addTaints(n, append(slices.Clip(m.Pool.Startup()), d.StandbyTaint())...)
	case cloud.StateRunning:
		removeTaints(n, d.StandbyTaint())
		if mark.From == cloud.StateStandby {
			n.Annotations[d.lastStarted()] = formatTime(started)
			n.Annotations[d.scaleUpStarted()] = formatTime(now)
			addTaints(n, m.Pool.removable()...) // another client may have taken them off
		}
	case cloud.StateTerminating:
		text, err := formatIntent(mark.Intent, mark.From)
		if err != nil {
			return err
		}
		n.Annotations[d.intent()] = text
	case cloud.StateWarmup:
	}
	return nil
}

// create makes the Node of a machine that has lost it.
func (m *Marks) create(ctx context.Context, mark cloud.Mark) error {
	i := mark.Instance
	n := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: mark.Node, Labels: map[string]string{corev1.LabelHostname: mark.Node}},
		Spec:       corev1.NodeSpec{ProviderID: m.Cluster.platform.ProviderID(i.AvailabilityZone, i.ID), Taints: slices.Clone(m.Pool.Taints)},
	}
	for label, value := range map[string]string{
		corev1.LabelTopologyZone: i.AvailabilityZone, corev1.LabelInstanceTypeStable: i.InstanceType,
	} {
		if value != "" { // a cloud may have none
			n.Labels[label] = value
		}
	}
	if err := m.apply(n, mark); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		return err
	}
	written, err := m.Client.Resource(nodesResource).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return m.wrote(written)
}

// Reclaim writes the pool on Nodes that name another one, or none any more, because a label was
// changed by hand. The machines, by id, must belong to the pool by their tags. A Node that has no
// state yet is left to [Marks.Mark], which adopts it. Reclaim returns the names of the Nodes that it has written, also
// with an error, which joins one for each Node that could not be written.
func (m *Marks) Reclaim(ctx context.Context, ids ...string) (names []string, err error) {
	d := m.Pool.Domain
	for _, id := range ids {
		v, ok := m.Cluster.OfMachine(id)
		if !ok || v.Pool == "" && v.Status.State == "" || v.Owned(m.Pool.Name, m.Pool.UID) {
			continue
		}
		failed := m.change(ctx, v.Status.Name, func(n *corev1.Node) error {
			if _, is := m.Cluster.platform.Machine(n.Spec.ProviderID); is != id {
				return fmt.Errorf("its machine is %q, not %s: %w", n.Spec.ProviderID, id, ErrChanged)
			}
			n.Labels[d.PoolLabel()], n.Labels[d.instanceID()] = m.Pool.Name, id
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[d.poolUID()] = m.Pool.UID
			return nil
		})
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("node %s of machine %s names pool %q: %w", v.Status.Name, id, v.Pool, failed))
			continue
		}
		names = append(names, v.Status.Name)
	}
	return names, err
}

// SetEmpty implements [cloud.Nodes].
func (m *Marks) SetEmpty(ctx context.Context, name string, empty bool) error {
	d := m.Pool.Domain
	return m.change(ctx, name, func(n *corev1.Node) error {
		if !empty {
			delete(n.Annotations, d.scaleDownCandidate())
		} else if n.Annotations[d.scaleDownCandidate()] == "" {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[d.scaleDownCandidate()] = formatTime(m.time())
		}
		return nil
	})
}

// Remove implements [cloud.Nodes].
func (m *Marks) Remove(ctx context.Context, name, id string) error {
	n, err := m.read(ctx, name)
	if apierrors.IsNotFound(err) {
		m.Cluster.DropNode(name, "")
		return nil
	}
	if err != nil {
		return err
	}
	if _, of := m.Cluster.platform.Machine(n.Spec.ProviderID); of != id {
		return nil // another machine has the name
	}
	err = m.Client.Resource(nodesResource).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	m.Cluster.DropNode(name, string(n.UID))
	return nil
}

// change changes a Node, and writes nothing if do changes nothing.
func (m *Marks) change(ctx context.Context, name string, do func(*corev1.Node) error) error {
	n, err := m.read(ctx, name)
	for attempt := 1; ; attempt++ {
		if err != nil {
			return err
		}
		patch, failed := patchOf(n, do)
		if failed != nil || patch == nil {
			return failed
		}
		written, failed := m.Client.Resource(nodesResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if failed == nil {
			return m.wrote(written)
		}
		if apierrors.IsNotFound(failed) {
			m.look(name)
		}
		if attempt == writeAttempts || !apierrors.IsConflict(failed) {
			return failed
		}
		n, err = m.get(ctx, name)
	}
}

// read returns the Node as it was seen or written last.
func (m *Marks) read(ctx context.Context, name string) (*corev1.Node, error) {
	if n := m.Cluster.node(name); n != nil {
		return n, nil
	}
	return m.get(ctx, name)
}

func (m *Marks) get(ctx context.Context, name string) (*corev1.Node, error) {
	o, err := m.Client.Resource(nodesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return nodeOf(o)
}

// wrote shows the Node to whatever reads Nodes next: the watch is later.
func (m *Marks) wrote(o *unstructured.Unstructured) error {
	n, err := nodeOf(o)
	if err != nil {
		return err
	}
	unseen := m.Cluster.node(n.Name) == nil
	m.Cluster.SawNode(n)
	if unseen && m.OnUnseen != nil {
		m.OnUnseen(n)
	}
	return nil
}

func nodeOf(o *unstructured.Unstructured) (*corev1.Node, error) {
	n := &corev1.Node{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, n); err != nil {
		return nil, fmt.Errorf("node %s: %w", o.GetName(), err)
	}
	return n, nil
}

func (m *Marks) look(name string) {
	if m.Look != nil {
		m.Look(types.NamespacedName{Name: name})
	}
}
