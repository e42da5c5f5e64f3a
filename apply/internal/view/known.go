package view

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetadata "k8s.io/client-go/metadata"
)

// Known is what is known of the objects of a kind. A caller that concludes
// something from an object that is not there asks Doubt first.
type Known struct {
	State State
	// Err is the last failure to look the kind up, list or watch it, nil after a success.
	Err error
}

// State tells what was proven of a kind.
type State uint8

// The states of a kind.
const (
	// Unknown: not every object was listed since the kind was last looked up.
	Unknown State = iota
	// Served: the server serves the kind. In a view, every object was listed, too.
	Served
	// Unserved: the server answered that it serves no version of the kind, so there are no
	// objects. It is asked again and again.
	Unserved
)

// Doubt returns why objects of the kind may exist that are not shown, nil if there are none.
func (k Known) Doubt() error {
	switch {
	case k.State == Unserved:
		return nil
	case k.State == Unknown && k.Err == nil:
		return errNotListed
	default:
		return k.Err
	}
}

// Discovery asks the server for the kinds that it serves.
type Discovery interface {
	ServerGroups() (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

var (
	errNotListed   = errors.New("not listed yet")
	errNoDiscovery = errors.New("Live.Discovery: is required to find out whether it is served")
)

// Ask asks the server whether it serves a kind, and returns the resource and its version
// if it does. It asks for each version of the group, because a mapper also lacks a kind
// while the server behind an APIService does not answer; and for the definitions of the group,
// because one of which no version is served keeps its objects. Who may not list definitions
// takes discovery's word.
func Ask(
	ctx context.Context, client clientmetadata.Interface, d Discovery, kind schema.GroupKind,
) (known Known, resource metav1.APIResource) {
	if d == nil {
		return Known{Err: errNoDiscovery}, resource
	}
	groups, err := d.ServerGroups()
	if err != nil {
		return Known{Err: fmt.Errorf("groups: %w", err)}, resource
	}
	for version, err := range versionsOf(d, groups, kind.Group) {
		if err != nil {
			return Known{Err: err}, resource
		}
		for j := range version.APIResources {
			if r := &version.APIResources[j]; r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
				resource = *r
				of, _ := schema.ParseGroupVersion(version.GroupVersion) // the server has it in its own list
				resource.Group, resource.Version = kind.Group, of.Version
				return Known{State: Served}, resource
			}
		}
	}
	if !strings.Contains(kind.Group, ".") {
		return Known{State: Unserved}, resource // no definition can have this group
	}
	dormant, err := Dormant(ctx, client, d, kind.Group, nil)
	switch {
	case err != nil && !apierrors.IsForbidden(err):
		return Known{Err: err}, resource
	case dormant != "":
		return Known{Err: fmt.Errorf("the definition %s exists, and no version of it is served", dormant)}, resource
	}
	return Known{State: Unserved}, resource
}

// versionsOf yields the resources of each version of a group that the server serves.
func versionsOf(d Discovery, groups *metav1.APIGroupList, group string) iter.Seq2[*metav1.APIResourceList, error] {
	return func(yield func(*metav1.APIResourceList, error) bool) {
		for i := range groups.Groups {
			if groups.Groups[i].Name != group {
				continue
			}
			for _, version := range groups.Groups[i].Versions {
				list, err := d.ServerResourcesForGroupVersion(version.GroupVersion)
				if apierrors.IsNotFound(err) {
					continue
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", version.GroupVersion, err)
				}
				if !yield(list, err) || err != nil {
					return
				}
			}
		}
	}
}
