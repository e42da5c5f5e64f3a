package agent

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// rollout is how far a Deployment is, some numbers of it.
type rollout struct {
	uid                            types.UID
	generation, observed           int64
	desired, total, updated, ready int64
	stuck                          string // why it makes no progress, empty if it may
}

// complete reports that all pods are as wanted, and ready.
func (r rollout) complete() bool {
	return r.observed >= r.generation && r.updated == r.desired && r.total == r.desired && r.ready == r.desired
}

// readiness watches the status of the Deployments, which the live view of
// package apply, being metadata only, does not hold.
type readiness struct {
	client  dynamic.Interface
	owner   map[string]string
	changed func()

	mu       sync.RWMutex
	rollouts map[types.NamespacedName]rollout
}

var _ cache.ReflectorStore = (*readiness)(nil)

// Start implements reconcile.Starter.
func (r *readiness) Start(ctx context.Context) error {
	resource := r.client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	selector := labels.SelectorFromSet(r.owner).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return resource.Watch(ctx, options)
		},
	}
	// The live view lists and watches the same objects, and logs what fails.
	ctx = logr.NewContext(ctx, logr.Discard())
	cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, r, cache.ReflectorOptions{Name: "readiness"}).RunWithContext(ctx)
	return nil
}

// of returns the rollout of a Deployment as it was written, false while the watch has
// not shown that Deployment, or only an older generation of it: its pods are those of
// another desired state.
func (r *readiness) of(n types.NamespacedName, w written) (rollout, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found, ok := r.rollouts[n]
	return found, ok && w.uid != "" && found.uid == w.uid && found.generation >= w.generation
}

// written is a live Deployment as a pass has left it.
type written struct {
	uid        types.UID
	generation int64
}

// Add implements cache.ReflectorStore.
func (r *readiness) Add(o any) error { return r.Update(o) }

// Update implements cache.ReflectorStore.
func (r *readiness) Update(o any) error {
	n, now, err := readRollout(o)
	if err != nil {
		return err
	}
	r.mu.Lock()
	news := r.rollouts[n] != now
	if news {
		if r.rollouts == nil {
			r.rollouts = map[types.NamespacedName]rollout{}
		}
		r.rollouts[n] = now
	}
	r.mu.Unlock()
	if news {
		r.changed()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (r *readiness) Delete(o any) error {
	n, _, err := readRollout(o)
	if err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.rollouts, n)
	r.mu.Unlock()
	r.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (r *readiness) Replace(objects []any, _ string) error {
	rollouts := make(map[types.NamespacedName]rollout, len(objects))
	for _, o := range objects {
		n, now, err := readRollout(o)
		if err != nil {
			return err
		}
		rollouts[n] = now
	}
	r.mu.Lock()
	r.rollouts = rollouts
	r.mu.Unlock()
	r.changed()
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (r *readiness) Resync() error { return nil }

func readRollout(o any) (types.NamespacedName, rollout, error) {
	d, ok := o.(*unstructured.Unstructured)
	if !ok {
		return types.NamespacedName{}, rollout{}, fmt.Errorf("the watch delivered a %T; want a Deployment", o)
	}
	number := func(fields ...string) int64 {
		n, _, err := unstructured.NestedInt64(d.Object, fields...)
		if err != nil {
			return -1 // no such value
		}
		return n
	}
	found := rollout{
		uid:        d.GetUID(),
		generation: d.GetGeneration(), observed: number("status", "observedGeneration"),
		desired: number("spec", "replicas"), total: number("status", "replicas"),
		updated: number("status", "updatedReplicas"), ready: number("status", "readyReplicas"),
	}
	conditions, _, err := unstructured.NestedSlice(d.Object, "status", "conditions")
	if err != nil {
		return types.NamespacedName{}, rollout{}, err
	}
	for _, c := range conditions {
		if condition, ok := c.(object); ok && condition["type"] == "Progressing" && condition["status"] == "False" {
			found.stuck = fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
		}
	}
	return types.NamespacedName{Namespace: d.GetNamespace(), Name: d.GetName()}, found, nil
}
