package applytest

import (
	"net/http"
	"strings"
)

// Request is one request, in the terms of the API server's audit log.
type Request struct {
	// Number counts all requests of a Transport from 1. WriteNumber counts those
	// that write, and is 0 for the others. Reset restarts both at 1.
	Number, WriteNumber int
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb string
	// Group, Version and Resource are empty for a path that is no resource, such as
	// /version.
	Group, Version, Resource string
	// Namespace and Name are empty where the request has none.
	Namespace, Name string
	Subresource     string
	// DryRun is whether the server is asked to store nothing.
	DryRun bool
	// Path is the path of the URL.
	Path string
	// Status is the code of the answer, 0 without an answer.
	Status int
}

// Writes reports whether the request asks for a change. A review of rights stores nothing.
func (r Request) Writes() bool {
	if r.Group == "authorization.k8s.io" || r.Group == "authentication.k8s.io" {
		return false
	}
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !r.DryRun
	default:
		return false
	}
}

// String returns the request on a line: patch deployments.apps shop/web.
func (r Request) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.Path
	}
	var b strings.Builder
	b.WriteString(r.Verb + " " + r.Resource)
	if r.Group != "" {
		b.WriteString("." + r.Group)
	}
	if r.Subresource != "" {
		b.WriteString("/" + r.Subresource)
	}
	if r.Namespace != "" || r.Name != "" {
		b.WriteString(" ")
	}
	if r.Namespace != "" {
		b.WriteString(r.Namespace + "/")
	}
	b.WriteString(r.Name)
	if r.DryRun {
		b.WriteString(" (dry run)")
	}
	return b.String()
}

// ParseRequest reads a request off its method and URL, as the API server does.
// Number, WriteNumber and Status are zero.
func ParseRequest(r *http.Request) Request {
	found := Request{Path: r.URL.Path}
	query := r.URL.Query()
	found.DryRun = query.Has("dryRun")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		found.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		found.Group, found.Version, parts = parts[1], parts[2], parts[3:]
	default:
		found.Verb = strings.ToLower(r.Method)
		return found
	}
	if parts[0] == "namespaces" && len(parts) > 2 && !namespaceParts(parts[2]) {
		found.Namespace, parts = parts[1], parts[2:]
	}
	found.Resource = parts[0]
	if len(parts) > 1 {
		found.Name = parts[1]
	}
	if len(parts) > 2 {
		found.Subresource = parts[2]
	}
	found.Verb = verb(r.Method, found.Name != "", query.Has("watch") && query.Get("watch") != "false")
	return found
}

// namespaceParts reports the subresources of a namespace itself.
func namespaceParts(part string) bool { return part == "status" || part == "finalize" }

func verb(method string, named, watch bool) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watch:
			return "watch"
		case named:
			return "get"
		default:
			return "list"
		}
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if !named {
			return "deletecollection"
		}
		return "delete"
	default:
		return strings.ToLower(method)
	}
}
