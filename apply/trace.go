package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// trace looks for the kinds of our objects when the ApplySet's parent, which lists them,
// does not exist, or is not known to list all: at the first start of all, because it was
// deleted or edited while no program ran, or because an earlier look failed. An error means
// that there may be kinds which no watch shows.
func (l *Live) trace(ctx context.Context) error {
	l.tracing.Lock()
	defer l.tracing.Unlock()
	l.registry.mu.RLock()
	missing, last, until := l.untraced(), l.registry.applySet.untraced, l.registry.applySet.until
	l.registry.mu.RUnlock()
	if !missing || last != nil && time.Now().Before(until) {
		return last
	}
	found, err := l.findMembers(ctx)
	if err != nil {
		err = fmt.Errorf(
			"%w: the ApplySet's parent %s is new, or not as it was written, so it does not list the kinds of before: %w",
			ErrNotSynced, l.Owner.ApplySet, err,
		)
	}
	if ctx.Err() != nil {
		return err // the next call looks again
	}
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	l.registry.applySet.absent, l.registry.applySet.stated = true, l.registry.applySet.stated.union(found)
	l.registry.applySet.traced, l.registry.applySet.untraced, l.registry.applySet.until = err == nil, err, time.Now().Add(firstDelay)
	l.registry.watchStated()
	return err
}

// untraced reports whether the kinds of before are unknown: none are configured, and the
// parent is absent, new, or partial. The lock is held.
func (l *Live) untraced() bool {
	parent := l.Owner.ApplySet
	if parent == (ID{}) || l.registry.applySet.traced || len(l.Kinds) > 0 {
		return false
	}
	look := l.registry.kinds[parent.GroupKind()].view.Look(view.NameOf(parent.Namespace, parent.Name))
	return look.State == view.Served // otherwise it is unseen, which is an error of its own
}

// findMembers lists the objects with our labels, of every kind that the server has. A
// kind that we may neither list nor get is none of ours: we could not have applied it.
func (l *Live) findMembers(ctx context.Context) (members, error) {
	found := members{map[string]bool{}, map[string]bool{}}
	if l.Discovery == nil {
		return found, errors.New("Live.Discovery: is required to look for them, or Live.Kinds")
	}
	lists, err := l.Discovery.ServerPreferredResources()
	errs := []error{err}
	for resource, kind := range view.Watchable(lists) {
		take := func(o *metav1.PartialObjectMetadata) error {
			if l.identity.Wrote(o) {
				found.kinds[schema.GroupKind{Group: resource.Group, Kind: kind.Kind}.String()] = true
				if o.Namespace != "" && o.Namespace != l.Owner.ApplySet.Namespace {
					found.namespaces[o.Namespace] = true
				}
			}
			return nil
		}
		namespaces := []string{""}
		if kind.Namespaced && len(l.Namespaces) > 0 {
			namespaces = l.Namespaces
		}
		for _, namespace := range namespaces {
			err := view.Survey(ctx, l.Client, l.Discovery, resource, kind.Kind, namespace, l.identity.Selector(), take)
			if apierrors.IsForbidden(err) && !l.mayGet(ctx, resource, kind.Namespaced, namespace) {
				continue
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", kind.Name, err))
			}
		}
	}
	return found, errors.Join(errs...)
}

// mayGet reports whether we may get objects of a kind, which we may not list.
func (l *Live) mayGet(ctx context.Context, resource schema.GroupVersionResource, namespaced bool, namespace string) bool {
	if namespaced {
		namespace = cmp.Or(namespace, l.Owner.ApplySet.Namespace)
	}
	_, err := l.Client.Resource(resource).Namespace(namespace).Get(ctx, l.Owner.ApplySet.Name, metav1.GetOptions{})
	return !apierrors.IsForbidden(err)
}
