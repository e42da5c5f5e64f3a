// Package kubelet makes a machine a Node, without hardware: it joins with the labels and taints
// of its user data, renews its lease, and runs the pods that are bound to it. At its first boot
// it does what the script of its user data says. [Process] has all of it for a process.
//
// The package userdata writes the user data that is read here. A machine with other user
// data never joins.
package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// The times between two attempts.
const (
	retryEvery = 200 * time.Millisecond
	// leaseEvery is as often as a kubelet renews its lease; its Node is taken for dead
	// after 40 s.
	leaseEvery = 10 * time.Second
)

// Cluster is what the kubelets of a process share.
type Cluster struct {
	client *kubernetes.Clientset
	log    *slog.Logger
	pods   cache.SharedIndexInformer

	mu    sync.Mutex
	nodes map[string]*Kubelet // by the name of the Node
}

const byNode = "node"

// NewCluster returns a cluster whose kubelets have the selected pods. logger may be nil: silent.
func NewCluster(config *rest.Config, pods fields.Selector, logger *slog.Logger) (*Cluster, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{client: client, log: logger, nodes: map[string]*Kubelet{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll, pods)
	c.pods = cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{byNode: func(o any) ([]string, error) {
		return []string{nodeOf(o)}, nil
	}})
	_, err = c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: c.wake, UpdateFunc: func(_, o any) { c.wake(o) }})
	return c, err
}

// nodeOf is the Node of a pod, empty if it has none.
func nodeOf(o any) string {
	if pod, ok := o.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return ""
}

// wake makes the kubelet of a pod look at its pods.
func (c *Cluster) wake(pod any) {
	c.mu.Lock()
	k := c.nodes[nodeOf(pod)]
	c.mu.Unlock()
	if k == nil {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run watches the pods until ctx ends.
func (c *Cluster) Run(ctx context.Context) { c.pods.Run(ctx.Done()) }

// Kubelet is the kubelet of a machine. Machine and Report must not change while it runs.
type Kubelet struct {
	Machine

	// Report changes each status before it is written. Nil: nothing.
	Report func(*corev1.NodeStatus)

	cluster *Cluster
	wake    chan struct{}
}

// Add returns the kubelet of a machine, which gets its pods from then on.
func (c *Cluster) Add(m Machine) *Kubelet {
	k := &Kubelet{Machine: m, cluster: c, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[m.Node] = k
	return k
}

// Try does what must succeed, again and again. It returns false if ctx has ended before.
func (k *Kubelet) Try(ctx context.Context, what string, do func() error) bool {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		k.cluster.log.WarnContext(ctx, "a machine could not act", slog.String("what", what), slog.String("node", k.Node), slog.Any("err", err))
		if !pause.For(ctx, retryEvery) {
			return false
		}
	}
}

// Renew keeps the lease of the Node, by which it is taken to be alive, until ctx ends, and says
// again that it is ready where the cluster had not heard of it for a while, such as while its
// API server was away.
func (k *Kubelet) Renew(ctx context.Context) {
	for k.Try(ctx, "renewing its lease", func() error { return errors.Join(k.renewLease(ctx), k.reportAgain(ctx)) }) {
		if !pause.For(ctx, leaseEvery) {
			return
		}
	}
}

// reportAgain writes the status of the Node if the cluster has taken it back.
func (k *Kubelet) reportAgain(ctx context.Context) error {
	n, err := k.cluster.client.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return k.report(ctx)
		}
	}
	return nil
}

// Attest records on the Node what the script of the user data has pulled.
func (k *Kubelet) Attest(ctx context.Context, attestation nodes.Attestation) error {
	value, err := json.Marshal(attestation)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationAttested: string(value)}}},
	)
	if err != nil {
		return err
	}
	_, err = k.cluster.client.CoreV1().Nodes().Patch(ctx, k.Node, apitypes.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
