package view

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetadata "k8s.io/client-go/metadata"
)

//nolint:gochecknoglobals // constant
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Dormant returns the name of a definition, <plural>.<group>, of which the server serves no
// version, "" if there is none: discovery does not have its kind, and objects of it may exist
// all the same. Group limits the look to one group, "" is all. What the given lists have counts
// as served. A server without definitions has none.
func Dormant(
	ctx context.Context, client clientmetadata.Interface, d Discovery, group string, lists []*metav1.APIResourceList,
) (string, error) {
	served := served{discovery: d, groups: map[string]map[string]bool{}, known: map[string]bool{}}
	for resource := range Watchable(lists) {
		served.known[resource.Resource+"."+resource.Group] = true
	}
	options := metav1.ListOptions{Limit: 500}
	for {
		list, err := client.Resource(definitions).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("definitions: %w", err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			plural, of, _ := strings.Cut(o.Name, ".")
			if group != "" && of != group || served.known[o.Name] {
				continue
			}
			found, err := served.has(of, plural)
			if err != nil {
				return "", err
			}
			if !found {
				return o.Name, nil
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return "", nil
		}
	}
}

// served is what a server serves, asked for group by group.
type served struct {
	discovery Discovery
	known     map[string]bool            // <plural>.<group>
	listed    *metav1.APIGroupList       // nil before the first question
	groups    map[string]map[string]bool // the plurals of a group, in all its versions
}

// has reports whether a group has a resource in some version.
func (s *served) has(group, plural string) (bool, error) {
	if found, ok := s.groups[group]; ok {
		return found[plural], nil
	}
	if s.listed == nil {
		var err error
		if s.listed, err = s.discovery.ServerGroups(); err != nil {
			return false, fmt.Errorf("groups: %w", err)
		}
	}
	found := map[string]bool{}
	for version, err := range versionsOf(s.discovery, s.listed, group) {
		if err != nil {
			return false, err
		}
		for i := range version.APIResources {
			found[version.APIResources[i].Name] = true
		}
	}
	s.groups[group] = found
	return found[plural], nil
}
