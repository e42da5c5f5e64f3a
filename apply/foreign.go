package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// foreignCount counts objects of others that would be deleted together with one of ours.
type foreignCount struct {
	count int
	first string
}

// spare removes from a plan the namespaces and definitions with which foreign objects
// would be deleted. It lists the metadata of every kind of the server if the plan has a
// namespace, and of one kind for each definition.
func (a *Applier) spare(ctx context.Context, plan *prunePlan, options PruneOptions) {
	if options.DeleteForeign {
		return
	}
	going := make(map[types.UID]bool, len(plan.due))
	for i := range plan.due {
		// A released object stays, and must not be deleted with its namespace.
		if options.Orphan == nil || !options.Orphan(plan.due[i]) {
			going[plan.due[i].UID] = true
		}
	}
	found, errs := make([]foreignCount, len(plan.due)), make([]error, len(plan.due))
	a.each(len(plan.due), func(i int) {
		o := &plan.due[i]
		switch kind := o.ID.GroupKind(); {
		case !going[o.UID]:
		case isNamespace(kind):
			found[i], errs[i] = a.foreignIn(ctx, o.ID.Name, going)
		case isDefinition(kind):
			found[i], errs[i] = a.foreignOf(ctx, o.ID.Name, going)
		}
	})
	stay := map[ID]bool{}
	for i := range plan.due {
		id := plan.due[i].ID
		switch {
		case errs[i] != nil:
			plan.refuse(Result{id, Refused, fmt.Errorf("%w, perhaps, by objects of others: %w", ErrNeeded, errs[i])})
		case found[i].count > 0:
			plan.refuse(
				Result{id, Refused, fmt.Errorf("%w: %d objects of others would go with it, such as %s", ErrNeeded, found[i].count, found[i].first)},
			)
		default:
			continue
		}
		stay[id] = true
	}
	plan.due = slices.DeleteFunc(plan.due, func(o Observed) bool { return stay[o.ID] })
}

// foreignIn counts the foreign objects in a namespace.
func (a *Applier) foreignIn(ctx context.Context, namespace string, going map[types.UID]bool) (foreignCount, error) {
	var found foreignCount
	if a.Live.Discovery == nil {
		return found, errors.New("Live.Discovery: is required to look for them")
	}
	lists, err := a.Live.Discovery.ServerPreferredResources()
	if err != nil {
		return found, fmt.Errorf("kinds: %w", err)
	}
	dormant, err := view.Dormant(ctx, a.Live.Client, a.Live.Discovery, "", lists)
	switch {
	case err != nil:
		return found, err
	case dormant != "":
		return found, fmt.Errorf("the definition %s exists, and no version of it is served: its objects cannot be seen", dormant)
	}
	for resource, kind := range view.Watchable(lists) {
		if !kind.Namespaced || kind.Kind == "Endpoints" { // these are made for Services
			continue
		}
		if err := a.count(ctx, resource, kind.Kind, namespace, going, &found); err != nil {
			return found, fmt.Errorf("%s: %w", kind.Name, err)
		}
	}
	return found, nil
}

// foreignOf counts the foreign objects of the kind that a definition defines.
func (a *Applier) foreignOf(ctx context.Context, definition string, going map[types.UID]bool) (foreignCount, error) {
	var found foreignCount
	resource, kind, err := a.definedBy(ctx, definition)
	if err != nil {
		return found, err
	}
	return found, a.count(ctx, resource, kind, "", going, &found)
}

// definedBy returns the resource that a definition defines, in a version that is
// served, and its kind.
func (a *Applier) definedBy(ctx context.Context, definition string) (resource schema.GroupVersionResource, kind string, err error) {
	plural, group, _ := strings.Cut(definition, ".")
	resource = schema.GroupVersionResource{Group: group, Resource: plural}
	if a.Objects == nil {
		of, err := a.Live.Mapper.KindFor(resource)
		return of.GroupVersion().WithResource(plural), of.Kind, err
	}
	mapping := a.Live.registry.view(schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}).Mapping()
	if mapping == nil {
		return resource, "", ErrNotSynced
	}
	found, err := view.Bounded(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return a.Objects.Resource(mapping.Resource).Get(ctx, definition, metav1.GetOptions{})
	})
	if err != nil {
		return resource, "", err
	}
	kind, _, err = unstructured.NestedString(found.Object, "spec", "names", "kind")
	versions, _, failed := unstructured.NestedSlice(found.Object, "spec", "versions")
	if err = errors.Join(err, failed); err != nil {
		return resource, "", err
	}
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); served {
			resource.Version, _ = version["name"].(string)
			return resource, kind, nil
		}
	}
	return resource, "", errors.New("no version of it is served")
}

// count adds the objects of a kind that are not ours. An object with our labels is ours
// only if it is deleted, too: the plan does not have objects that no watch has shown.
func (a *Applier) count(
	ctx context.Context,
	resource schema.GroupVersionResource,
	kind, namespace string,
	going map[types.UID]bool,
	found *foreignCount,
) error {
	return view.Survey(ctx, a.Live.Client, a.Live.Discovery, resource, kind, namespace, "", func(o *metav1.PartialObjectMetadata) error {
		if o.DeletionTimestamp != nil || a.Live.identity.Standing(o.Labels) == identity.Labelled && going[o.UID] {
			return nil
		}
		if made, err := a.derived(ctx, kind, o); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		} else if made {
			return nil
		}
		if found.count++; found.count == 1 {
			found.first = kind + " " + o.Name
		}
		return nil
	})
}

// derived reports whether Kubernetes makes the object by itself, for a namespace or
// for another object of the namespace. An object made for an owner outside of the
// namespace, such as an operator's cluster-wide object, does not count.
func (a *Applier) derived(ctx context.Context, kind string, o *metav1.PartialObjectMetadata) (bool, error) {
	switch {
	case kind == "Event",
		kind == "ServiceAccount" && o.Name == "default",
		kind == "ConfigMap" && o.Name == "kube-root-ca.crt":
		return true, nil
	}
	controller := metav1.GetControllerOfNoCopy(o)
	if controller == nil {
		return false, nil
	}
	of := schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind)
	if mapping, err := a.Live.Mapper.RESTMapping(of.GroupKind(), of.Version); err == nil {
		return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
	}
	known, resource := view.Ask(ctx, a.Live.Client, a.Live.Discovery, of.GroupKind())
	if err := known.Doubt(); err != nil {
		return false, fmt.Errorf("its controller is a %s: %w", of.GroupKind(), err)
	}
	return resource.Namespaced, nil
}
