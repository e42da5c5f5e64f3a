package simtest

import (
	"net/http"
	"slices"
	"strings"
)

// discover answers a request that is about no resource.
func (s *Server) discover(c call) *answer {
	if c.options.Method != http.MethodGet && c.options.Method != http.MethodHead {
		return notAllowed(c)
	}
	path := strings.Trim(c.options.URL.Path, "/")
	parts := strings.Split(path, "/")
	switch {
	case path == "api" && c.as("APIGroupDiscoveryList"), path == "apis" && c.as("APIGroupDiscoveryList"):
		return s.aggregated(path == "api")
	case path == "api":
		return document(Object{"kind": "APIVersions", "versions": []any{"v1"}, "serverAddressByClientCIDRs": []any{
			map[string]any{"clientCIDR": "0.0.0.0/0", "serverAddress": "simtest"},
		}})
	case path == "apis":
		var groups []any
		for _, name := range s.groups() {
			groups = append(groups, map[string]any(s.group(name)))
		}
		return document(Object{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
	case path == "version":
		return document(Object{
			"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64", "goVersion": "simtest", "compiler": "gc",
			"gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "emulationMajor": "1", "emulationMinor": "36",
			"minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
		})
	case path == "healthz", path == "livez", path == "readyz":
		return &answer{code: http.StatusOK, text: "ok"}
	case strings.HasPrefix(path, "openapi"):
		return unserved(http.StatusNotFound, "NotFound", "the server has no schemas", "use a client that does not read OpenAPI", c)
	case len(parts) == 2 && parts[0] == "apis" && slices.Contains(s.groups(), parts[1]):
		group := s.group(parts[1])
		group["kind"], group["apiVersion"] = "APIGroup", "v1"
		return document(group)
	case len(parts) == 2 && parts[0] == "api" && parts[1] == "v1":
		return s.resources("", "v1")
	case len(parts) == 3 && parts[0] == "apis" && slices.Contains(s.versions(parts[1]), parts[2]):
		return s.resources(parts[1], parts[2])
	}
	return absent(c)
}

func document(o Object) *answer { return &answer{code: http.StatusOK, body: o} }

// of are the kinds of a version, by name.
func (s *Server) of(group, version string) []Kind {
	kinds := slices.DeleteFunc(s.served(), func(k Kind) bool { return k.Group != group || k.Version != version })
	slices.SortFunc(kinds, func(a, b Kind) int { return strings.Compare(a.Resource, b.Resource) })
	return kinds
}

// response is the kind of an answer. Built-in kinds leave out what the document says.
func (k Kind) response(sub subresource) map[string]any {
	switch {
	case sub.group != "":
		return map[string]any{"group": sub.group, "version": "v1", "kind": sub.kind}
	case k.custom():
		return map[string]any{"group": k.Group, "version": k.Version, "kind": sub.kind}
	}
	return map[string]any{"group": "", "version": "", "kind": sub.kind}
}

// verbs are those of the kind.
func (k Kind) verbs() []string {
	if k.resource() == "namespaces" {
		return slices.DeleteFunc(slices.Clone(everyVerb), func(verb string) bool { return verb == "deletecollection" })
	}
	return everyVerb
}

// groups are the names of the groups beside the core group.
func (s *Server) groups() []string {
	var all []string
	for _, k := range s.served() {
		if k.Group != "" && !slices.Contains(all, k.Group) {
			all = append(all, k.Group)
		}
	}
	return all
}

func (s *Server) versions(group string) []string {
	var all []string
	for _, k := range s.served() {
		if k.Group == group && !slices.Contains(all, k.Version) {
			all = append(all, k.Version)
		}
	}
	return all
}

// group is an APIGroup. The first version among Kinds is the preferred one.
func (s *Server) group(name string) Object {
	var all []any
	for _, version := range s.versions(name) {
		all = append(all, map[string]any{"groupVersion": name + "/" + version, "version": version})
	}
	return Object{"name": name, "versions": all, "preferredVersion": all[0]}
}

// resources is an APIResourceList.
func (s *Server) resources(group, version string) *answer {
	all, gv := []any{}, Kind{Group: group, Version: version}.apiVersion()
	for _, k := range s.of(group, version) {
		r := map[string]any{
			"name": k.Resource, "singularName": k.singular(), "namespaced": !k.Cluster, "kind": k.Kind, "verbs": verbs(k.verbs()),
		}
		if len(k.ShortNames) > 0 {
			r["shortNames"] = verbs(k.ShortNames)
		}
		all = append(all, r)
		for _, sub := range k.subresources() {
			one := map[string]any{
				"name": k.Resource + "/" + sub.name, "singularName": "", "namespaced": !k.Cluster, "kind": sub.kind, "verbs": verbs(sub.verbs),
			}
			if sub.group != "" {
				one["group"], one["version"] = sub.group, "v1"
			}
			all = append(all, one)
		}
	}
	return document(Object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": all})
}

var everyVerb = []string{ //nolint:gochecknoglobals // never changed
	"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
}

func verbs(all []string) []any {
	var found []any
	for _, each := range all {
		found = append(found, each)
	}
	return found
}

func (k Kind) singular() string {
	if k.Singular != "" {
		return k.Singular
	}
	return strings.ToLower(k.Kind)
}

// subresource is one in discovery.
type subresource struct {
	name, group, kind string
	verbs             []string
}

func (k Kind) subresources() []subresource {
	var all []subresource
	if k.resource() == "pods" {
		all = append(
			all,
			subresource{"binding", "", "Binding", []string{"create"}},
			subresource{"eviction", "policy", "Eviction", []string{"create"}},
		)
	}
	if k.resource() == "namespaces" {
		all = append(all, subresource{"finalize", "", "Namespace", []string{"update"}})
	}
	if k.scale() != nil {
		all = append(all, subresource{"scale", "autoscaling", "Scale", []string{"get", "patch", "update"}})
	}
	if k.Status {
		all = append(all, subresource{"status", "", k.Kind, []string{"get", "patch", "update"}})
	}
	return all
}

// aggregated is all that discovery has in one document.
func (s *Server) aggregated(core bool) *answer {
	items := []any{}
	names := s.groups()
	if core {
		names = []string{""}
	}
	for _, name := range names {
		var versions []any
		for _, version := range s.versions(name) {
			versions = append(versions, map[string]any{"version": version, "freshness": "Current", "resources": s.discovered(name, version)})
		}
		about := map[string]any{}
		if name != "" {
			about["name"] = name
		}
		items = append(items, map[string]any{"metadata": about, "versions": versions})
	}
	return &answer{
		code: http.StatusOK, form: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
		body: Object{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": map[string]any{}, "items": items},
	}
}

func (s *Server) discovered(group, version string) []any {
	var all []any
	for _, k := range s.of(group, version) {
		scope := "Namespaced"
		if k.Cluster {
			scope = "Cluster"
		}
		r := map[string]any{
			"resource": k.Resource, "singularResource": k.singular(), "scope": scope, "verbs": verbs(k.verbs()),
			"responseKind": k.response(subresource{kind: k.Kind}),
		}
		if len(k.ShortNames) > 0 {
			r["shortNames"] = verbs(k.ShortNames)
		}
		var subs []any
		for _, sub := range k.subresources() {
			subs = append(subs, map[string]any{"subresource": sub.name, "responseKind": k.response(sub), "verbs": verbs(sub.verbs)})
		}
		if subs != nil {
			r["subresources"] = subs
		}
		all = append(all, r)
	}
	return all
}
