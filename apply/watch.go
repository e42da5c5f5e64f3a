package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// watchKind keeps the view of one kind until ctx ends.
func (l *Live) watchKind(ctx context.Context, kind schema.GroupVersionKind) {
	v := l.views[kind.GroupKind()]
	mapping := l.resolve(ctx, kind, v)
	if mapping == nil {
		return
	}
	if len(l.Namespaces) == 0 || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		l.watchSource(ctx, kind, source{view: v}, l.Client.Resource(mapping.Resource))
		return
	}
	v.mu.Lock()
	v.sources = l.Namespaces
	v.mu.Unlock()
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, namespace := range l.Namespaces {
		watches.Go(func() {
			l.watchSource(ctx, kind, source{v, namespace}, l.Client.Resource(mapping.Resource).Namespace(namespace))
		})
	}
}

// source is a store for what is seen in one namespace, or everywhere.
type source struct {
	*view
	namespace string
}

// Replace implements cache.ReflectorStore.
func (s source) Replace(objects []any, version string) error {
	return s.replace(s.namespace, objects, version)
}

// watchSource lists and watches until ctx ends.
func (l *Live) watchSource(ctx context.Context, kind schema.GroupVersionKind, into source, resource clientmetadata.ResourceInterface) {
	selector := l.Owner.selector()
	if narrower, err := l.selector(kind.GroupKind()); err == nil && !narrower.Empty() {
		selector += "," + narrower.String()
	}
	failed := func(err error) error {
		if err != nil && ctx.Err() == nil {
			into.setErr(into.namespace, err)
			l.log(ctx, kind, err)
		}
		return err
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := resource.List(ctx, options)
			return list, failed(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			w, err := resource.Watch(ctx, options)
			if err != nil {
				return w, notAwaited(failed(err), options)
			}
			into.setErr(into.namespace, nil)
			return newVigil(w, watchSilence), nil
		},
	}
	for ctx.Err() == nil {
		// A kind whose definition has just appeared is not waited for with the
		// reflector's patience.
		now, again := context.WithCancel(ctx)
		var nudges sync.WaitGroup
		nudges.Go(func() {
			for {
				select {
				case <-now.Done():
					return
				case <-into.nudge:
					if synced, _ := into.status(); !synced {
						again()
					}
				}
			}
		})
		cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, into,
			cache.ReflectorOptions{Name: kind.String()}).RunWithContext(now)
		again()
		nudges.Wait()
	}
}

// notAwaited hides from the reflector that a watch which begins with a list was
// refused: it would wait for up to a minute then, whatever its context says. Now it
// lists instead, and waits as long, or until its context ends.
func notAwaited(err error, options metav1.ListOptions) error {
	if options.SendInitialEvents != nil && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		return errors.New(err.Error())
	}
	return err
}

// resolve asks the mapper until it knows the kind. Nil: ctx ended.
func (l *Live) resolve(ctx context.Context, kind schema.GroupVersionKind, v *view) *meta.RESTMapping {
	for delay := time.Second; ; delay = min(2*delay, 30*time.Second) {
		mapping, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			v.mu.Lock()
			v.mapping = mapping
			v.mu.Unlock()
			v.setErr("", nil)
			return mapping
		}
		v.setErr("", err)
		l.log(ctx, kind, err)
		select {
		case <-ctx.Done():
			return nil
		case <-v.nudge:
			delay = 50 * time.Millisecond // discovery follows the definition soon
		case <-time.After(delay):
		}
		if mapper, ok := l.Mapper.(meta.ResettableRESTMapper); ok && meta.IsNoMatchError(err) {
			mapper.Reset()
		}
	}
}

// definitions is the kind whose changes may make another kind known.
func definitions() schema.GroupKind {
	return schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

// defined wakes the views that wait for a definition, when one changes. Its name
// is <plural>.<group>.
func (l *Live) defined(n name) {
	for kind, v := range l.views {
		if synced, _ := v.status(); synced || !strings.HasSuffix(n.name, "."+kind.Group) {
			continue
		}
		select {
		case v.nudge <- struct{}{}:
		default:
		}
	}
}

// covers reports whether the namespace is watched.
func (l *Live) covers(namespace string) bool {
	return len(l.Namespaces) == 0 || namespace == "" || slices.Contains(l.Namespaces, namespace)
}

// selector returns what narrows the watch of a kind.
func (l *Live) selector(kind schema.GroupKind) (labels.Selector, error) {
	if l.Selector == nil {
		return labels.Everything(), nil
	}
	text := l.Selector(kind)
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("apply: Live.Selector: %q for %s: %w", text, kind, err)
	}
	return selector, nil
}

// selects returns an error for an object that the watch of its kind would never
// show.
func (l *Live) selects(kind schema.GroupKind, have map[string]string) error {
	selector, err := l.selector(kind)
	if err != nil || selector.Matches(labels.Set(have)) {
		return err
	}
	return fmt.Errorf("metadata.labels: %v are not selected by Live.Selector %q", have, selector)
}

func (l *Live) log(ctx context.Context, kind schema.GroupVersionKind, err error) {
	if l.Logger != nil {
		l.Logger.WarnContext(ctx, "watch failed", slog.String("kind", kind.GroupKind().String()), slog.Any("error", err))
	}
}
