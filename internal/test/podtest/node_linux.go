package podtest

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// Image is what a container starts with.
type Image struct {
	// Files are the files and folders of the image, by their path in it: where they are on this
	// machine. They cannot be written to.
	Files map[string]string
	// Entrypoint is the program with its arguments, if the container states none.
	Entrypoint []string
	// User runs the program, if the container states none. Default root.
	User int64
}

// Options are the settings of a Node.
type Options struct {
	// Name of the Node. Default "real".
	Name string
	// Images are what can be pulled, by their reference. What is not there cannot be pulled.
	Images map[string]Image
	// Hosts are names that pods resolve to addresses: what a DNS server would answer. Default
	// none.
	Hosts map[string]string
}

// Node is a Node that runs pods. Its methods may be used concurrently.
type Node struct {
	options Options
	client  dynamic.Interface
	network *network
	port    int // of the API server
	dir     string
	pods    kube.Controller[*corev1.Pod]
	logger  *slog.Logger

	mu    sync.Mutex
	known map[types.NamespacedName]*pod
	// ending are the pods that were replaced by another of their name before they had ended.
	ending sync.WaitGroup
}

var (
	podResource   = corev1.SchemeGroupVersion.WithResource("pods")
	nodeResource  = corev1.SchemeGroupVersion.WithResource("nodes")
	leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// Start adds a Node to the cluster, whose pods end with the test. Without Linux, root or the
// program ip the test is skipped.
func Start(tb testing.TB, cluster *kubetest.Cluster, options Options) *Node {
	tb.Helper()
	network, err := newNetwork()
	if err != nil {
		tb.Skipf("no pods that run: %v: it needs root and ip (Debian: apt-get install iproute2)", err)
	}
	tb.Cleanup(network.remove)
	if options.Name == "" {
		options.Name = "real"
	}
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		tb.Fatal(err)
	}
	n := &Node{
		options: options, client: client, network: network, dir: tb.TempDir(), known: map[types.NamespacedName]*pod{},
		logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	server, err := url.Parse(cluster.Config.Host)
	if err != nil {
		tb.Fatal(err)
	}
	if n.port, err = strconv.Atoi(server.Port()); err != nil {
		tb.Fatalf("the API server is at %s: %v", cluster.Config.Host, err)
	}
	n.Forward(tb, n.port)
	if err := n.register(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- n.run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			tb.Errorf("the Node %s: %v", options.Name, err)
		}
	})
	return n
}

// Address is the address of this machine as pods reach it.
func (n *Node) Address() string { return n.network.host.String() }

// Log returns what a container has printed in all its runs, empty for a pod that is not known.
func (n *Node) Log(namespace, pod, container string) string {
	text, err := os.ReadFile(n.path(namespace, pod, container+".log"))
	if err != nil {
		return ""
	}
	return string(text)
}

// Root returns the folder of this machine that is the root of a container, empty for a pod that is
// not known.
func (n *Node) Root(namespace, pod, container string) string {
	return n.path(namespace, pod, filepath.Join(container, "root"))
}

func (n *Node) path(namespace, pod, file string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.known[types.NamespacedName{Namespace: namespace, Name: pod}]
	if p == nil {
		return ""
	}
	return p.path(file)
}

func (n *Node) run(ctx context.Context) error {
	n.pods = kube.Controller[*corev1.Pod]{
		Client: n.client, Kind: kube.Kind{Resource: podResource, FieldSelector: "spec.nodeName=" + n.options.Name},
		Reconcile: n.reconcile, Workers: 8, Logger: n.logger,
	}
	group := &reconcile.Group{Members: []reconcile.Member{
		{Name: "pods", Starter: &n.pods},
		{Name: "heartbeat", Starter: reconcile.StarterFunc(n.beat)},
	}}
	err := group.Start(ctx)
	n.mu.Lock()
	pods := maps.Clone(n.known)
	n.mu.Unlock()
	for _, p := range pods {
		p.stop(0)
		<-p.done
	}
	n.ending.Wait()
	return err
}

// reconcile starts and ends one pod, and writes its status.
func (n *Node) reconcile(ctx context.Context, key types.NamespacedName, object *corev1.Pod) (reconcile.Result, error) {
	n.mu.Lock()
	p := n.known[key]
	if p != nil && (object == nil || object.UID != p.object.UID) {
		delete(n.known, key)
		old := p
		n.ending.Go(func() { old.stop(0); <-old.done })
		p = nil
	}
	if p == nil && object != nil && object.DeletionTimestamp == nil && !finished(object.Status.Phase) {
		p = n.startPod(object) //nolint:contextcheck // a pod outlives the pass that starts it
		n.known[key] = p
	}
	n.mu.Unlock()
	switch {
	case object == nil:
		return reconcile.Result{}, nil
	case object.DeletionTimestamp != nil:
		return reconcile.Result{}, n.end(ctx, key, p, object)
	case p == nil:
		return reconcile.Result{}, nil // it had ended before this Node began
	}
	return reconcile.Result{}, n.report(ctx, p, object)
}

// end ends the processes of a pod that is deleted, and then the pod.
func (n *Node) end(ctx context.Context, key types.NamespacedName, p *pod, object *corev1.Pod) error {
	if p != nil {
		grace := time.Duration(0)
		if object.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*object.DeletionGracePeriodSeconds) * time.Second
		}
		p.stop(grace)
		select {
		case <-p.done:
		default:
			return n.report(ctx, p, object) // its end starts a pass
		}
	}
	err := n.client.Resource(podResource).Namespace(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &object.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// report writes the status of a pod, if it is another.
func (n *Node) report(ctx context.Context, p *pod, object *corev1.Pod) error {
	want := p.status(object)
	if equality.Semantic.DeepEqual(want, object.Status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": want})
	if err != nil {
		return err
	}
	written, err := n.client.Resource(podResource).Namespace(object.Namespace).
		Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its deletion starts a pass
	}
	if err == nil {
		n.pods.Wrote(written)
	}
	return err
}

// register makes the Node object.
func (n *Node) register(ctx context.Context) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	node, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: n.options.Name, Labels: map[string]string{corev1.LabelHostname: n.options.Name, corev1.LabelOSStable: "linux"},
		},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Address()}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(),
			}},
		},
	})
	if err != nil {
		return err
	}
	_, err = n.client.Resource(nodeResource).Create(ctx, &unstructured.Unstructured{Object: node}, metav1.CreateOptions{})
	return err
}

// beat renews the Lease of the Node, without which the Node is taken for lost.
func (n *Node) beat(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	leases := n.client.Resource(leaseResource).Namespace(corev1.NamespaceNodeLease)
	for {
		lease := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": n.options.Name},
			"spec": map[string]any{
				"holderIdentity": n.options.Name, "leaseDurationSeconds": int64(40),
				"renewTime": time.Now().UTC().Format(metav1.RFC3339Micro),
			},
		}}
		_, err := leases.Apply(ctx, n.options.Name, lease, metav1.ApplyOptions{FieldManager: "kubelet", Force: true})
		if err != nil && ctx.Err() == nil {
			n.logger.WarnContext(ctx, "lease of the node not renewed", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
