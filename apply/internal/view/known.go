package view

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
// while the server behind an APIService does not answer.
func Ask(d Discovery, kind schema.GroupKind) (known Known, resource metav1.APIResource) {
	if d == nil {
		return Known{Err: errNoDiscovery}, resource
	}
	groups, err := d.ServerGroups()
	if err != nil {
		return Known{Err: fmt.Errorf("groups: %w", err)}, resource
	}
	for i := range groups.Groups {
		if groups.Groups[i].Name != kind.Group {
			continue
		}
		for _, version := range groups.Groups[i].Versions {
			list, err := d.ServerResourcesForGroupVersion(version.GroupVersion)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return Known{Err: fmt.Errorf("%s: %w", version.GroupVersion, err)}, resource
			}
			for j := range list.APIResources {
				if r := &list.APIResources[j]; r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
					resource = *r
					resource.Group, resource.Version = kind.Group, version.Version
					return Known{State: Served}, resource
				}
			}
		}
	}
	return Known{State: Unserved}, resource
}
