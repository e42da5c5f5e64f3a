package view

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovery asks the server for the kinds that it serves.
type Discovery interface {
	ServerGroups() (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

var errNoDiscovery = errors.New("Live.Discovery: is required to find out whether it is served")

// Served returns the server's resource of a kind, nil if it does not serve the kind. It
// asks for each version of the group, because a mapper also lacks a kind while the
// server behind an APIService does not answer. An error means that the result is
// unknown.
func Served(d Discovery, kind schema.GroupKind) (*metav1.APIResource, error) {
	if d == nil {
		return nil, errNoDiscovery
	}
	groups, err := d.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
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
				return nil, fmt.Errorf("%s: %w", version.GroupVersion, err)
			}
			for j := range list.APIResources {
				if r := &list.APIResources[j]; r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
					return r, nil
				}
			}
		}
	}
	return nil, nil //nolint:nilnil // it serves no such kind
}
