package pools_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const domain nodes.Domain = "pools.example.com"

// world is a cluster and a cloud with the pool web, and a loop that starts its machines.
type world struct {
	*testing.T

	cloud cloudtest.Fake
	net   applytest.Transport // to the API server
	nodes dynamic.ResourceInterface
	pool  *pools.Pool
	loop  pools.ScaleUp
	stop  func() // ends the loop

	looks   atomic.Int32 // that the loop asked for
	mu      sync.Mutex
	results []cloud.Result
}

// in runs a test in virtual time, in a world with machines on standby, the first one preferred. Its loop
// ends with the test.
func in(t *testing.T, machines int, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t}
		server := &simtest.Server{Kinds: []simtest.Kind{
			{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true},
			{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		}}
		client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: w.net.Wrap(server)})
		require.NoError(t, err)
		w.nodes = client.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
		cluster := nodes.New(domain, nodes.Zoned("fake", nil), func(_ []string, demand bool) {
			if demand {
				w.loop.Wake()
			}
		})
		scope := cloud.Scope{Domain: string(domain), Cluster: "c", Pool: "web", PoolUID: "u"}
		marks := &nodes.Marks{Client: client, Cluster: cluster, Pool: nodes.Pool{Domain: domain, Name: "web", UID: "u"}}
		w.pool = &pools.Pool{
			Spec: cloud.Pool{Scope: scope, Size: 5}, Nodes: marks.Pool, Memory: &cloud.SharedMemory{},
			Executor: &cloud.Executor{Provider: &w.cloud, Nodes: marks, Journal: &nodes.Journal[*corev1.Node]{}},
			Capacity: func(int) demand.Resources { return demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 20} },
			OnStart: func(_ context.Context, results []cloud.Result, _ error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.results = append(w.results, results...)
			},
		}
		w.loop.Cluster = cluster
		w.loop.Pools = func() map[string]*pools.Pool { return map[string]*pools.Pool{"web": w.pool} }
		w.loop.Look = func(string) { w.looks.Add(1) }
		for n := range machines {
			w.machine(n)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.loop.Start(ctx) }()
		synctest.Wait()
		w.stop = func() {
			if ctx.Err() == nil {
				stop()
				require.NoError(t, <-done)
			}
		}
		do(w)
		w.stop()
	})
}

// machine makes a machine that was stopped after its warm-up.
func (w *world) machine(n int) {
	w.Helper()
	name, scope := fmt.Sprint("node-", n), w.pool.Spec.Scope
	tags := scope.LaunchTags(name, nil)
	maps.Copy(tags, scope.StateTags(cloud.StateStandby, name))
	i, err := w.cloud.LaunchInstance(w.Context(), cloud.LaunchConfig{ImageID: "image", InstanceType: "large", Token: name, Tags: tags})
	require.NoError(w, err)
	time.Sleep(time.Second)
	require.NoError(w, w.cloud.Shutdown(i.ID))
	time.Sleep(time.Second)
	w.write(&corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				domain.PoolLabel(): "web", domain.StateLabel(): "standby", string(domain) + "/state-since": fmt.Sprint(n),
			},
			Annotations: map[string]string{domain.AttestedAnnotation(): `{"bootID":"b"}`},
		},
		Spec: corev1.NodeSpec{ProviderID: "fake:///zone-a/" + i.ID, Unschedulable: true, Taints: []corev1.Taint{domain.StandbyTaint()}},
	})
}

// write creates a Node, and shows it to the loop as a watch does.
func (w *world) write(n *corev1.Node) {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	require.NoError(w, err)
	_, err = w.nodes.Create(w.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.loop.Cluster.SawNode(w.node(n.Name))
}

// node returns a Node as the server has it.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	o, err := w.nodes.Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	n := &corev1.Node{}
	require.NoError(w, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, n))
	return n
}

// ready has the kubelet of a machine report.
func (w *world) ready(name string) {
	w.Helper()
	_, err := w.nodes.Patch(w.Context(), name, types.MergePatchType, []byte(
		`{"status":{"allocatable":{"cpu":"4","memory":"16Gi","pods":"20"},"conditions":[{"type":"Ready","status":"True"}]}}`,
	), metav1.PatchOptions{}, "status")
	require.NoError(w, err)
	n := w.node(name)
	n.Spec.Taints = nil // a pass of the Node has opened it
	v, known := w.loop.Cluster.Node(name)
	require.True(w, known)
	w.loop.Trace.SawNode(v)
	w.loop.Cluster.SawNode(n)
	v, _ = w.loop.Cluster.Node(name)
	w.loop.Trace.SawNode(v)
	w.loop.Trace.Opened(v.Status.ID)
}

// pod shows a pod, which takes a machine of its own: bound to a Node, or without a place.
func (w *world) pod(name, node string) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if node == "" {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			LastTransitionTime: metav1.Now(),
		}}
	}
	w.loop.Trace.SawPod(w.loop.Cluster.SawPod(types.NamespacedName{Name: name}, p))
}

// running returns which machines the cloud runs, by the names of their Nodes.
func (w *world) running() (names []string) {
	for _, i := range w.cloud.Instances() {
		if i.State.Powered() {
			names = append(names, i.Tags[w.pool.Spec.Scope.Key("node")])
		}
	}
	return names
}

// starts returns the results of all starts.
func (w *world) starts() []cloud.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.results)
}
