package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
)

// strangers are objects of others that would go with one of ours.
type strangers struct {
	count int
	first string
}

// spare takes the namespaces and definitions out of a plan with which objects of
// others would go. It costs one list of metadata for each kind of the server, and
// only when there is such a namespace, or one for a definition.
func (a *Applier) spare(ctx context.Context, plan *prunePlan, options PruneOptions) {
	if options.WithStrangers {
		return
	}
	plan.due = slices.DeleteFunc(plan.due, func(o Observed) bool {
		if options.Orphan != nil && options.Orphan(o) {
			return false
		}
		var found strangers
		var err error
		switch kind := o.ID.GroupKind(); {
		case isNamespace(kind):
			found, err = a.strangersIn(ctx, o.ID.Name)
		case isDefinition(kind):
			found, err = a.strangersOf(ctx, o.ID.Name)
		default:
			return false
		}
		switch {
		case err != nil:
			plan.refuse(Result{o.ID, Refused, fmt.Errorf("%w, perhaps, by objects of others: %w", ErrNeeded, err)})
		case found.count > 0:
			plan.refuse(Result{o.ID, Refused, fmt.Errorf("%w: %d objects of others would go with it, such as %s", ErrNeeded, found.count, found.first)})
		default:
			return false
		}
		return true
	})
}

// strangersIn counts the objects of others in a namespace.
func (a *Applier) strangersIn(ctx context.Context, namespace string) (strangers, error) {
	var found strangers
	if a.Discovery == nil {
		return found, errors.New("Applier.Discovery is required to look for them")
	}
	lists, err := a.Discovery.ServerPreferredResources()
	if err != nil {
		return found, fmt.Errorf("kinds: %w", err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return found, err
		}
		for i := range list.APIResources {
			kind := &list.APIResources[i]
			// What cannot be watched is computed, such as metrics.k8s.io. Endpoints are
			// made for Services.
			if !kind.Namespaced || strings.Contains(kind.Name, "/") || kind.Kind == "Endpoints" || !slices.Contains(kind.Verbs, "list") || !slices.Contains(kind.Verbs, "watch") {
				continue
			}
			if err := a.count(ctx, version.WithResource(kind.Name), kind.Kind, namespace, &found); err != nil {
				return found, fmt.Errorf("%s: %w", kind.Name, err)
			}
		}
	}
	return found, nil
}

// strangersOf counts the objects of others of the kind that a definition defines.
func (a *Applier) strangersOf(ctx context.Context, definition string) (strangers, error) {
	var found strangers
	resource, err := a.definedBy(ctx, definition)
	if err != nil {
		return found, err
	}
	return found, a.count(ctx, resource, resource.Resource, "", &found)
}

// definedBy returns the resource that a definition defines, in a version that is
// served.
func (a *Applier) definedBy(ctx context.Context, definition string) (schema.GroupVersionResource, error) {
	plural, group, _ := strings.Cut(definition, ".")
	resource := schema.GroupVersionResource{Group: group, Resource: plural}
	if a.Objects == nil {
		return a.Live.Mapper.ResourceFor(resource)
	}
	mapping := a.Live.view(schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}).Mapping()
	if mapping == nil {
		return resource, ErrNotSynced
	}
	found, err := a.Objects.Resource(mapping.Resource).Get(ctx, definition, metav1.GetOptions{})
	if err != nil {
		return resource, err
	}
	versions, _, err := unstructured.NestedSlice(found.Object, "spec", "versions")
	if err != nil {
		return resource, err
	}
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); served {
			resource.Version, _ = version["name"].(string)
			return resource, nil
		}
	}
	return resource, errors.New("no version of it is served")
}

// count adds the objects of a kind that are not ours.
func (a *Applier) count(ctx context.Context, resource schema.GroupVersionResource, kind, namespace string, found *strangers) error {
	const page = 500
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := a.Live.Client.Resource(resource).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err):
			return nil // the kind is not served any more
		case err != nil:
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if a.Live.identity.Standing(o.Labels) == identity.Labelled || o.DeletionTimestamp != nil || derived(kind, o) {
				continue
			}
			if found.count++; found.count == 1 {
				found.first = kind + " " + o.Name
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// derived reports whether Kubernetes makes the object by itself, for a namespace or
// for another object.
func derived(kind string, o *metav1.PartialObjectMetadata) bool {
	switch {
	case metav1.GetControllerOfNoCopy(o) != nil, kind == "Event":
		return true
	case kind == "ServiceAccount":
		return o.Name == "default"
	case kind == "ConfigMap":
		return o.Name == "kube-root-ca.crt"
	default:
		return false
	}
}
