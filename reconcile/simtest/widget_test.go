package simtest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var (
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	parts      = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "parts"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// controller is a controller as one is written by hand on client-go: two informers
// per child, a queue, one worker. Each Widget has spec.replicas Parts with
// generated names and, if spec.text is set, a ConfigMap. The switches are defects
// of controllers in the field.
type controller struct {
	// staleCache counts the Parts in the cache, not on the server.
	staleCache bool
	// staleUID deletes the ConfigMap by its name, as the cache shows it.
	staleUID bool
	// onceOnly records that the ConfigMap is made before it is made.
	onceOnly bool
	// alwaysWrites puts the time of the pass into the status.
	alwaysWrites bool
	// swallows takes a pass that failed for done.
	swallows bool
	// unsynced starts before the cache is filled, and cleans up after the Widgets
	// that it does not find.
	unsynced bool
	// adopts writes a ConfigMap of the name even of another owner.
	adopts bool
	// notFoundIsGone takes a failed read of the Widget for its absence.
	notFoundIsGone bool
	// hotLoop repeats a failed pass at once.
	hotLoop bool
	// forgives takes a child that it may not write for one that it need not.
	forgives bool

	// resync is that of the informers.
	resync time.Duration

	client dynamic.Interface
	caches map[schema.GroupVersionResource]cache.SharedIndexInformer
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// start runs a copy, which has no memory, until ctx ends.
func (c controller) start(ctx context.Context, net http.RoundTripper) error {
	ctx = logr.NewContext(ctx, logr.Discard())
	var err error
	c.client, err = dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: net, QPS: -1})
	if err != nil {
		return err
	}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	c.caches = map[schema.GroupVersionResource]cache.SharedIndexInformer{}
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()
	for _, resource := range []schema.GroupVersionResource{widgets, parts, configMaps} {
		informer, err := c.informer(resource)
		if err != nil {
			return err
		}
		c.caches[resource] = informer
		running.Go(func() { informer.RunWithContext(ctx) })
		if !c.unsynced && !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil
		}
	}
	if c.unsynced {
		cache.WaitForCacheSync(ctx.Done(), c.caches[parts].HasSynced)
		for _, each := range c.caches[parts].GetStore().List() {
			part := each.(*unstructured.Unstructured)
			if _, exists, _ := c.caches[widgets].GetStore().GetByKey(part.GetNamespace() + "/" + part.GetLabels()["widget"]); !exists {
				_ = c.client.Resource(parts).Namespace(part.GetNamespace()).Delete(ctx, part.GetName(), metav1.DeleteOptions{})
			}
		}
	}
	running.Go(func() {
		for c.work(ctx) {
		}
	})
	<-ctx.Done()
	return nil
}

func (c *controller) informer(resource schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return c.client.Resource(resource).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.client.Resource(resource).Watch(ctx, options)
		},
	}, c.client)
	informer := cache.NewSharedIndexInformer(
		source,
		&unstructured.Unstructured{},
		c.resync,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	)
	enqueue := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		o := object.(*unstructured.Unstructured)
		name := o.GetName()
		switch resource {
		case parts:
			name = o.GetLabels()["widget"]
		case configMaps:
			name = strings.TrimSuffix(name, "-text")
		}
		// At once, whether two events cause one pass or two would be left to chance.
		c.queue.AddAfter(types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, 20*time.Millisecond)
	}
	_, err := informer.AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue},
	)
	// The handler of client-go keeps the time of its last error for the process.
	quiet := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	return informer, errors.Join(err, quiet)
}

func (c *controller) work(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	err := c.reconcile(ctx, key)
	switch {
	case err == nil, c.swallows:
		c.queue.Forget(key)
	case c.hotLoop:
		c.queue.Add(key)
	default:
		c.queue.AddRateLimited(key)
	}
	return ctx.Err() == nil
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	widget, err := c.client.Resource(widgets).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), c.notFoundIsGone && err != nil:
		return c.forget(ctx, key)
	case err != nil:
		return err
	case widget.GetDeletionTimestamp() != nil:
		return nil
	}
	if c.onceOnly {
		return errors.Join(c.parts(ctx, widget), c.once(ctx, widget))
	}
	failed := errors.Join(c.parts(ctx, widget), c.text(ctx, widget))
	if c.forgives && apierrors.IsForbidden(failed) {
		failed = nil
	}
	return errors.Join(failed, c.status(ctx, widget))
}

// forget is all that is left to do for a Widget that is gone: the garbage collector
// deletes its children.
func (c *controller) forget(ctx context.Context, key types.NamespacedName) error {
	if !c.notFoundIsGone {
		return nil
	}
	return c.client.Resource(parts).
		Namespace(key.Namespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "widget=" + key.Name})
}

func (c *controller) children(ctx context.Context, widget *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	var all, own []unstructured.Unstructured
	if c.staleCache {
		for _, each := range c.caches[parts].GetStore().List() {
			all = append(all, *each.(*unstructured.Unstructured))
		}
	} else {
		list, err := c.client.Resource(parts).
			Namespace(widget.GetNamespace()).
			List(ctx, metav1.ListOptions{LabelSelector: "widget=" + widget.GetName()})
		if err != nil {
			return nil, err
		}
		all = list.Items
	}
	for _, each := range all {
		if metav1.IsControlledBy(&each, widget) {
			own = append(own, each)
		}
	}
	return own, nil
}

func (c *controller) parts(ctx context.Context, widget *unstructured.Unstructured) error {
	own, err := c.children(ctx, widget)
	if err != nil {
		return err
	}
	want, _, _ := unstructured.NestedFloat64(widget.Object, "spec", "replicas")
	if n, ok, _ := unstructured.NestedInt64(widget.Object, "spec", "replicas"); ok {
		want = float64(n)
	}
	api := c.client.Resource(parts).Namespace(widget.GetNamespace())
	for range int(want) - len(own) {
		part := c.child(widget, "example.com/v1", "Part")
		part.SetGenerateName(widget.GetName() + "-")
		if _, err := api.Create(ctx, part, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, each := range own[min(len(own), int(want)):] {
		uid := each.GetUID()
		if err := api.Delete(
			ctx,
			each.GetName(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (c *controller) child(widget *unstructured.Unstructured, apiVersion, kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	o.SetNamespace(widget.GetNamespace())
	o.SetLabels(map[string]string{"widget": widget.GetName()})
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(widget, widgets.GroupVersion().WithKind("Widget"))})
	return o
}

// text keeps the ConfigMap. One of the name that belongs to another owner stays.
func (c *controller) text(ctx context.Context, widget *unstructured.Unstructured) error {
	api, name := c.client.Resource(configMaps).Namespace(widget.GetNamespace()), widget.GetName()+"-text"
	want, _, _ := unstructured.NestedString(widget.Object, "spec", "text")
	if c.staleUID && want == "" {
		if cached, exists, _ := c.caches[configMaps].GetStore().
			GetByKey(widget.GetNamespace() + "/" + name); exists &&
			metav1.IsControlledBy(cached.(*unstructured.Unstructured), widget) {
			return api.Delete(ctx, name, metav1.DeleteOptions{})
		}
		return nil
	}
	live, err := api.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && want == "":
		return nil
	case apierrors.IsNotFound(err):
		o := c.child(widget, "v1", "ConfigMap")
		o.SetName(name)
		o.Object["data"] = map[string]any{"text": want}
		_, err = api.Create(ctx, o, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case !metav1.IsControlledBy(live, widget) && !c.adopts:
		return nil
	case want == "":
		uid := live.GetUID()
		return api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	}
	if now, _, _ := unstructured.NestedString(live.Object, "data", "text"); now == want {
		return nil
	}
	if err := unstructured.SetNestedField(live.Object, want, "data", "text"); err != nil {
		return err
	}
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

// once is text and status as a sequence that is not repeated.
func (c *controller) once(ctx context.Context, widget *unstructured.Unstructured) error {
	written, _, _ := unstructured.NestedString(widget.Object, "status", "text")
	want, _, _ := unstructured.NestedString(widget.Object, "spec", "text")
	if err := c.status(ctx, widget); err != nil || written == cmp.Or(want, "none") {
		return err
	}
	return c.text(ctx, widget)
}

func (c *controller) status(ctx context.Context, widget *unstructured.Unstructured) error {
	own, err := c.children(ctx, widget)
	if err != nil {
		return err
	}
	text, _, _ := unstructured.NestedString(widget.Object, "spec", "text")
	status := map[string]any{"parts": int64(len(own)), "text": cmp.Or(text, "none")}
	if c.alwaysWrites {
		status["checked"] = time.Now().UTC().Format(time.RFC3339)
	}
	if reflect.DeepEqual(widget.Object["status"], status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": widget.GetResourceVersion()}, "status": status})
	if err != nil {
		return err
	}
	_, err = c.client.Resource(widgets).
		Namespace(widget.GetNamespace()).
		Patch(ctx, widget.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
