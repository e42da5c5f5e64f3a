package apply

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
)

// waitForPods takes out of a plan what isolates pods of its namespace that end, and what needs it. It asks the server: a
// pod may have no owner any more, and its workload be gone. What cannot be seen counts as a pod.
func (a *Applier) waitForPods(ctx context.Context, plan *prunePlan, options PruneOptions) {
	var due []*Observed
	for i := range plan.due {
		o := &plan.due[i]
		if isolates(o.ID.GroupKind()) && o.ID.Namespace != anywhere && (options.Orphan == nil || !options.Orphan(*o)) {
			due = append(due, o)
		}
	}
	if len(due) == 0 {
		return
	}
	isolated := make([]bool, len(due))
	errs := make([]error, len(due))
	a.each(len(due), func(i int) { isolated[i], errs[i] = a.isolatesPods(ctx, due[i], options.podsOf) })
	waits := map[ID]error{} // nil: for pods
	for i, o := range due {
		if isolated[i] || errs[i] != nil {
			waits[o.ID] = errs[i]
		}
	}
	held := plan.hold(func(o Observed) bool {
		_, needed := waits[o.ID]
		return needed
	})
	for i := range held {
		if err := waits[held[i].ID]; err != nil {
			plan.refuse(Result{held[i].ID, Waiting, fmt.Errorf("%w: the pods that it isolates: %w", ErrNotSynced, err)})
		} else {
			plan.pending++
		}
	}
}

// isolatesPods reports whether a pod needs o as long as it is there: one that ends, or any one that podsOf selects.
func (a *Applier) isolatesPods(ctx context.Context, o *Observed, podsOf func(Observed) string) (found bool, err error) {
	var selector string
	every := podsOf != nil
	if every {
		if selector = podsOf(*o); selector == "" {
			return false, nil
		}
	} else if selector, err = a.selectorOf(ctx, o); write.Gone(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	makers := owners{a.Live, o.ID.Namespace, map[schema.GroupKind]map[types.UID]*metav1.PartialObjectMetadata{}}
	err = a.Live.survey(ctx, schema.GroupKind{Kind: "Pod"}, o.ID.Namespace, selector, func(p *metav1.PartialObjectMetadata) (err error) {
		if found = found || every; !found {
			found, err = makers.ends(ctx, p)
		}
		return err
	})
	return found, err
}

// selectorOf returns the label selector of the pods that o isolates, empty for all of its namespace. It reads the selector
// of a NetworkPolicy only: other kinds write labels in ways of their own.
func (a *Applier) selectorOf(ctx context.Context, o *Observed) (string, error) {
	mapping := a.Live.registry.view(o.ID.GroupKind()).Mapping()
	if a.Objects == nil || mapping == nil || o.ID.GroupKind() != (schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}) {
		return "", nil
	}
	policy, err := a.Objects.Resource(mapping.Resource).Namespace(o.ID.Namespace).Get(ctx, o.ID.Name, metav1.GetOptions{})
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

// owners has the objects of Kubernetes' own kinds that make pods in a namespace, each kind once it is asked for.
type owners struct {
	live      *Live
	namespace string
	known     map[schema.GroupKind]map[types.UID]*metav1.PartialObjectMetadata
}

// maxOwners bounds the owners of a pod that are followed. Kubernetes makes two: a Deployment and its ReplicaSet.
const maxOwners = 4

// ends reports whether a pod ends with what made it: that is being deleted or gone, and the garbage collector deletes the
// pod, perhaps later. A pod that nothing of Kubernetes made ends when it is being deleted. One of a workload that stays
// does not, although it is being deleted: a policy that is taken away from a workload must not stay for that.
func (s *owners) ends(ctx context.Context, pod *metav1.PartialObjectMetadata) (bool, error) {
	o := pod
	for range maxOwners {
		controller := metav1.GetControllerOfNoCopy(o)
		if controller == nil {
			return o == pod && pod.DeletionTimestamp != nil, nil
		}
		kind := schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind()
		if !hasPods(kind) {
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

// of returns the objects of a kind.
func (s *owners) of(ctx context.Context, kind schema.GroupKind) (map[types.UID]*metav1.PartialObjectMetadata, error) {
	if made, ok := s.known[kind]; ok {
		return made, nil
	}
	made := map[types.UID]*metav1.PartialObjectMetadata{}
	err := s.live.survey(ctx, kind, s.namespace, "", func(o *metav1.PartialObjectMetadata) error {
		made[o.UID] = o
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	s.known[kind] = made
	return made, nil
}

// survey is view.Survey for a kind of Kubernetes itself.
func (l *Live) survey(
	ctx context.Context, kind schema.GroupKind, namespace, selector string, take func(*metav1.PartialObjectMetadata) error,
) error {
	resource := schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: strings.ToLower(kind.Kind) + "s"}
	return view.Survey(ctx, l.Client, l.Discovery, resource, kind.Kind, namespace, selector, take)
}
