package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// discovery asks a server for its kinds, as a discovery client does, which would
// cost importers of this module what it requires.
type discovery struct{ config *rest.Config }

func (d discovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return d.versions(func(g *metav1.APIGroup) []metav1.GroupVersionForDiscovery {
		return []metav1.GroupVersionForDiscovery{g.PreferredVersion}
	})
}

func (d discovery) ServerGroups() (*metav1.APIGroupList, error) {
	client, err := rest.HTTPClientFor(d.config)
	if err != nil {
		return nil, err
	}
	groups := &metav1.APIGroupList{}
	if err := d.get(client, "/apis", groups); err != nil {
		return nil, err
	}
	groups.Groups = append(groups.Groups, metav1.APIGroup{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1"}}})
	return groups, nil
}

func (d discovery) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	client, err := rest.HTTPClientFor(d.config)
	if err != nil {
		return nil, err
	}
	path := "/apis/" + version
	if version == "v1" {
		path = "/api/v1"
	}
	list := &metav1.APIResourceList{}
	return list, d.get(client, path, list)
}

// all is that for every version, the preferred one of each group first.
func (d discovery) all() ([]*metav1.APIResourceList, error) {
	return d.versions(func(g *metav1.APIGroup) []metav1.GroupVersionForDiscovery { return g.Versions })
}

func (d discovery) versions(of func(*metav1.APIGroup) []metav1.GroupVersionForDiscovery) ([]*metav1.APIResourceList, error) {
	client, err := rest.HTTPClientFor(d.config)
	if err != nil {
		return nil, err
	}
	var groups metav1.APIGroupList
	if err := d.get(client, "/apis", &groups); err != nil {
		return nil, err
	}
	paths := []string{"/api/v1"}
	for i := range groups.Groups {
		for _, v := range of(&groups.Groups[i]) {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	var lists []*metav1.APIResourceList
	for _, path := range paths {
		list := &metav1.APIResourceList{}
		if err := d.get(client, path, list); err != nil {
			return lists, err
		}
		if list.GroupVersion != "" {
			lists = append(lists, list)
		}
	}
	return lists, nil
}

func (d discovery) get(client *http.Client, path string, into any) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, d.config.Host+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return nil // a group that another test has just removed
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// mapper knows the kinds of a server, all versions, as of its last look.
type mapper struct {
	discovery discovery
	mu        sync.Mutex
	meta.RESTMapper
}

func (m *mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.RESTMapper = nil
}

func (m *mapper) known() meta.RESTMapper {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.RESTMapper != nil {
		return m.RESTMapper
	}
	lists, err := m.discovery.all()
	if err != nil {
		return meta.NewDefaultRESTMapper(nil)
	}
	var versions []schema.GroupVersion
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		versions = append(versions, gv)
	}
	known := meta.NewDefaultRESTMapper(versions)
	for i, list := range lists {
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			known.AddSpecific(versions[i].WithKind(r.Kind), versions[i].WithResource(r.Name), versions[i].WithResource(r.SingularName), scope)
		}
	}
	m.RESTMapper = known
	return known
}

func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return m.known().RESTMapping(kind, versions...)
}

func (m *mapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return m.known().ResourceFor(r)
}
