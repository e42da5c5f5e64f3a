package simtest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// prepare sets what a real server sets on each new object of a kind, whatever the
// schema.
func (k Kind) prepare(o Object) {
	switch k.resource() {
	case "namespaces":
		o.Set([]any{"kubernetes"}, "spec", "finalizers")
		o.Set("Active", "status", "phase")
		k.label(o)
	case "pods":
		o["status"] = map[string]any{"phase": "Pending", "qosClass": "BestEffort"}
	}
}

// label gives a namespace the label with its name.
func (k Kind) label(o Object) {
	if k.resource() == "namespaces" && o.Name() != "" {
		o.Set(o.Name(), "metadata", "labels", "kubernetes.io/metadata.name")
	}
}

// immortal refuses the deletion of a namespace that every server has.
func (c call) immortal() *answer {
	if c.kind.resource() != "namespaces" || !slices.Contains(immortals, c.Name) || c.Name == "kube-node-lease" {
		return nil
	}
	return errorStatus(
		http.StatusForbidden, "Forbidden", fmt.Sprintf("namespaces %q is forbidden: this namespace may not be deleted", c.Name), c,
	)
}

// immortals are the namespaces of a new server.
var immortals = []string{"default", "kube-node-lease", "kube-public", "kube-system"} //nolint:gochecknoglobals // never changed

// found makes the namespaces that every server has, if the server has the kind. The
// lock is held.
func (s *Server) found() {
	if s.version >= firstVersion {
		return
	}
	if kind, ok := s.kind("", "v1", "namespaces"); ok {
		for _, name := range immortals {
			s.version++
			s.created++
			o := Object{"apiVersion": "v1", "kind": kind.Kind, "metadata": map[string]any{
				"name": name, "uid": fmt.Sprintf("uid-%06d", s.created), "resourceVersion": strconv.FormatInt(s.version, 10),
				"creationTimestamp": s.now().Format(time.RFC3339),
			}}
			kind.prepare(o)
			if s.objects == nil {
				s.objects = map[key]Object{}
			}
			s.objects[key{"", "namespaces", "", name}] = o
		}
	}
	s.version = firstVersion
	s.compacted = 0
}

// homeless refuses an object in a namespace that does not exist, or that is being
// deleted. Namespaces need to exist if the server has the kind.
func (s *Server) homeless(c call) *answer {
	if _, ok := s.kind("", "v1", "namespaces"); !ok || c.kind.Cluster {
		return nil
	}
	namespace := s.objects[key{"", "namespaces", "", c.Namespace}]
	switch {
	case namespace == nil:
		a := errorStatus(http.StatusNotFound, "NotFound", fmt.Sprintf("namespaces %q not found", c.Namespace), c)
		return a.about(Object{"name": c.Namespace, "kind": "namespaces"})
	case namespace.Deleting():
		a := errorStatus(http.StatusForbidden, "Forbidden", fmt.Sprintf(
			"%s %q is forbidden: unable to create new content in namespace %s because it is being terminated",
			c.kind.resource(),
			c.Name,
			c.Namespace,
		), c)
		a.body.Set([]any{map[string]any{
			"reason": "NamespaceTerminating", "message": fmt.Sprintf("namespace %s is being terminated", c.Namespace), "field": "metadata.namespace",
		}}, "details", "causes")
		return a
	}
	return nil
}
