package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// observer has the pods of deployments and the Deployments of sentinels, as their watches
// show them.
type observer struct {
	client  kubernetes.Interface
	region  string
	metrics *metrics
	logger  *slog.Logger

	pods      kubewatch.Store[statesync.Key, *corev1.Pod]
	sentinels kubewatch.Store[statesync.Key, *appsv1.Deployment]
}

func newObserver(client kubernetes.Interface, region string, m *metrics, logger *slog.Logger, changed func(statesync.Key)) *observer {
	o := &observer{client: client, region: region, metrics: m, logger: logger}
	o.pods.Read, o.pods.Changed = readPod, changed
	o.sentinels.Read, o.sentinels.Changed = readSentinel, changed
	return o
}

// Start watches until ctx ends.
func (o *observer) Start(ctx context.Context) error {
	selector := func(c render.Component) string {
		return labels.SelectorFromSet(render.Owner(c, o.region).Labels).String()
	}
	pods := kubewatch.Watch{
		Name: "Pod", Sink: &o.pods, LabelSelector: selector(render.Deployment), Logger: o.logger,
		Resource: kubewatch.Of(o.client, &corev1.Pod{}, countedPods{o.client.CoreV1().Pods(""), o.metrics}),
	}
	sentinels := kubewatch.Watch{
		Name: "Deployment.apps", Sink: &o.sentinels, LabelSelector: selector(render.Sentinel), Logger: o.logger,
		Resource: kubewatch.Of(o.client, &appsv1.Deployment{}, o.client.AppsV1().Deployments("")),
	}
	group := reconcile.Group{Members: []reconcile.Member{{Name: "pods", Starter: &pods}, {Name: "sentinels", Starter: &sentinels}}}
	return group.Start(ctx)
}

// countedPods counts the watches of pods that are opened.
type countedPods struct {
	typedcorev1.PodInterface
	metrics *metrics
}

// Watch implements typedcorev1.PodInterface.
func (c countedPods) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := c.PodInterface.Watch(ctx, options)
	reason := "opened"
	if err != nil {
		reason = "error"
	} else if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		reason = "resumed"
	}
	c.metrics.podWatches.WithLabelValues(reason).Inc()
	return w, err
}

// sentinel returns the Deployment of a sentinel, nil if there is none.
func (o *observer) sentinel(key statesync.Key) *appsv1.Deployment {
	for _, d := range o.sentinels.Of(key) {
		return d
	}
	return nil
}

// keys returns the keys with live objects.
func (o *observer) keys() []statesync.Key { return append(o.pods.Keys(), o.sentinels.Keys()...) }

// readPod returns a pod by the deployment that it belongs to.
func readPod(object metav1.Object) (statesync.Key, *corev1.Pod, bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return statesync.Key{}, nil, false
	}
	key, ok := deploymentOf(pod)
	pod.ManagedFields = nil
	return key, pod, ok
}

func readSentinel(object metav1.Object) (statesync.Key, *appsv1.Deployment, bool) {
	d, ok := object.(*appsv1.Deployment)
	if !ok {
		return statesync.Key{}, nil, false
	}
	d.ManagedFields = nil
	return stream.Sentinels.Key(d.Namespace, d.Name), d, true
}

// deploymentOf returns the key of the deployment that a pod belongs to.
func deploymentOf(pod *corev1.Pod) (statesync.Key, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return statesync.Key{}, false
	}
	return stream.Deployments.Key(pod.Namespace, owner.Name), true
}

// sorted returns the keys in order, each once.
func sorted(keys []statesync.Key) []statesync.Key {
	slices.SortFunc(keys, func(a, b statesync.Key) int { return cmp.Compare(a.Collection+"/"+a.ID, b.Collection+"/"+b.ID) })
	return slices.Compact(keys)
}
