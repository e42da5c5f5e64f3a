package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
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
	backoff := kubewatch.Retry{}
	for ctx.Err() == nil {
		mapping := k.resolve(ctx, from, &backoff)
		if mapping == nil {
			return
		}
		start := time.Now()
		k.watchResource(ctx, from, mapping)
		if time.Since(start) > time.Minute {
			backoff = kubewatch.Retry{}
		}
		// The resource is no longer served, or never was.
		backoff.Wait(ctx, k.nudge)
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
func (k *Kind) resolve(ctx context.Context, from Source, backoff *kubewatch.Retry) *meta.RESTMapping {
	var outage kubewatch.Outage
	for ctx.Err() == nil {
		mapping, err := k.mappingOf(from)
		if err == nil {
			k.Serve(mapping, from.Namespaces)
			outage.Log(from.Logger, k.group.String(), nil)
			return mapping
		}
		k.fail(lookup, err)
		outage.Log(from.Logger, k.group.String(), err)
		if meta.IsNoMatchError(err) && backoff.Tried() {
			switch known, _ := Ask(ctx, from.Client, from.Discovery, k.group); known.State {
			case Unknown:
				k.doubt(fmt.Errorf("%w: %w", err, known.Err))
			case Unserved:
				k.vanish()
				k.absent(ctx, from)
				ResetMapper(from.Mapper, err)
				continue
			case Served: // the mapper will know it
			}
		}
		backoff.Wait(ctx, k.nudge)
		ResetMapper(from.Mapper, err)
	}
	return nil
}

// absent returns when the kind may be served again: discovery no longer says that it is not, or
// the view is nudged. To ask discovery costs less than to ask the mapper, which reads all of it.
func (k *Kind) absent(ctx context.Context, from Source) {
	var often kubewatch.Retry
	for ctx.Err() == nil {
		if often.WaitAtMost(ctx, k.nudge, kubewatch.Unserved) {
			return
		}
		if known, _ := Ask(ctx, from.Client, from.Discovery, k.group); known.State != Unserved {
			return
		}
	}
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
	k.servedAgain()
}

// doubt records that it is unknown whether the server serves the kind.
func (k *Kind) doubt(err error) {
	k.fail(lookup, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.servedAgain()
}

// servedAgain ends the proof that the kind is not served. The lock is held.
func (k *Kind) servedAgain() {
	if k.state == Unserved {
		k.state = Unknown
	}
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
	k.state, k.listed, k.lost = Unserved, nil, nil
	wakes := k.allAwaited()
	k.mu.Unlock()
	for _, o := range gone {
		k.announce(o, false, true, nil)
	}
	for _, wake := range wakes {
		wake()
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
		k.watchSource(ctx, cancel, from, sink{kind: k}, client)
		return
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, namespace := range sources {
		watches.Go(func() { k.watchSource(ctx, cancel, from, sink{k, namespace}, client.Namespace(namespace)) })
	}
}

func (k *Kind) watchSource(ctx context.Context, gone func(), from Source, into sink, resource clientmetadata.ResourceInterface) {
	w := kubewatch.Watch{
		Name:     k.group.String(),
		Resource: kubewatch.Of(from.Client, &metav1.PartialObjectMetadata{}, resource), LabelSelector: from.Selector,
		Sink: into, Again: k.nudge, Logger: from.Logger,
		Alive: func() { k.watched(nil) },
		Failed: func(err error) {
			if err != nil {
				k.watched(err)
			}
			if errors.Is(err, kubewatch.ErrSilent) {
				return // it is resumed, and nothing is lost
			}
			k.fail(into.namespace, err)
			if apierrors.IsNotFound(err) {
				// Perhaps it is served in another version by now.
				if resettable, ok := from.Mapper.(meta.ResettableRESTMapper); ok {
					resettable.Reset()
				}
				gone()
			}
		},
	}
	_ = w.Start(ctx) // it returns nil
}
