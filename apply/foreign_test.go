package apply //nolint:testpackage // lists are given, page by page

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resources is a Discovery that knows these kinds of the core group.
type resources []metav1.APIResource

func (r resources) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: r}}, nil
}

func (r resources) ServerGroups() (*metav1.APIGroupList, error) {
	group := func(name, version string) metav1.APIGroup {
		return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: version, Version: "v1"}}}
	}
	return &metav1.APIGroupList{
		Groups: []metav1.APIGroup{group("", "v1"), group("apps", "apps/v1"), group("metrics.k8s.io", "metrics.k8s.io/v1")},
	}, nil
}

func (r resources) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	switch version {
	case "v1":
		return &metav1.APIResourceList{APIResources: r}, nil
	case "apps/v1":
		return &metav1.APIResourceList{
			APIResources: []metav1.APIResource{namespaced("replicasets", "ReplicaSet"), {Name: "tenants", Kind: "Tenant"}},
		}, nil
	default:
		return nil, apierrors.NewServiceUnavailable("the server behind it is down")
	}
}

// after is a Discovery whose preferred resources are from before: now it has others, or an
// error.
type after struct {
	resources // of before
	now       resources
	err       error
}

func (a after) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	if a.err != nil {
		return nil, a.err
	}
	return a.now.ServerResourcesForGroupVersion(version)
}

// made is an object of a controller.
func made(version, kind string) []metav1.PartialObjectMetadata {
	yes := true
	return []metav1.PartialObjectMetadata{foreign("a", func(m *metav1.PartialObjectMetadata) {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "x", UID: "u", Controller: &yes}}
	})}
}

// namespaced is a kind that can be listed and watched.
func namespaced(name, kind string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}
}

func foreign(name string, change func(*metav1.PartialObjectMetadata)) metav1.PartialObjectMetadata {
	m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
	if change != nil {
		change(&m)
	}
	return m
}

func TestStrangersAreWhatWouldNotGoAnyway(t *testing.T) {
	t.Parallel()
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "")
	for name, test := range map[string]struct {
		objects []metav1.PartialObjectMetadata
		secrets error
		want    string // what keeps the namespace; empty: nothing
	}{
		"nothing":             {nil, nil, ""},
		"others' objects":     {[]metav1.PartialObjectMetadata{foreign("a", nil), foreign("b", nil)}, nil, "2 objects of others would go with it, such as ConfigMap a"},
		"dying":               {[]metav1.PartialObjectMetadata{foreign("a", dying)}, nil, ""},
		"dying, and one more": {[]metav1.PartialObjectMetadata{foreign("a", dying), foreign("b", nil)}, nil, "1 objects of others would go with it, such as ConfigMap b"},
		"with our labels, shown by no watch": {[]metav1.PartialObjectMetadata{foreign("a", func(m *metav1.PartialObjectMetadata) {
			m.Labels, m.UID = map[string]string{"owner": "me"}, "7"
		})}, nil, "1 objects of others would go with it, such as ConfigMap a"},
		"of a controller":              {made("apps/v1", "ReplicaSet"), nil, ""},
		"of a controller of a cluster": {made("apps/v1", "Tenant"), nil, "1 objects of others would go with it, such as ConfigMap a"},
		"of a kind that is gone":       {made("gone.example.com/v1", "Gone"), nil, "1 objects of others would go with it, such as ConfigMap a"},
		"of a kind that is not seen":   {made("metrics.k8s.io/v1", "Pod"), nil, "its controller is a Pod.metrics.k8s.io: metrics.k8s.io/v1: the server behind it is down"},
		"of every namespace":           {[]metav1.PartialObjectMetadata{foreign("kube-root-ca.crt", nil)}, nil, ""},
		"a kind that is not found":     {nil, notFound, "perhaps, by objects of others: secrets: is served, but: "},
		"what cannot be seen":          {nil, errors.New("forbidden"), "perhaps, by objects of others: secrets: forbidden"},
		"a server that is down":        {nil, apierrors.NewInternalError(errors.New("down")), "perhaps, by objects of others: secrets: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, namespaceKind)
			s.Live.Discovery = resources{namespaced("secrets", "Secret"), namespaced("configmaps", "ConfigMap")}
			s.lists = func(resource string, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				if resource == "secrets" {
					return &metav1.PartialObjectMetadataList{}, test.secrets
				}
				return &metav1.PartialObjectMetadataList{Items: test.objects}, nil
			}
			s.definitions = noDefinitions
			s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
			options := whole
			options.DeleteForeign = false
			report, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			require.Len(t, report.Results, 1)
			if test.want == "" {
				require.NoError(t, err)
				require.Equal(t, Deleted, report.Results[0].Action)
				return
			}
			require.ErrorIs(t, err, ErrNeeded)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, Refused, report.Results[0].Action)
			require.Empty(t, s.deleted)
		})
	}
}

func noDefinitions(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{}, nil
}

// A definition of which no version is served keeps its objects, which no list shows.
func TestANamespaceStaysWhileADefinitionIsNotServed(t *testing.T) {
	t.Parallel()
	type answer = func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	definition := func(names ...string) answer {
		return func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			list := &metav1.PartialObjectMetadataList{}
			for _, name := range names {
				list.Items = append(list.Items, foreign(name, nil))
			}
			return list, nil
		}
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "", errors.New("no right"))
	for name, test := range map[string]struct {
		definitions answer
		want        string // what keeps the namespace; empty: nothing
	}{
		"all are served":           {definition("replicasets.apps", "tenants.apps"), ""},
		"one is not":               {definition("replicasets.apps", "gadgets.apps"), "the definition gadgets.apps exists, and no version of it is served"},
		"its group is not":         {definition("gadgets.example.com"), "the definition gadgets.example.com exists, and no version of it is served"},
		"its group cannot be seen": {definition("gadgets.metrics.k8s.io"), "metrics.k8s.io/v1: the server behind it is down"},
		"there may be some":        {func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return nil, refused }, "definitions: "},
		"one of the next page is not": {func(options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			if options.Continue == "" {
				list, err := definition("tenants.apps")(options)
				list.Continue = "next"
				return list, err
			}
			return definition("gadgets.apps")(options)
		}, "the definition gadgets.apps exists, and no version of it is served"},
		"the server has no definitions": {func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, namespaceKind)
			s.Live.Discovery = resources{namespaced("configmaps", "ConfigMap")}
			s.definitions = test.definitions
			s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
			options := whole
			options.DeleteForeign = false
			_, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			if test.want == "" {
				require.NoError(t, err)
				require.Len(t, s.deleted, 1)
				return
			}
			require.ErrorIs(t, err, ErrNeeded)
			require.ErrorContains(t, err, test.want)
			require.Empty(t, s.deleted)
		})
	}
}

// A list that is not found may be of a version that is no longer served.
func TestWhatIsNotFoundIsLookedForInAnotherVersion(t *testing.T) {
	t.Parallel()
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "")
	for name, test := range map[string]struct {
		now   resources
		asked error  // of the discovery
		later error  // of the list of gadgets
		want  string // what keeps the namespace; empty: nothing
	}{
		"it is gone":             {nil, nil, nil, ""},
		"it is served elsewhere": {resources{namespaced("gadgets", "Widget")}, nil, nil, "1 objects of others would go with it, such as Widget a"},
		"it moves on and on":     {resources{namespaced("gadgets", "Widget")}, nil, notFound, "widgets: is served, but: "},
		"nothing shows where":    {nil, errors.New("no answer"), nil, "widgets: v1: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, namespaceKind)
			s.Live.Discovery = after{resources{namespaced("widgets", "Widget")}, test.now, test.asked}
			s.lists = func(resource string, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				if resource == "widgets" {
					return nil, notFound
				}
				return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{foreign("a", nil)}}, test.later
			}
			s.definitions = noDefinitions
			s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
			options := whole
			options.DeleteForeign = false
			_, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrNeeded)
			require.ErrorContains(t, err, test.want)
			require.Empty(t, s.deleted)
		})
	}
}

func TestStrangersAreCountedPageByPage(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, namespaceKind)
	s.Live.Discovery = resources{namespaced("configmaps", "ConfigMap")}
	const all = 1203
	var pages []string
	s.definitions = noDefinitions
	s.lists = func(_ string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		pages = append(pages, options.Continue)
		list, from := &metav1.PartialObjectMetadataList{}, 0
		if options.Continue != "" {
			_, err := fmt.Sscanf(options.Continue, "from %d", &from)
			require.NoError(t, err)
		}
		next := from + int(options.Limit) - 100 // a server may give less than it is asked for
		for i := from; i < min(next, all); i++ {
			list.Items = append(list.Items, foreign(fmt.Sprint("c", i), nil))
		}
		if next < all {
			list.Continue = fmt.Sprint("from ", next)
		}
		return list, nil
	}
	s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
	options := whole
	options.DeleteForeign = false
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
	require.ErrorContains(t, err, "1203 objects of others would go with it, such as ConfigMap c0")
	require.Equal(t, []string{"", "from 400", "from 800", "from 1200"}, pages)
}

func TestAReleasedNamespaceTakesNothingWithIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, namespaceKind)
	s.lists = func(string, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		return nil, errors.New("there is nothing to look for")
	}
	s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
	options := whole
	options.DeleteForeign, options.Orphan = false, func(Observed) bool { return true }
	report, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
	require.NoError(t, err)
	require.Equal(t, []Result{{ID: ID{Kind: "Namespace", Name: "shop"}, Action: Released}}, report.Results)
	require.Equal(t, []string{"namespaces shop"}, s.patched)
}

func TestWhatIsReleasedKeepsItsNamespace(t *testing.T) {
	t.Parallel()
	for name, released := range map[string]bool{"released": true, "deleted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, namespaceKind, configMapKind)
			s.Live.Discovery, s.definitions = resources{namespaced("configmaps", "ConfigMap")}, noDefinitions
			kept := s.show(ID{Kind: "ConfigMap", Namespace: "shop", Name: "kept"}, nil)
			s.lists = func(string, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{*kept}}, nil
			}
			s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
			options := whole
			options.DeleteForeign, options.Orphan = false, func(o Observed) bool { return released && o.ID.Kind == "ConfigMap" }
			report, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			ends := map[string]Action{}
			for _, r := range report.Results {
				ends[r.ID.Kind] = r.Action
			}
			if !released {
				require.NoError(t, err)
				require.Equal(t, map[string]Action{"ConfigMap": Deleted, "Namespace": Deleted}, ends)
				return
			}
			require.ErrorIs(t, err, ErrNeeded)
			require.Equal(t, map[string]Action{"ConfigMap": Released, "Namespace": Refused}, ends)
			require.Empty(t, s.deleted)
		})
	}
}

func TestADefinitionStaysWhileItsObjectsCannotBeSeen(t *testing.T) {
	t.Parallel()
	definition := ID{Group: crdKind.Group, Kind: crdKind.Kind, Name: "widgets.example.com"}
	options := whole
	options.DeleteForeign = false
	for _, err := range []error{nil, apierrors.NewInternalError(ErrNotSynced)} {
		s := newStage(t, program, crdKind, widgetKind, configMapKind)
		s.show(definition, nil)
		s.serve(nil, map[string]error{"widgets": err})
		report, got := s.prune(options)
		require.Equal(t, err != nil, errors.Is(got, ErrNeeded), "%v", got)
		require.Len(t, report.Results, 1)
		require.Equal(t, err == nil, slices.Contains(s.deleted, "customresourcedefinitions widgets.example.com"))
	}
}
