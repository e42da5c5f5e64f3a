package kubetest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
)

// served is what the API server serves, by each name that kubectl takes for it: the plural,
// the singular, a short name or the kind, alone or with its group, or with version and
// group. Its zero value is empty; it is safe for concurrent use.
type served struct {
	mu     sync.Mutex
	byName map[string]resource
}

// aggregatedDiscovery asks for everything in one answer.
const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// resource returns what the server serves under the name, asking it again when the name is
// new. A name that is not served is errElsewhere.
func (r reader) resource(ctx context.Context, name string) (resource, error) {
	name = strings.ToLower(name)
	r.served.mu.Lock()
	defer r.served.mu.Unlock()
	if found, ok := r.served.byName[name]; ok {
		return found, nil
	}
	all := map[string]resource{}
	for _, root := range []string{"/api", "/apis"} {
		body, err := r.read(ctx, root, aggregatedDiscovery)
		if err != nil {
			return resource{}, errElsewhere
		}
		if err := addServed(all, body); err != nil {
			return resource{}, errElsewhere
		}
	}
	r.served.byName = all
	if found, ok := all[name]; ok {
		return found, nil
	}
	return resource{}, errElsewhere
}

// addServed adds the resources of an answer. The first to have a name keeps it, as groups
// and versions are listed by preference.
func addServed(all map[string]resource, discovery []byte) error {
	var groups struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct {
					Resource         string
					ResponseKind     struct{ Kind string }
					Scope            string
					SingularResource string
					ShortNames       []string
				}
			}
		}
	}
	if err := json.Unmarshal(discovery, &groups); err != nil {
		return err
	}
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				found := resource{group: group.Metadata.Name, version: version.Version, plural: r.Resource, namespaced: r.Scope == "Namespaced"}
				for _, name := range append([]string{r.Resource, r.SingularResource, strings.ToLower(r.ResponseKind.Kind)}, r.ShortNames...) {
					for _, full := range []string{name, name + "." + found.group, name + "." + found.version + "." + found.group} {
						if _, taken := all[full]; !taken {
							all[full] = found
						}
					}
				}
			}
		}
	}
	return nil
}
