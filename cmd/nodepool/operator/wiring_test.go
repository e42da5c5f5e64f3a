package operator //nolint:testpackage // passes are not exported

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/crds"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestPassesOnAServer calls single passes of the operator on an API server, so that a
// test decides what a process has seen, and when another one takes over. The cloud is in
// memory.
func TestPassesOnAServer(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	definitions, err := crds.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definitions)))
	_, err = cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	// No controller makes the account that each pod has.
	require.NoError(t, cluster.Apply(t.Context(), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}"))
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*site){
			"a standby Node that another client opened is closed again":     closesAStandbyNode,
			"another process goes on with the budget of drains of the last": keepsTheBudgetOfDrains,
			"a pod on a machine that warms up holds it back from nothing":   stopsAfterWarmup,
			"a machine is started for a pod that stays on its Node":         startsForABoundPod,
			"a process that has not listed the pools frees no class":        keepsClassesBeforePools,
			"pods that wait are looked at once a process knows the pool":    looksAtPodsWithThePool,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(newSite(t, cluster))
			})
		}
	})
}

func keepsClassesBeforePools(s *site) {
	o := s.process()
	classes := o.client.Resource(classesResource)
	class := &v1alpha1.AWSNodeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "AWSNodeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: s.pool, Finalizers: []string{v1alpha1.FinalizerInUse}},
		Spec: v1alpha1.AWSNodeClassSpec{
			BootstrapTemplate: "AL2023", InstanceType: "m5.xlarge", Architecture: "x86_64", IAMInstanceProfile: "nodes",
			AMISelector: &v1alpha1.AMISelector{ID: "ami-1"}, SubnetIDs: []string{"subnet-1"}, SecurityGroupIDs: []string{"sg-1"},
		},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(class)
	require.NoError(s, err)
	_, err = classes.Create(s.Context(), &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	require.NoError(s, err)
	require.NoError(s, classes.Delete(s.Context(), class.Name, metav1.DeleteOptions{}))
	read := func() *v1alpha1.AWSNodeClass {
		found, err := classes.Get(s.Context(), class.Name, metav1.GetOptions{})
		require.NoError(s, err)
		now := &v1alpha1.AWSNodeClass{}
		require.NoError(s, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, now))
		return now
	}
	result, err := o.reconcileClass(s.Context(), types.NamespacedName{Name: class.Name}, read())
	require.NoError(s, err)
	require.Positive(s, result.RequeueAfter, "it looks again once the pools are listed")
	require.Equal(s, []string{v1alpha1.FinalizerInUse}, read().Finalizers)
}

// site is a pool of a cluster with its machines.
type site struct {
	*testing.T

	access *rest.Config
	kube   *kubernetes.Clientset
	cloud  *cloudtest.Fake
	pool   string
}

func newSite(t *testing.T, cluster *kubetest.Cluster) *site {
	t.Helper()
	s := &site{
		T: t, access: cluster.Config, kube: kubernetes.NewForConfigOrDie(cluster.Config), cloud: &cloudtest.Fake{Transition: time.Millisecond},
		pool: fmt.Sprintf("p-%d", time.Now().UnixNano()),
	}
	require.NoError(t, cluster.Apply(t.Context(), fmt.Sprintf(
		"{apiVersion: stratos.sh/v1alpha1, kind: NodePool, metadata: {name: %s}, spec: {poolSize: 4, minStandby: 0, "+
			"scaleDown: {enabled: false}, template: {nodeClassRef: {kind: AWSNodeClass, name: none}}}}", s.pool)))
	// It has machines in this region, so that a pass without its class knows where to look.
	_, err := cluster.Kubectl(
		t.Context(), "patch", "nodepool", s.pool, "--subresource=status", "--type=merge", "-p", `{"status":{"regions":["home"]}}`)
	require.NoError(t, err)
	return s
}

// process returns the operator as a process that has just started has it, with what is there.
func (s *site) process() *operator {
	s.Helper()
	o, err := newOperator(s.access, Operator{
		ClusterName: "c", Region: "home", Logger: slog.New(slog.NewTextHandler(s.Output(), nil)),
		OpenRegion: func(context.Context, string, Called) (Region, error) {
			return Region{Provider: s.cloud, Resolver: fixed{"fake", "zone-a"}}, nil
		},
	}, prometheus.NewRegistry())
	require.NoError(s, err)
	s.look(o)
	return o
}

// look shows a process every Node and pod, as its watches do.
func (s *site) look(o *operator) {
	s.Helper()
	nodes, err := s.kube.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelPool + "=" + s.pool})
	require.NoError(s, err)
	for i := range nodes.Items {
		o.cluster.SawNode(&nodes.Items[i])
	}
	pods, err := s.kube.CoreV1().Pods("default").List(s.Context(), metav1.ListOptions{LabelSelector: "pool=" + s.pool})
	require.NoError(s, err)
	for i := range pods.Items {
		p := &pods.Items[i]
		_, err := o.reconcilePod(s.Context(), types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p)
		require.NoError(s, err)
	}
}

func (s *site) read(o *operator) *v1alpha1.NodePool {
	s.Helper()
	found, err := o.client.Resource(poolsResource).Get(s.Context(), s.pool, metav1.GetOptions{})
	require.NoError(s, err)
	p := &v1alpha1.NodePool{}
	require.NoError(s, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, p))
	return p
}

// pass does one pass of the pool. A Node that has lost its readiness is replaced at once.
func (s *site) pass(o *operator) {
	s.Helper()
	p := s.read(o)
	p.Spec.UnreadyTimeout = v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Millisecond}}
	_, err := o.reconcile(s.Context(), poolKey(s.pool), p)
	require.NoError(s, err)
}

// machine makes a machine with its Node, which is not ready.
func (s *site) machine(o *operator, state cloud.State) (id, name string) {
	s.Helper()
	p := s.read(o)
	scope := o.scopeOf(p)
	tags := scope.LaunchTags("", nil)
	name = fmt.Sprintf("node-%d", time.Now().UnixNano())
	maps.Copy(tags, scope.StateTags(state, name))
	i, err := s.cloud.LaunchInstance(s.Context(), cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.large", Tags: tags, Token: name})
	require.NoError(s, err)
	s.becomes(i.ID, cloud.InstanceRunning)
	if state == cloud.StateStandby {
		require.NoError(s, s.cloud.Shutdown(i.ID))
		s.becomes(i.ID, cloud.InstanceStopped)
	}
	_, err = s.kube.CoreV1().Nodes().Create(s.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{v1alpha1.AnnotationPoolUID: string(p.UID), v1alpha1.AnnotationAttested: `{"bootID":"b"}`},
			Labels: map[string]string{v1alpha1.LabelPool: s.pool, v1alpha1.LabelState: string(state), v1alpha1.LabelStateSince: "1767323045"},
		},
		Spec: corev1.NodeSpec{ProviderID: "aws:///zone-a/" + i.ID, Unschedulable: state == cloud.StateStandby},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
	return i.ID, name
}

func (s *site) becomes(id string, want cloud.InstanceState) {
	s.Helper()
	await.Until(s, await.Moment, id+" is "+string(want), func() bool {
		got, err := s.cloud.GetInstanceState(s.Context(), id)
		return err == nil && got == want
	})
}

func (s *site) node(name string) *corev1.Node {
	s.Helper()
	n, err := s.kube.CoreV1().Nodes().Get(s.Context(), name, metav1.GetOptions{})
	require.NoError(s, err)
	return n
}

// in returns the Nodes of the pool that are in a state.
func (s *site) in(state cloud.State) []corev1.Node {
	s.Helper()
	nodes, err := s.kube.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{
		LabelSelector: v1alpha1.LabelPool + "=" + s.pool + "," + v1alpha1.LabelState + "=" + string(state),
	})
	require.NoError(s, err)
	return nodes.Items
}

// bind makes a pod that tolerates every taint, on a Node.
func (s *site) bind(node string) {
	s.Helper()
	_, err := s.kube.CoreV1().Pods("default").Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.pool, Labels: map[string]string{"pool": s.pool}},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Containers:  []corev1.Container{{Name: "c", Image: "x"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s, err)
}

// closesAStandbyNode has a Node of a stopped machine from which a person, or another
// program, took the cordon and the taints.
func closesAStandbyNode(s *site) {
	o := s.process()
	_, name := s.machine(o, cloud.StateStandby)
	s.look(o)
	s.pass(o)
	_, err := s.kube.CoreV1().Nodes().Patch(
		s.Context(), name, types.MergePatchType, []byte(`{"spec":{"unschedulable":null,"taints":null}}`), metav1.PatchOptions{})
	require.NoError(s, err)
	require.False(s, s.node(name).Spec.Unschedulable)
	_, err = o.reconcileNode(s.Context(), poolKey(name), s.node(name))
	require.NoError(s, err)
	require.True(s, s.node(name).Spec.Unschedulable)
	require.True(s, slices.ContainsFunc(s.node(name).Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintStandby }))
}

// keepsTheBudgetOfDrains has machines whose Nodes have lost their readiness: one of them is
// drained in an hour, also when another process takes over in between.
func keepsTheBudgetOfDrains(s *site) {
	first := s.process()
	for range 3 {
		s.machine(first, cloud.StateRunning)
	}
	drains := func(o *operator) {
		s.look(o)
		s.pass(o) // it notes since when they are not ready
		time.Sleep(2 * time.Millisecond)
		s.pass(o)
	}
	drains(first)
	drained := s.in(cloud.StateTerminating)
	require.Len(s, drained, 1)
	recorded := s.read(first).Status.Repairs
	require.NotNil(s, recorded, "the next process has to know")
	require.EqualValues(s, 1, recorded.Count)
	require.WithinDuration(s, time.Now(), recorded.Since.Time, time.Minute)

	// What is drained counts as well. It ends.
	_, id := nodes.Zoned("aws", nil).Machine(drained[0].Spec.ProviderID)
	require.NoError(s, s.cloud.Interrupt(id))
	require.NoError(s, s.kube.CoreV1().Nodes().Delete(s.Context(), drained[0].Name, metav1.DeleteOptions{}))
	next := s.process()
	drains(next)
	require.Len(s, s.in(cloud.StateRunning), 2)
	require.Empty(s, s.in(cloud.StateTerminating))
	require.Equal(s, recorded, s.read(next).Status.Repairs)
}

// startsForABoundPod has a pod that tolerates every taint on the Node of a stopped machine:
// the scheduler has placed it, so it is never reported as unschedulable.
func startsForABoundPod(s *site) {
	o := s.process()
	id, name := s.machine(o, cloud.StateStandby)
	otherID, _ := s.machine(o, cloud.StateStandby)
	s.look(o)
	s.pass(o)
	require.Len(s, s.in(cloud.StateStandby), 2)
	s.bind(name)
	s.look(o)
	s.pass(o)
	s.becomes(id, cloud.InstanceRunning)
	s.becomes(otherID, cloud.InstanceStopped)
	require.Len(s, s.in(cloud.StateRunning), 1)
	require.Equal(s, name, s.in(cloud.StateRunning)[0].Name)
	require.False(s, s.node(name).Spec.Unschedulable)
}

// looksAtPodsWithThePool has a process begin in which the watches have shown the pods before
// it knows the pool.
func looksAtPodsWithThePool(s *site) {
	before := s.process()
	s.machine(before, cloud.StateStandby)
	s.look(before)
	s.pass(before)
	o := s.process()
	looks := make(chan bool) // each reports whether it is one with the pool
	ctx, stop := context.WithCancel(s.Context())
	defer stop()
	o.demand.Pools = func() map[string]*pools.Pool {
		known := o.startable()
		select {
		case looks <- known[s.pool] != nil:
		case <-ctx.Done():
		}
		return known
	}
	done := make(chan error, 1)
	go func() { done <- o.demand.Start(ctx) }()
	require.False(s, <-looks)
	require.False(s, o.memoryOf(s.read(o)).looked.Load(), "no plan for CapacityBuffers counts on what the pool has")
	s.pass(o)
	require.True(s, o.memoryOf(s.read(o)).looked.Load())
	await.Until(s, await.Moment, "the pods are looked at", func() bool {
		select {
		case known := <-looks:
			return known
		default:
			return false
		}
	})
	stop()
	require.NoError(s, <-done)
}

// stopsAfterWarmup has a pod that tolerates every taint on a machine that the operator stops
// after its warm-up.
func stopsAfterWarmup(s *site) {
	o := s.process()
	_, err := o.client.Resource(poolsResource).Patch(
		s.Context(), s.pool, types.MergePatchType, []byte(`{"spec":{"preWarm":{"completionMode":"ControllerStop"}}}`), metav1.PatchOptions{})
	require.NoError(s, err)
	id, name := s.machine(o, cloud.StateWarmup)
	_, err = s.kube.CoreV1().Nodes().Patch(s.Context(), name, types.StrategicMergePatchType, []byte(
		`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"NetworkUnavailable","status":"False"}]}}`,
	), metav1.PatchOptions{}, "status")
	require.NoError(s, err)
	s.bind(name)
	s.look(o)
	s.pass(o)
	s.becomes(id, cloud.InstanceStopped)
}
