package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/internal/reflectors"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// watch fills the cache until ctx ends.
func (k *kindCache) watch(ctx context.Context, client dynamic.Interface, metadata clientmetadata.Interface) {
	api := k.through(client, metadata)
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if !k.calls.enter(ctx) {
				return nil, ctx.Err()
			}
			defer k.calls.leave()
			if options.ResourceVersion == "0" {
				// "0" allows any state, however old. A new leader must not start
				// behind the writes of its predecessor.
				options.ResourceVersion = ""
			}
			k.selecting(&options)
			found, err := api.list(ctx, options)
			k.failed(ctx, err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			k.selecting(&options)
			w, err := api.watch(ctx, options)
			k.failed(ctx, err)
			return w, reflectors.WatchError(err, options)
		},
	}, api.client)
	reflector := cache.NewReflectorWithOptions(source, api.example, k, cache.ReflectorOptions{Name: k.kind.Resource.String()})
	// RunWithContext would pass errors to a handler that is shared by the whole
	// process and sleeps.
	backoff := reconcile.Backoff{Max: 30 * time.Second, Jitter: 0.5}
	for failures := 1; ctx.Err() == nil; failures++ {
		start := time.Now()
		// The error of a list or watch is recorded already.
		_ = reflector.ListAndWatchWithContext(ctx)
		if time.Since(start) > time.Minute {
			failures = 1
		}
		delay, _ := backoff.Next(failures)
		pause(ctx, delay, nil)
	}
	// A reflector does not wait for its last list.
	k.calls.wait()
}

// api is how a kind is listed and watched.
type api struct {
	client  any
	example any // of the delivered objects
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// through returns the api of the client for the kind.
func (k *kindCache) through(client dynamic.Interface, metadata clientmetadata.Interface) api {
	if !k.kind.Whole && metadata != nil {
		resource := metadata.Resource(k.kind.Resource).Namespace(k.kind.Namespace)
		return api{
			client: metadata, example: &metav1.PartialObjectMetadata{}, watch: resource.Watch,
			list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return resource.List(ctx, options)
			},
		}
	}
	resource := client.Resource(k.kind.Resource).Namespace(k.kind.Namespace)
	return api{
		client: client, example: &unstructured.Unstructured{}, watch: resource.Watch,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, options)
		},
	}
}

func (k *kindCache) selecting(options *metav1.ListOptions) {
	options.LabelSelector, options.FieldSelector = k.kind.LabelSelector, k.kind.FieldSelector
}

// failed records the error of a list or watch, nil for a success.
func (k *kindCache) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	k.all.mu.Lock()
	k.err = err
	k.all.mu.Unlock()
	if err != nil {
		k.all.logger.WarnContext(ctx, "watch failed", slog.String("controller", k.all.controller),
			slog.String("kind", k.kind.Resource.GroupResource().String()), slog.Any("error", err))
	}
}

// calls counts the lists in progress. Unlike a sync.WaitGroup, it allows a list to
// begin during wait.
type calls struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when count falls to 0
}

// enter counts a call. It returns false when ctx has ended.
func (c *calls) enter(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	if c.count++; c.count == 1 {
		c.none = make(chan struct{})
	}
	return true
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count--; c.count == 0 {
		close(c.none)
	}
}

func (c *calls) wait() {
	c.mu.Lock()
	none, count := c.none, c.count
	c.mu.Unlock()
	if count > 0 {
		<-none
	}
}
