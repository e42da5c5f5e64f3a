package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// cluster is a real API server with a real scheduler. Its nodes are objects
// without machines, which is all that the scheduler looks at.
type cluster struct {
	client dynamic.Interface
	mu     sync.Mutex
	pods   map[types.UID]*corev1.Pod
	change chan struct{} // closed at the next change
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	config := rest.CopyConfig(kubetest.Start(t, kubetest.Options{Scheduler: true}).Config)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	c := &cluster{client: client, pods: map[types.UID]*corev1.Pod{}, change: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { c.watch(ctx) })
	t.Cleanup(func() { stop(); done.Wait() })
	return c
}

func (c *cluster) resource(name, namespace string) dynamic.ResourceInterface {
	r := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: name})
	if namespace != "" {
		return r.Namespace(namespace)
	}
	return r
}

// watch keeps pods up to date; a watch that ends starts again.
func (c *cluster) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := c.resource("pods", "").Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			object, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				break
			}
			pod := &corev1.Pod{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod) != nil {
				break
			}
			c.mu.Lock()
			if e.Type == "DELETED" {
				delete(c.pods, pod.UID)
			} else {
				c.pods[pod.UID] = pod
			}
			close(c.change)
			c.change = make(chan struct{})
			c.mu.Unlock()
		}
		w.Stop()
	}
}

// wait returns the pods of a batch as soon as done returns true for them, or with
// false after the time.
func (c *cluster) wait(t *testing.T, batch string, limit time.Duration, done func([]*corev1.Pod) bool) ([]*corev1.Pod, bool) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		change := c.change
		var pods []*corev1.Pod
		for _, p := range c.pods {
			if p.Labels["batch"] == batch {
				pods = append(pods, p)
			}
		}
		c.mu.Unlock()
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
		})
		if done(pods) {
			return pods, true
		}
		select {
		case <-change:
		case <-timer.C:
			return pods, false
		case <-t.Context().Done():
			return pods, false
		}
	}
}

func object(t *testing.T, kind string, o any) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion("v1")
	u.SetKind(kind)
	return u
}

// each runs do for all of a list at once.
func each[T any](t *testing.T, all []T, do func(T) error) {
	t.Helper()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, one := range all {
		wg.Go(func() {
			slots <- struct{}{}
			errs[i] = do(one)
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// namespace creates a namespace in which pods can be created.
func (c *cluster) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	_, err := c.resource("namespaces", "").
		Create(t.Context(), object(t, "Namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.resource("serviceaccounts", name).
		Create(t.Context(), object(t, "ServiceAccount", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}), metav1.CreateOptions{})
	require.NoError(t, err)
}

// addNodes creates nodes, and takes off the taint that an API server puts on
// every new one.
func (c *cluster) addNodes(t *testing.T, nodes []*corev1.Node) {
	t.Helper()
	each(t, nodes, func(n *corev1.Node) error {
		if _, err := c.resource("nodes", "").Create(t.Context(), object(t, "Node", n), metav1.CreateOptions{}); err != nil {
			return err
		}
		taints, err := json.Marshal(n.Spec.Taints)
		if err != nil {
			return err
		}
		_, err = c.resource("nodes", "").
			Patch(t.Context(), n.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"taints":%s}}`, taints), metav1.PatchOptions{})
		return err
	})
}

// addPods creates pods, or only asks what they would be.
func (c *cluster) addPods(t *testing.T, pods []*corev1.Pod, dry bool) []*corev1.Pod {
	t.Helper()
	options := metav1.CreateOptions{}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	type job struct{ pod, created *corev1.Pod }
	jobs := make([]*job, len(pods))
	for i, p := range pods {
		jobs[i] = &job{pod: p, created: &corev1.Pod{}}
	}
	each(t, jobs, func(j *job) error {
		u, err := c.resource("pods", j.pod.Namespace).Create(t.Context(), object(t, "Pod", j.pod), options)
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, j.created)
	})
	created := make([]*corev1.Pod, len(pods))
	for i, j := range jobs {
		created[i] = j.created
	}
	return created
}

// clear removes a batch.
func (c *cluster) clear(t *testing.T, batch string) {
	t.Helper()
	now := int64(0)
	all := metav1.ListOptions{LabelSelector: "batch=" + batch}
	pods, _ := c.wait(t, batch, 0, func([]*corev1.Pod) bool { return true })
	namespaces := map[string]bool{}
	for _, p := range pods {
		namespaces[p.Namespace] = true
	}
	each(t, slices.Sorted(maps.Keys(namespaces)), func(ns string) error {
		return c.resource("pods", ns).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, all)
	})
	require.NoError(t, c.resource("nodes", "").DeleteCollection(t.Context(), metav1.DeleteOptions{}, all))
	_, gone := c.wait(t, batch, time.Minute, func(pods []*corev1.Pod) bool { return len(pods) == 0 })
	require.True(t, gone, "pods of batch %s are still there", batch)
}

func refused(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
}
