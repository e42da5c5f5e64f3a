package view

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/internal/reflectors"
)

// Source is where a kind is listed and watched.
type Source struct {
	Client clientmetadata.Interface
	Mapper meta.RESTMapper
	// Discovery proves that a kind which the mapper lacks is not served. Nil: there is
	// no such proof.
	Discovery Discovery
	// Version is the version of the kind to watch. If it is empty, or the server does
	// not serve it, another one is watched.
	Version string
	// Namespaces limits the watches of a namespaced kind; nil: everywhere.
	Namespaces []string
	// Selector is the label selector.
	Selector string
	// Logger receives failures; nil: none are logged.
	Logger *slog.Logger
}

// Watch keeps the view until ctx ends. A failure is tried again with backoff.
func (k *Kind) Watch(ctx context.Context, from Source) {
	k.mu.Lock()
	k.began = time.Now()
	k.mu.Unlock()
	backoff := retry{}
	for ctx.Err() == nil {
		mapping := k.resolve(ctx, from, &backoff)
		if mapping == nil {
			return
		}
		start := time.Now()
		k.watchResource(ctx, from, mapping)
		if time.Since(start) > time.Minute {
			backoff = retry{}
		}
		// The resource is no longer served, or never was.
		backoff.wait(ctx, k.nudge)
	}
}

// Nudge makes an unknown kind be looked up at once.
func (k *Kind) Nudge() {
	select {
	case k.nudge <- struct{}{}:
	default:
	}
}

// resolve asks the mapper until it knows the kind. Nil: ctx has ended.
func (k *Kind) resolve(ctx context.Context, from Source, backoff *retry) *meta.RESTMapping {
	for ctx.Err() == nil {
		mapping, err := k.mappingOf(from)
		if err == nil {
			k.Serve(mapping, from.Namespaces)
			return mapping
		}
		k.fail(ctx, lookup, err)
		if meta.IsNoMatchError(err) && backoff.tries > 0 {
			if resource, unknown := Served(from.Discovery, k.group); unknown != nil {
				k.doubt(ctx, fmt.Errorf("%w: %w", err, unknown))
			} else if resource == nil {
				k.vanish()
			}
		}
		k.log(ctx, from, err)
		backoff.wait(ctx, k.nudge)
		ResetMapper(from.Mapper, err)
	}
	return nil
}

// lookup is the source of errors of the mapper. No namespace has that name.
const lookup = "/"

// Serve sets the resource of the kind, and, if it is namespaced, the namespaces that
// are watched one by one; nil: all at once.
func (k *Kind) Serve(mapping *meta.RESTMapping, namespaces []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mapping = mapping
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		k.sources = namespaces
	}
	delete(k.errs, lookup)
	k.unserved = false
}

// doubt records that it is unknown whether the server serves the kind.
func (k *Kind) doubt(ctx context.Context, err error) {
	k.fail(ctx, lookup, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unserved = false
}

// vanish records that the server does not serve the kind, confirmed by discovery: it
// has no objects.
func (k *Kind) vanish() {
	k.mu.Lock()
	var gone []Object
	for n, r := range k.records {
		gone = append(gone, Object{Name: n, Record: *r, Gone: true})
		k.drop(n, r)
	}
	k.unserved, k.synced, k.listed, k.lost = true, false, nil, nil
	k.mu.Unlock()
	for _, o := range gone {
		k.announce(o, false, true, nil)
	}
}

// mappingOf returns the resource of the kind, in the desired version if the server has
// it.
func (k *Kind) mappingOf(from Source) (*meta.RESTMapping, error) {
	if from.Version == "" {
		return from.Mapper.RESTMapping(k.group)
	}
	mapping, err := from.Mapper.RESTMapping(k.group, from.Version)
	if meta.IsNoMatchError(err) {
		if other, otherErr := from.Mapper.RESTMapping(k.group); otherErr == nil {
			return other, nil
		}
	}
	return mapping, err
}

// ResetMapper empties a caching mapper if the error is that it lacks the kind, and
// reports whether it did.
func ResetMapper(mapper meta.RESTMapper, err error) bool {
	resettable, ok := mapper.(meta.ResettableRESTMapper)
	if !ok || !meta.IsNoMatchError(err) {
		return false
	}
	resettable.Reset()
	return true
}

// watchResource lists and watches until ctx ends, or the server does not serve the
// resource.
func (k *Kind) watchResource(ctx context.Context, from Source, mapping *meta.RESTMapping) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := from.Client.Resource(mapping.Resource)
	k.mu.RLock()
	sources := k.sources
	k.mu.RUnlock()
	if len(sources) == 0 {
		k.watchSource(ctx, cancel, from, store{kind: k}, client)
		return
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, namespace := range sources {
		watches.Go(func() { k.watchSource(ctx, cancel, from, store{k, namespace}, client.Namespace(namespace)) })
	}
}

func (k *Kind) watchSource(ctx context.Context, gone func(), from Source, into store, resource clientmetadata.ResourceInterface) {
	// now is the context of the request. A replaced reflector may have a request in flight
	// that ends after its successor has listed.
	failed := func(now context.Context, err error) error {
		// An expired version is no failure: the next list shows everything.
		if err == nil || now.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return err
		}
		k.fail(now, into.namespace, err)
		k.watched(err)
		k.log(ctx, from, err)
		if apierrors.IsNotFound(err) {
			// Perhaps it is served in another version by now.
			if resettable, ok := from.Mapper.(meta.ResettableRESTMapper); ok {
				resettable.Reset()
			}
			gone()
		}
		return err
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = from.Selector
			list, err := resource.List(ctx, options)
			return list, failed(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = from.Selector
			w, err := resource.Watch(ctx, options)
			if err != nil {
				return w, reflectors.WatchError(failed(ctx, err), options)
			}
			k.fail(ctx, into.namespace, nil)
			return newWatchdog(w, maxSilence, func() { k.watched(errSilent) }), nil
		},
	}
	for ctx.Err() == nil {
		// A kind whose definition has just appeared must not wait for the reflector's
		// backoff.
		now, again := context.WithCancel(ctx)
		var nudges sync.WaitGroup
		nudges.Go(func() { k.untilNudged(now, again) })
		cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, from.Client), &metav1.PartialObjectMetadata{}, into,
			cache.ReflectorOptions{Name: k.group.String()}).RunWithContext(now)
		again()
		nudges.Wait()
	}
}

// untilNudged calls again when a nudge comes while the kind is unknown.
func (k *Kind) untilNudged(ctx context.Context, again func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.nudge:
			if synced, _ := k.Status(); !synced {
				again()
			}
		}
	}
}

func (k *Kind) log(ctx context.Context, from Source, err error) {
	if from.Logger != nil && ctx.Err() == nil {
		from.Logger.WarnContext(ctx, "watch failed", slog.String("kind", k.group.String()), slog.Any("error", err))
	}
}

// retry is the growing delay between looks for a kind.
type retry struct{ tries int }

// The delay after the first failure, the maximum, and the delay after a nudge:
// discovery follows the definition soon.
const (
	firstRetry  = time.Second
	maxRetry    = 30 * time.Second
	nudgedRetry = 50 * time.Millisecond
)

// wait waits for the delay, a nudge, or the end of ctx.
func (r *retry) wait(ctx context.Context, nudge <-chan struct{}) {
	delay := min(firstRetry<<min(r.tries, 5), maxRetry)
	r.tries++
	timer := time.NewTimer(delay - delay/4 + rand.N(delay/2)) //nolint:gosec // jitter
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-nudge:
		select {
		case <-ctx.Done():
		case <-time.After(nudgedRetry):
		}
	case <-timer.C:
	}
}
