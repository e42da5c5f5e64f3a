package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// tryAgain is how long the cache of a Manager has to begin before it is asked why not.
const tryAgain = 5 * time.Second

// source delivers the objects of one kind that the cache of a Manager has: there is one watch of
// them in the process.
type source struct {
	cache     cache.Cache
	server    client.Reader
	object    client.Object // of the type that the scheme has for kind
	kind      schema.GroupVersionKind
	namespace string
	logger    *slog.Logger
}

// deliver is a kube.Source.
func (s *source) deliver(ctx context.Context, to kube.Sink) {
	for {
		informer, err := s.cache.GetInformer(ctx, s.object, cache.BlockUntilSynced(false))
		if err == nil {
			err = s.follow(ctx, informer, to)
		}
		if ctx.Err() != nil {
			return
		}
		s.logger.WarnContext(ctx, "cache of the Manager has not begun", slog.String("kind", s.kind.Kind), slog.Any("error", err))
		to.Failed(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(tryAgain):
		}
	}
}

// follow delivers until ctx ends. An error is that the informer takes no handler.
func (s *source) follow(ctx context.Context, informer cache.Informer, to kube.Sink) error {
	d := &delivery{source: s, to: to, first: map[types.NamespacedName]*unstructured.Unstructured{}}
	defer d.end()
	handle, err := informer.AddEventHandler(d)
	if err != nil {
		return err
	}
	defer func() {
		if err := informer.RemoveEventHandler(handle); err != nil {
			s.logger.WarnContext(ctx, "handler not removed", slog.String("kind", s.kind.Kind), slog.Any("error", err))
		}
	}()
	for !soon(ctx, handle.HasSynced) {
		if ctx.Err() != nil {
			return nil
		}
		to.Failed(s.why(ctx))
	}
	d.list()
	<-ctx.Done()
	return nil
}

// soon waits for tryAgain until something holds.
func soon(ctx context.Context, holds func() bool) bool {
	limited, cancel := context.WithTimeout(ctx, tryAgain)
	defer cancel()
	return toolscache.WaitForCacheSync(limited.Done(), holds)
}

// why asks the server why there is no list: an informer does not say it.
func (s *source) why(ctx context.Context) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(s.kind.GroupVersion().WithKind(s.kind.Kind + "List"))
	if err := s.server.List(ctx, &list, client.InNamespace(s.namespace), client.Limit(1)); err != nil {
		return fmt.Errorf("the cache of the Manager has no list: %w", err)
	}
	return errors.New("the cache of the Manager has no list")
}

// delivery is the handler of one follow.
type delivery struct {
	source *source

	mu    sync.Mutex
	to    kube.Sink                                           // nil at the end
	first map[types.NamespacedName]*unstructured.Unstructured // until there is a list
}

var _ toolscache.ResourceEventHandler = (*delivery)(nil)

// OnAdd implements toolscache.ResourceEventHandler.
func (d *delivery) OnAdd(object any, _ bool) { d.put(object) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (d *delivery) OnUpdate(_, object any) { d.put(object) }

func (d *delivery) put(object any) {
	d.take(object, func(key types.NamespacedName, u *unstructured.Unstructured) {
		if d.first != nil {
			d.first[key] = u
			return
		}
		d.to.Put(u)
	})
}

// OnDelete implements toolscache.ResourceEventHandler.
func (d *delivery) OnDelete(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	d.take(object, func(key types.NamespacedName, u *unstructured.Unstructured) {
		if d.first != nil {
			delete(d.first, key)
			return
		}
		d.to.Drop(u)
	})
}

// take calls one function at a time, with a copy of an object.
func (d *delivery) take(object any, call func(types.NamespacedName, *unstructured.Unstructured)) {
	seen, ok := object.(client.Object)
	if !ok || d.source.namespace != "" && seen.GetNamespace() != d.source.namespace {
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(seen)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.to == nil:
	case err != nil:
		d.to.Failed(fmt.Errorf("%s: %w", client.ObjectKeyFromObject(seen), err))
	default:
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(d.source.kind)
		call(kube.KeyOf(u), u)
	}
}

// list delivers what there was at the beginning.
func (d *delivery) list() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to.List(slices.Collect(maps.Values(d.first)))
	d.first = nil
}

// end keeps what is still under way from the sink.
func (d *delivery) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = nil
}
