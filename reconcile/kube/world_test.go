package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var (
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	maps1   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// widget is the kind of the tests, as a user of the package writes one.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   widgetSpec   `json:"spec"`
	Status widgetStatus `json:"status,omitzero"`
}

type widgetSpec struct {
	Size   int64  `json:"size,omitempty"`
	Secret string `json:"secret,omitempty"`
}

type widgetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Phase              string             `json:"phase,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// world holds objects of any kind in memory, with the rules of an API server
// that a controller relies on. The tests on a real one show that they are its
// rules. It is a dynamic.Interface.
type world struct {
	dynamic.Interface

	mu       sync.Mutex
	version  int64
	objects  map[schema.GroupVersionResource]map[types.NamespacedName]*unstructured.Unstructured
	history  map[schema.GroupVersionResource][]watch.Event
	expired  map[schema.GroupVersionResource]int64 // versions from which no watch can begin
	held     map[schema.GroupVersionResource]bool  // watches deliver nothing
	broken   map[schema.GroupVersionResource]error // lists and watches fail
	watchers map[*watcher]bool
	asked    []string // requests but lists and watches
	lists    []metav1.ListOptions
	before   func(verb string)         // called without the lock ahead of each write
	listing  func(ctx context.Context) // called without the lock ahead of each list
}

type watcher struct {
	*watch.FakeWatcher

	world     *world
	resource  schema.GroupVersionResource
	namespace string
	sent      int64
}

func newWorld() *world {
	return &world{
		version: 100, objects: map[schema.GroupVersionResource]map[types.NamespacedName]*unstructured.Unstructured{},
		history: map[schema.GroupVersionResource][]watch.Event{}, expired: map[schema.GroupVersionResource]int64{},
		held: map[schema.GroupVersionResource]bool{}, broken: map[schema.GroupVersionResource]error{}, watchers: map[*watcher]bool{},
	}
}

// IsWatchListSemanticsUnSupported makes reflectors list.
func (w *world) IsWatchListSemanticsUnSupported() bool { return true }

func (w *world) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return &endpoint{world: w, resource: resource}
}

func versionOf(o *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	return n
}

// commit stores a state, nil for a deletion. The lock is held.
func (w *world) commit(
	resource schema.GroupVersionResource,
	key types.NamespacedName,
	next *unstructured.Unstructured,
) *unstructured.Unstructured {
	w.version++
	if w.objects[resource] == nil {
		w.objects[resource] = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	old := w.objects[resource][key]
	event := watch.Event{Type: watch.Modified}
	switch {
	case next == nil || next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0:
		event.Type = watch.Deleted
		if next == nil {
			next = old
		}
		delete(w.objects[resource], key)
	case old == nil:
		event.Type = watch.Added
	}
	next = next.DeepCopy()
	next.SetResourceVersion(strconv.FormatInt(w.version, 10))
	if event.Type != watch.Deleted {
		w.objects[resource][key] = next
	}
	event.Object = next
	w.history[resource] = append(w.history[resource], event)
	w.deliver()
	return next.DeepCopy()
}

// deliver sends the events that watchers have not received. The lock is held.
func (w *world) deliver() {
	for each := range w.watchers {
		if w.held[each.resource] {
			continue
		}
		for _, event := range w.history[each.resource] {
			object := event.Object.(*unstructured.Unstructured)
			if v := versionOf(object); v > each.sent {
				each.sent = v
				if each.namespace == "" || each.namespace == object.GetNamespace() {
					each.Action(event.Type, object.DeepCopy())
				}
			}
		}
	}
}

// put creates or replaces an object as another client would, with an UID and a
// generation that follow the rules.
func (w *world) put(resource schema.GroupVersionResource, object any) *unstructured.Unstructured {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	next := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, next); err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store(resource, next)
}

func (w *world) store(resource schema.GroupVersionResource, next *unstructured.Unstructured) *unstructured.Unstructured {
	key := keyOf(next.GetNamespace(), next.GetName())
	old := w.objects[resource][key]
	if old == nil {
		next.SetUID(types.UID(fmt.Sprintf("uid-%d", w.version+1)))
		next.SetGeneration(1)
		return w.commit(resource, key, next)
	}
	next.SetUID(old.GetUID())
	next.SetGeneration(old.GetGeneration())
	if fmt.Sprint(next.Object["spec"]) != fmt.Sprint(old.Object["spec"]) {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	return w.commit(resource, key, next)
}

// change edits an object as another client would.
func (w *world) change(resource schema.GroupVersionResource, key types.NamespacedName, edit func(*unstructured.Unstructured)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.objects[resource][key].DeepCopy()
	edit(next)
	w.store(resource, next)
}

// remove deletes an object as another client would.
func (w *world) remove(resource schema.GroupVersionResource, key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.objects[resource][key]
	if old == nil {
		return
	}
	next := old.DeepCopy()
	now := metav1.NewTime(time.Now())
	next.SetDeletionTimestamp(&now)
	w.commit(resource, key, next)
}

func (w *world) get(resource schema.GroupVersionResource, key types.NamespacedName) *unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[resource][key]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

func (w *world) all(resource schema.GroupVersionResource) []*unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.objects[resource]))
}

// hold stops the watches of a kind, without ending them, or lets them go on.
func (w *world) hold(resource schema.GroupVersionResource, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[resource] = held
	w.deliver()
}

// cut ends all watches. Expired: a watch that begins at an earlier version is
// refused.
func (w *world) cut(expired bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for each := range w.watchers {
		delete(w.watchers, each)
		each.FakeWatcher.Stop()
	}
	if expired {
		for resource := range w.history {
			w.expired[resource] = w.version
			w.history[resource] = nil
		}
	}
}

// forget drops the events of a kind that all watchers have received.
func (w *world) forget(resource schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history[resource] = nil
}

func (w *world) fails(resource schema.GroupVersionResource, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[resource] = err
}

// watches is how many are open.
func (w *world) watches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watchers)
}

// requests returns those but lists and watches, and forgets them.
func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}

// endpoint is one kind, in one namespace or all.
type endpoint struct {
	dynamic.NamespaceableResourceInterface

	world     *world
	resource  schema.GroupVersionResource
	namespace string
}

func (e *endpoint) Namespace(namespace string) dynamic.ResourceInterface {
	return &endpoint{world: e.world, resource: e.resource, namespace: namespace}
}

func (e *endpoint) group() schema.GroupResource { return e.resource.GroupResource() }

// request locks the world for one request.
func (e *endpoint) request(ctx context.Context, verb string) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if e.world.before != nil {
		e.world.before(verb)
	}
	e.world.mu.Lock()
	e.world.asked = append(e.world.asked, verb+" "+e.resource.Resource)
	return e.world.mu.Unlock, nil
}

func (e *endpoint) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	w := e.world
	if w.listing != nil {
		w.listing(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, options)
	if err := cmp.Or(w.broken[e.resource], ctx.Err()); err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"kind": "List", "apiVersion": "v1"}}
	list.SetResourceVersion(strconv.FormatInt(w.version, 10))
	for key, object := range w.objects[e.resource] {
		if e.namespace == "" || e.namespace == key.Namespace {
			list.Items = append(list.Items, *object.DeepCopy())
		}
	}
	return list, nil
}

func (e *endpoint) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w := e.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := cmp.Or(w.broken[e.resource], ctx.Err()); err != nil {
		return nil, err
	}
	from, _ := strconv.ParseInt(options.ResourceVersion, 10, 64)
	if from < w.expired[e.resource] {
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	each := &watcher{FakeWatcher: watch.NewFakeWithChanSize(10_000, false), world: w, resource: e.resource, namespace: e.namespace, sent: from}
	w.watchers[each] = true
	w.deliver()
	return each, nil
}

// Stop is called by the reader.
func (w *watcher) Stop() {
	w.world.mu.Lock()
	defer w.world.mu.Unlock()
	delete(w.world.watchers, w)
}

func (e *endpoint) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	unlock, err := e.request(ctx, "get")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if o := e.world.objects[e.resource][keyOf(e.namespace, name)]; o != nil {
		return o.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(e.group(), name)
}

func (e *endpoint) Create(
	ctx context.Context,
	object *unstructured.Unstructured,
	_ metav1.CreateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	unlock, err := e.request(ctx, "create")
	if err != nil {
		return nil, err
	}
	defer unlock()
	object = object.DeepCopy()
	object.SetNamespace(e.namespace)
	if object.GetName() == "" {
		object.SetName(fmt.Sprintf("%s%d", object.GetGenerateName(), e.world.version))
	}
	if e.world.objects[e.resource][keyOf(e.namespace, object.GetName())] != nil {
		return nil, apierrors.NewAlreadyExists(e.group(), object.GetName())
	}
	return e.world.store(e.resource, object), nil
}

func (e *endpoint) Patch(
	ctx context.Context,
	name string,
	form types.PatchType,
	data []byte,
	_ metav1.PatchOptions,
	sub ...string,
) (*unstructured.Unstructured, error) {
	unlock, err := e.request(ctx, "patch")
	if err != nil {
		return nil, err
	}
	defer unlock()
	key := keyOf(e.namespace, name)
	old := e.world.objects[e.resource][key]
	if old == nil {
		return nil, apierrors.NewNotFound(e.group(), name)
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(data, &patch); err != nil || form != types.MergePatchType {
		return nil, apierrors.NewBadRequest("want a merge patch")
	}
	next := &unstructured.Unstructured{Object: merge(old.DeepCopy().Object, patch)}
	switch {
	case next.GetResourceVersion() != old.GetResourceVersion():
		return nil, apierrors.NewConflict(e.group(), name, fmt.Errorf("resourceVersion is %s", old.GetResourceVersion()))
	case next.GetUID() != old.GetUID():
		return nil, apierrors.NewConflict(e.group(), name, fmt.Errorf("UID is %s", old.GetUID()))
	case old.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) > len(old.GetFinalizers()):
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}}
	}
	if len(sub) > 0 {
		status := next.Object["status"]
		next = old.DeepCopy()
		next.Object["status"] = status
	} else if status, ok := old.Object["status"]; ok {
		next.Object["status"] = status
	}
	a, _ := json.Marshal(old.Object)
	b, _ := json.Marshal(next.Object)
	if string(a) == string(b) {
		return old.DeepCopy(), nil
	}
	return e.world.store(e.resource, next), nil
}

// merge applies a JSON merge patch.
func merge(object, patch map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for name, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(object, name)
		case map[string]any:
			inner, _ := object[name].(map[string]any)
			object[name] = merge(inner, v)
		default:
			object[name] = value
		}
	}
	return object
}
