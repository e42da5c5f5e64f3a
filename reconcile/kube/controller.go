package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Controller calls a function for each object of a kind when the object, a child
// of it, or an object that it refers to has changed. T is a pointer to the struct
// of the kind, which embeds metav1.TypeMeta and metav1.ObjectMeta, or
// *unstructured.Unstructured. The struct may leave out fields that are not needed,
// if all writes are patches.
//
// Set the fields, then call Start. Fields are read when a method is first called
// and must not change afterwards. All methods are safe for concurrent use. A
// Controller must not be copied after first use.
type Controller[T metav1.Object] struct {
	// Name stands in logs and errors. Default the resource of Kind.
	Name string

	// Client reaches the API server. It is only used to list and watch. Required.
	Client dynamic.Interface

	// Metadata watches the kinds of which only metadata is kept. Default nil:
	// Client watches them, and the rest of each object is transferred and dropped.
	Metadata clientmetadata.Interface

	// Kind is the kind of the objects to reconcile. They are always kept whole.
	// Kind.Resource is required.
	Kind Kind

	// Reconcile does one pass for one object, never two at a time for one key. The
	// object is a copy that belongs to the pass, as of the last event. It is nil
	// when the object is deleted or no longer selected. Absence is reported once for
	// each deletion, unless the object exists again by then, and is repeated until a
	// pass for it succeeds. It is never reported because of an error. Required.
	Reconcile func(ctx context.Context, key types.NamespacedName, object T) (reconcile.Result, error)

	// Owned are the kinds of the children. A change of an object of such a kind
	// starts a pass for the object that its controller ownerReference names, by
	// UID. Default none.
	Owned []Kind

	// Referenced are the kinds that References and ReferencesOf may name. A change
	// of an object of such a kind, its creation and its deletion start a pass for
	// each object that refers to it, directly or by way of others. A resource may
	// be listed here or in Owned or, with the same other fields, in both. Default
	// none.
	Referenced []Kind

	// References returns the objects that an object refers to. It is called with a copy on
	// each change of the object, and must not block. Its panic is the error of the
	// passes for that object. A reference may name an object that does not exist:
	// its creation starts a pass. It may name a resource that is not watched: that
	// starts no pass, and Users finds by it, as by an index. Default nil, which is
	// none.
	References func(object T) []Reference

	// ReferencesOf returns the objects that an object of a Referenced kind refers to
	// in turn, such as the Secret that a class names. A change of an object starts a
	// pass for each object of the Controller's kind that reaches it by References
	// and ReferencesOf, in any number of steps, and for no other. Cycles are
	// harmless. It is called on each change of the object with a copy of the cached
	// state, which is metadata for a kind that is not Whole, and must not block. Its
	// panic is logged, the object then has no references, and Lookup returns the
	// error. Default nil, which is none.
	ReferencesOf func(from Reference, object *unstructured.Unstructured) []Reference

	// IgnoreStatus starts no pass for a change that leaves the generation and the
	// metadata of an object as they were: for kinds with a status subresource, a
	// change of the status alone. Default false: every change starts one.
	IgnoreStatus bool

	// Resync is the interval at which a pass is started for each object, after the
	// passes that have a reason. Default 0, which is never: events are not lost, and
	// Result.RequeueAfter fits state outside Kubernetes better. One thing is no event: an
	// object that a pass has deleted, and that a restored backup brings back unchanged before
	// the watch has shown its deletion.
	Resync time.Duration

	// Workers, Timeout and Backoff configure the reconcile.Queue: the number of
	// objects reconciled at a time (default 1), the bound of a pass (default 5m, as
	// one call that never returns would keep its object, and its worker, for good),
	// and the delay of the repetition of a failed pass. An event does not wait for
	// that delay: a pass that fails and writes a different value each time, such as
	// a status with the time in it, is repeated at once by its own event.
	Workers int
	Timeout time.Duration
	Backoff reconcile.Backoff

	// Misfit is called in place of Reconcile for an object that T cannot hold, such as one whose definition
	// lets a number pass for a text, or for which References panics: with its metadata, what T can hold of the rest, and the error, which
	// is terminal. It returns what Reconcile returns. Default nil: the pass fails with the error.
	Misfit func(ctx context.Context, key types.NamespacedName, part T, err error) (reconcile.Result, error)

	// Await is called before the first pass after Start, such as WaitSynced of an
	// apply.Live: a pass before that would take for missing what is only not seen yet,
	// and report it. Its context ends after half a minute; then passes begin all the
	// same, so that one kind that cannot be seen does not keep the rest. The error is
	// logged. Default nil.
	Await func(context.Context) error

	// OnPass is called after every pass, as by reconcile.Queue. Default nil.
	OnPass func(reconcile.KeyPass[types.NamespacedName])

	// Logger receives, at level warn, failed lists and watches, panics of
	// ReferencesOf, and writes that a watch did not show within a minute. It
	// receives passes as reconcile.Queue logs them. Default nil, which is silent.
	Logger *slog.Logger

	once    sync.Once
	invalid error
	caches  *caches
	queue   reconcile.Queue[types.NamespacedName]
	running sync.Mutex // held by Start
}

// Start watches until ctx ends. Once every kind is synced, it starts a pass for
// each object, and further passes for events. When ctx ends, it waits for its
// passes and goroutines, and returns nil.
//
// A kind that cannot be listed or watched, because it is missing or forbidden or
// the API server is unreachable, is tried again with backoff of up to 30 seconds; of up to five
// while it is not served.
// That is logged, and reported by [Controller.Synced]. Start returns an error if
// the configuration is invalid or the Controller is running already. A Controller
// that has stopped can be started again: it then begins with new lists and a pass
// for each object. Objects deleted in between are reported absent.
func (c *Controller[T]) Start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if !c.running.TryLock() {
		return fmt.Errorf("kube: controller %s is running already", c.name())
	}
	defer c.running.Unlock()

	// A Queue whose ctx has ended only validates its fields.
	ended, end := context.WithCancel(ctx)
	end()
	if err := c.queue.Start(ended); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	synced := c.caches.restart()
	// client-go would log each retry. Synced and Logger report them instead.
	quiet := logr.NewContext(watching, logr.Discard())
	for _, s := range c.caches.kinds {
		parts.Go(func() { s.watch(quiet, c.Client, c.Metadata) })
	}
	select {
	case <-synced:
	case <-ctx.Done():
		return nil
	}
	parts.Go(func() { c.resync(watching) })
	c.await(ctx)
	return c.queue.Start(ctx)
}

// passLimit bounds a pass where Timeout is not set.
const passLimit = 5 * time.Minute

// awaitLimit is how long Await is waited for.
const awaitLimit = 30 * time.Second

// await waits for what Await waits for.
func (c *Controller[T]) await(ctx context.Context) {
	if c.Await == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	if err := c.Await(limited); err != nil && ctx.Err() == nil && c.Logger != nil {
		c.Logger.WarnContext(ctx, "passes begin although something is not seen yet", slog.String("controller", c.name()), slog.Any("error", err))
	}
}

// Add starts a pass for each of keys. It is for reasons outside the watched kinds:
// a timer, another controller, an event of a cloud. It never blocks. Keys that are
// added before Start wait for it.
func (c *Controller[T]) Add(keys ...types.NamespacedName) {
	if c.prepare() == nil {
		c.queue.Add(keys...)
	}
}

// AddUID is [Controller.Add] for objects named by UID, as an ownerReference or a
// label names them. Another view of the children calls it to wake their parents;
// see the section Children of the package. A UID that the cache does not hold
// starts no pass: an object that the cache does not show yet gets a pass when it
// does, and a deleted object has been reported absent. An object created again
// under the same name has another UID. AddUID never blocks.
func (c *Controller[T]) AddUID(uids ...types.UID) {
	if c.prepare() == nil {
		c.queue.Add(c.caches.keysOf(uids)...)
	}
}

// Synced reports whether every kind has been listed since the last Start, so that
// passes run. The error names each kind that cannot be listed or watched at the
// moment, with the reason, and each kind that is not synced yet, wrapping
// [ErrNotSynced]. True with an error means that a listed state cannot be refreshed
// at the moment.
func (c *Controller[T]) Synced() (bool, error) {
	if err := c.prepare(); err != nil {
		return false, err
	}
	return c.caches.status()
}

// Parked returns the objects whose last pass failed and is not repeated before
// their next event, each with the error of that pass. The caller owns the map.
func (c *Controller[T]) Parked() map[types.NamespacedName]error { return c.queue.Parked() }

// pass is the Reconcile of the queue.
func (c *Controller[T]) pass(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	wait, overdue := c.caches.postpone(key, time.Now())
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	for _, resource := range overdue {
		c.logger().WarnContext(ctx, "write not seen by the watch", slog.String("controller", c.name()),
			slog.Any("key", key), slog.String("kind", resource))
	}
	object, err := c.Get(key)
	switch {
	case errors.Is(err, ErrAbsent):
		// It is nil.
	case err != nil && c.Misfit != nil:
		if part := c.part(key); part.GetUID() != "" {
			return c.Misfit(ctx, key, part, reconcile.Terminal(err))
		}
		return reconcile.Result{}, reconcile.Terminal(err)
	case err != nil:
		// Retrying with the same object cannot succeed.
		return reconcile.Result{}, reconcile.Terminal(err)
	}
	return c.Reconcile(ctx, key, object)
}

func (c *Controller[T]) resync(ctx context.Context) {
	if c.Resync == 0 {
		return
	}
	for pause(ctx, c.Resync, nil) {
		c.queue.Resync(c.caches.keys("")...)
	}
}

// prepare validates the configuration once.
func (c *Controller[T]) prepare() error {
	c.once.Do(func() {
		if c.invalid = c.validate(); c.invalid != nil {
			return
		}
		c.queue.Name = c.name()
		c.queue.Reconcile = c.pass
		c.queue.Workers, c.queue.Timeout, c.queue.Backoff = c.Workers, cmp.Or(c.Timeout, passLimit), c.Backoff
		c.queue.Logger = c.Logger
		c.queue.OnPass = func(pass reconcile.KeyPass[types.NamespacedName]) {
			if !c.caches.postponed(pass.Key) && c.OnPass != nil {
				c.OnPass(pass)
			}
		}
		c.caches = &caches{
			controller: c.name(), logger: c.logger(), wake: c.queue.Add,
			ignoreStatus: c.IgnoreStatus,
		}
		c.caches.references = c.references
		c.invalid = c.caches.open(c.Kind, c.Owned, c.Referenced)
	})
	return c.invalid
}

// references calls References or ReferencesOf for the object from, whose cached
// state is data.
func (c *Controller[T]) references(from Reference, data []byte) (references []Reference, err error) {
	var call func() []Reference
	switch own := from.Resource == c.Kind.Resource; {
	case own && c.References != nil:
		object, err := decode[T](data)
		if err != nil {
			return nil, err
		}
		call = func() []Reference { return c.References(object) }
	case !own && c.ReferencesOf != nil:
		object, err := decode[*unstructured.Unstructured](data)
		if err != nil {
			return nil, err
		}
		call = func() []Reference { return c.ReferencesOf(from, object) }
	default:
		return nil, nil
	}
	err = contain(func() error { references = call(); return nil })
	return references, err
}

func (c *Controller[T]) validate() error {
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("kube: the type of the Controller is %s; want a pointer to a struct", t)
	}
	if object, err := decode[T]([]byte(`{"metadata":{"name":"a"}}`)); err == nil && object.GetName() != "a" {
		return fmt.Errorf(`kube: the type %T of the Controller does not decode metadata; want metav1.ObjectMeta with the tag json:"metadata"`,
			object)
	}
	switch {
	case c.Client == nil:
		return errors.New("kube: Controller.Client: is required")
	case c.Reconcile == nil:
		return errors.New("kube: Controller.Reconcile: is required")
	case c.Resync < 0:
		return fmt.Errorf("kube: Controller.Resync: is %v, must be 0 (never) or more", c.Resync)
	case c.Workers < 0:
		return fmt.Errorf("kube: Controller.Workers: is %d, must be 0 (1) or more", c.Workers)
	case c.Timeout < 0:
		return fmt.Errorf("kube: Controller.Timeout: is %v, must be 0 (5m) or more", c.Timeout)
	}
	return nil
}

func (c *Controller[T]) name() string {
	return cmp.Or(c.Name, c.Kind.Resource.GroupResource().String())
}

func (c *Controller[T]) logger() *slog.Logger {
	return cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}
