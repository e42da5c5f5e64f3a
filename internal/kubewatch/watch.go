// Package kubewatch keeps what an API server has of a resource: it lists and watches it
// until its context ends, and reports when what it keeps was last proven to be current.
//
// A [Watch] delivers the objects to a [Sink]; [Store] is one that keeps a value for each
// object. A Watch guarantees that
//
//   - the first list is consistent: it shows every write that was acknowledged before,
//   - a watch without an event or bookmark for [Watch.Silence] is ended and resumed, or
//     listed again; a list without an answer for as long is given up,
//   - each failure is reported and tried again with growing delays of up to 30 s, of up to
//     [Unserved] if it is that the server does not serve the resource; an expired version is no
//     failure, because the list that follows shows everything,
//   - [Watch.Start] returns after everything that it started has ended.
package kubewatch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Watch is the list and watch of one resource.
type Watch struct {
	// Name is the kind in log lines.
	Name string
	// Resource is what is listed and watched. Required.
	Resource Resource
	// LabelSelector and FieldSelector select objects; empty: all.
	LabelSelector, FieldSelector string
	// Sink receives the objects. Required.
	Sink Sink
	// Alive is called, if set, for each proof that the sink is current: a list, an event, a
	// bookmark. It must not block.
	Alive func()
	// Failed is called, if set, with the error of each list or watch that failed or fell
	// silent, and with nil when the server answers again. It must not block.
	Failed func(error)
	// Silence is how long a watch may be without an event or bookmark. Zero means three
	// minutes: a server sends a bookmark about every minute.
	Silence time.Duration
	// Relist makes a silent watch be followed by a list, which proves the sink current,
	// instead of being resumed: for a Silence below the minute between two bookmarks.
	Relist bool
	// Again makes a Watch that has not listed yet list at once. Nil: nothing does.
	Again <-chan struct{}
	// Logger receives failures, each reason at most every ten minutes, and the end of those
	// that were logged. Nil: nothing is logged.
	Logger *slog.Logger

	outage Outage
	calls  calls
	dogs   sync.WaitGroup // watchdogs
	listed atomic.Bool
	absent atomic.Bool // the last answer was that the resource is not served
	// giving is held while an attempt is given up, and while its failure is reported: none
	// is reported afterwards. giveUp gives up the present attempt.
	giving sync.Mutex
	giveUp func()
}

// Sink receives what a Watch delivers, from one goroutine.
type Sink interface {
	// Put takes an object that was added or changed.
	Put(object any) error
	// Drop takes the last state of an object that was deleted, or is no longer selected.
	Drop(object any) error
	// Replace takes the result of a list: there is no other object.
	Replace(objects []any, version string) error
	// Reached is called after each event and bookmark with its resourceVersion.
	Reached(version string)
}

// Reducer is implemented by a [Sink] that keeps less than whole objects. Put and Replace
// then get what Reduce returned for an object, so that a list of whole objects is never in
// memory.
type Reducer interface {
	Reduce(object any) (any, error)
}

// Resource is how a resource is listed and watched.
type Resource struct {
	client  any
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Of returns a resource of a client of client-go. example is an object as the resource
// delivers it.
func Of[List runtime.Object](client any, example runtime.Object, resource interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
},
) Resource {
	return Resource{client, example, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, options)
	}, resource.Watch}
}

// Start implements reconcile.Starter. It returns nil.
func (w *Watch) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.Discard()) // failures are reported and logged here
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(
			&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch},
			w.Resource.client,
		),
		w.Resource.example,
		&store{w},
		cache.ReflectorOptions{Name: w.Name},
	)
	w.listed.Store(false)
	var retry Retry
	for ctx.Err() == nil {
		start := time.Now()
		now := w.follow(ctx, reflector)
		switch {
		case now:
			continue
		case time.Since(start) > time.Minute:
			retry = Retry{}
		}
		longest := maxRetry
		if w.absent.Load() {
			longest = Unserved
		}
		retry.WaitAtMost(ctx, w.Again, longest)
	}
	w.calls.wait() // a reflector does not wait for its last list
	w.dogs.Wait()
	return nil
}

// follow lists and watches once, and reports whether the next attempt is due at once: Again
// or silence has ended this one.
func (w *Watch) follow(ctx context.Context, reflector *cache.Reflector) (now bool) {
	ctx, stop := context.WithCancel(ctx)
	w.giving.Lock()
	w.giveUp = func() { now = true; stop() }
	w.giving.Unlock()
	var again sync.WaitGroup
	again.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.Again:
				if !w.listed.Load() {
					w.endAttempt(ctx)
				}
			}
		}
	})
	// RunWithContext would pass errors to a handler that is shared by the whole process and
	// sleeps. The error of a list or watch has been reported.
	_ = reflector.ListAndWatchWithContext(ctx)
	stop()
	again.Wait()
	w.giving.Lock()
	defer w.giving.Unlock()
	return now
}

// endAttempt gives up the attempt of ctx, unless it has ended.
func (w *Watch) endAttempt(ctx context.Context) {
	w.giving.Lock()
	defer w.giving.Unlock()
	if ctx.Err() == nil {
		w.giveUp()
	}
}

func (w *Watch) silence() time.Duration { return cmp.Or(w.Silence, 3*time.Minute) }

// patience is how long the answer to a list or watch may take.
func (w *Watch) patience() time.Duration { return max(time.Minute, w.silence()) }

func (w *Watch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if !w.calls.enter(ctx) {
		return nil, ctx.Err()
	}
	defer w.calls.leave()
	if options.ResourceVersion == "0" {
		// "0" allows any state, however old. A new leader must not start behind the writes
		// of its predecessor, and nothing is deleted for its absence from an old list.
		options.ResourceVersion = ""
	}
	options.LabelSelector, options.FieldSelector = w.LabelSelector, w.FieldSelector
	timed, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	list, err := w.Resource.list(timed, options)
	w.report(ctx, err)
	return list, err
}

func (w *Watch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector, options.FieldSelector = w.LabelSelector, w.FieldSelector
	timed, end := context.WithCancel(ctx)
	late := time.AfterFunc(w.patience(), end)
	open, err := w.Resource.watch(timed, options)
	if !late.Stop() && ctx.Err() == nil {
		if err == nil {
			open.Stop()
		}
		err = errUnanswered
	}
	if err != nil {
		end()
	}
	if options.SendInitialEvents != nil && apierrors.IsInvalid(err) {
		return nil, err // the server streams no lists: the reflector lists next, and that is reported
	}
	w.report(ctx, err)
	if err != nil {
		return nil, refusal(err, options)
	}
	return newWatchdog(open, w.silence(), func() { w.fellSilent(ctx) }, end, &w.dogs), nil
}

// errUnanswered is reported when a watch is not answered, as behind a proxy whose server hangs.
var errUnanswered = errors.New("the watch is not answered")

func (w *Watch) fellSilent(ctx context.Context) {
	w.report(ctx, ErrSilent)
	if w.Relist {
		w.endAttempt(ctx) // before the reflector sees the end of the watch, and resumes it
	}
}

// report notes the result of a list or watch, unless it has failed because ctx ended.
func (w *Watch) report(ctx context.Context, err error) {
	w.giving.Lock()
	defer w.giving.Unlock()
	if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		w.note(err)
	}
}

func (w *Watch) note(err error) {
	w.absent.Store(apierrors.IsNotFound(err))
	w.outage.Log(w.Logger, w.Name, err)
	if w.Failed != nil {
		w.Failed(err)
	}
}

func (w *Watch) proved() {
	if w.Alive != nil {
		w.Alive()
	}
}

// calls counts the lists in progress. Unlike a sync.WaitGroup, it allows a list to begin
// during wait.
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
