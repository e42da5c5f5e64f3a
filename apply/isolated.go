package apply

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
)

var errPodsEnd = fmt.Errorf("%w: pods that it isolates are ending", ErrNeeded)

// isolationError is why a policy is not deleted whose pods cannot be seen.
func isolationError(err error) error {
	return fmt.Errorf("%w: the pods that it isolates: %w", ErrNotSynced, err)
}

// inquiry asks the server for the pods that policies isolate, and for the workloads of a namespace once. It is for a moment:
// what it has seen is not asked for again.
type inquiry struct {
	live    *Live
	objects dynamic.Interface     // nil: a policy isolates all pods of its namespace
	podsOf  func(Observed) string // nil: the pods that end

	mu     sync.Mutex // of owners
	owners map[string]*owners
}

func (l *Live) inquire(objects dynamic.Interface, podsOf func(Observed) string) *inquiry {
	return &inquiry{live: l, objects: objects, podsOf: podsOf, owners: map[string]*owners{}}
}

// in returns the workloads of a namespace.
func (q *inquiry) in(namespace string) *owners {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owners[namespace] == nil {
		q.owners[namespace] = &owners{live: q.live, namespace: namespace, known: map[schema.GroupKind]*ownersOfKind{}}
	}
	return q.owners[namespace]
}

// isolates reports whether a pod needs o as long as it is there: one that ends, or any one that podsOf selects.
func (q *inquiry) isolates(ctx context.Context, o *Observed) (found bool, err error) {
	var selector string
	every := q.podsOf != nil
	if every {
		if selector = q.podsOf(*o); selector == "" {
			return false, nil
		}
	} else if selector, err = q.selectorOf(ctx, o); write.Gone(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	makers := q.in(o.ID.Namespace)
	err = q.live.survey(ctx, schema.GroupKind{Kind: "Pod"}, o.ID.Namespace, selector, func(p *metav1.PartialObjectMetadata) (err error) {
		if found = found || every; !found {
			found, err = makers.ends(ctx, p)
		}
		return err
	})
	return found, err
}

// mayGo returns why the deletion of o waits, nil if it does not.
func (q *inquiry) mayGo(ctx context.Context, o *Observed) error {
	switch isolated, err := q.isolates(ctx, o); {
	case err != nil:
		return isolationError(err)
	case isolated:
		return errPodsEnd
	default:
		return nil
	}
}

// selectorOf returns the label selector of the pods that o isolates, empty for all of its namespace. It reads the selector
// of a NetworkPolicy only: other kinds write labels in ways of their own.
func (q *inquiry) selectorOf(ctx context.Context, o *Observed) (string, error) {
	mapping := q.live.registry.view(o.ID.GroupKind()).Mapping()
	if q.objects == nil || mapping == nil || o.ID.GroupKind() != (schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}) {
		return "", nil
	}
	policy, err := view.Bounded(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return q.objects.Resource(mapping.Resource).Namespace(o.ID.Namespace).Get(ctx, o.ID.Name, metav1.GetOptions{})
	})
	if err != nil {
		return "", err
	}
	stated, _, err := unstructured.NestedMap(policy.Object, "spec", "podSelector")
	if err != nil {
		return "", err
	}
	var terms metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stated, &terms); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(&terms)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

// owners has the objects that make pods in a namespace, each kind, or why it cannot be seen, once it is asked for. It is
// safe for concurrent use: all policies of the namespace ask it.
type owners struct {
	live      *Live
	namespace string

	mu    sync.Mutex // of known
	known map[schema.GroupKind]*ownersOfKind
}

type ownersOfKind struct {
	listed chan struct{} // closed once the others are set
	made   map[types.UID]*metav1.PartialObjectMetadata
	err    error
}

// maxOwners bounds the owners of a pod that are followed. Kubernetes makes two: a Deployment and its ReplicaSet.
const maxOwners = 4

// ends reports whether a pod ends with what made it: that is being deleted or gone, and the garbage collector deletes the
// pod, perhaps later. A pod that nothing made of a kind of Kubernetes or of a watched one ends when it is being deleted. One
// of a workload that stays does not, although it is being deleted: a policy that is taken away from a workload must not stay
// for that.
func (s *owners) ends(ctx context.Context, pod *metav1.PartialObjectMetadata) (bool, error) {
	o := pod
	for range maxOwners {
		controller := metav1.GetControllerOfNoCopy(o)
		if controller == nil {
			return o == pod && pod.DeletionTimestamp != nil, nil
		}
		kind := schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind()
		if !hasPods(kind) && s.live.watched(kind) == nil {
			return pod.DeletionTimestamp != nil, nil
		}
		made, err := s.of(ctx, kind)
		if err != nil {
			return false, err
		}
		if o = made[controller.UID]; o == nil || o.DeletionTimestamp != nil {
			return true, nil
		}
	}
	return pod.DeletionTimestamp != nil, nil // Kubernetes makes no such chain: a person has stated it, perhaps as a circle
}

// watched returns the resource of a kind whose objects in namespaces we watch, and thus may list; nil if we do not.
func (l *Live) watched(kind schema.GroupKind) *meta.RESTMapping {
	v := l.registry.view(kind)
	if v == nil {
		return nil
	}
	if mapping := v.Mapping(); mapping != nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return mapping
	}
	return nil
}

// of returns the objects of a kind.
func (s *owners) of(ctx context.Context, kind schema.GroupKind) (map[types.UID]*metav1.PartialObjectMetadata, error) {
	s.mu.Lock()
	found := s.known[kind]
	first := found == nil
	if first {
		found = &ownersOfKind{listed: make(chan struct{}), made: map[types.UID]*metav1.PartialObjectMetadata{}}
		s.known[kind] = found
	}
	s.mu.Unlock()
	if !first {
		<-found.listed // Survey bounds the wait
		return found.made, found.err
	}
	defer close(found.listed)
	found.err = s.live.survey(ctx, kind, s.namespace, "", func(o *metav1.PartialObjectMetadata) error {
		found.made[o.UID] = o
		return nil
	})
	if found.err != nil {
		found.err = fmt.Errorf("%s: %w", kind, found.err)
	}
	return found.made, found.err
}

// survey is view.Survey for a kind of Kubernetes itself, or a watched one.
func (l *Live) survey(
	ctx context.Context, kind schema.GroupKind, namespace, selector string, take func(*metav1.PartialObjectMetadata) error,
) error {
	resource := schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: strings.ToLower(kind.Kind) + "s"}
	if mapping := l.watched(kind); mapping != nil {
		resource = mapping.Resource
	}
	return view.Survey(ctx, l.Client, l.Discovery, resource, kind.Kind, namespace, selector, take)
}
