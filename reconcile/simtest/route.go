package simtest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// RoundTrip implements http.RoundTripper. The error is the cause of the request's
// context or body; the server itself answers with a metav1.Status.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err := cmp.Or(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	c := call{Request: applytest.ParseRequest(r), by: "program", options: r, body: body}
	a, st := s.answer(c)
	if st != nil {
		return st.response(r), nil
	}
	if a.cure != "" && s.unserved != nil {
		s.unserved(c, a)
	}
	return respond(r, a), nil
}

// answer answers a call over HTTP, with a stream if it is a watch.
func (s *Server) answer(c call) (*answer, *stream) {
	if c.Resource == "" {
		return s.discover(c), nil
	}
	if s.Allow != nil {
		if err := s.Allow(c.Request); err != nil {
			return errorStatus(http.StatusForbidden, "Forbidden", err.Error(), c), nil
		}
	}
	if c.Group == reviews {
		return s.review(c), nil
	}
	if s.rights != nil {
		r := c.Request
		if name, one := strings.CutPrefix(c.option("fieldSelector"), "metadata.name="); one && (r.Verb == "list" || r.Verb == "watch") {
			r.Name = name // as a server sees a list of one object
		}
		if err := s.rights(r); err != nil {
			s.beyond(err)
			return errorStatus(http.StatusForbidden, "Forbidden", err.Error(), c), nil
		}
	}
	kind, ok := s.kind(c.Group, c.Version, c.Resource)
	if !ok && c.Verb == "list" && c.Resource == definitions.Resource && c.Group == definitions.Group && c.Version == definitions.Version {
		kind, ok = definitions, true
	}
	if !ok {
		return unserved(http.StatusNotFound, "NotFound", "the server could not find the requested resource", "add the kind to Kinds", c), nil
	}
	c.kind = kind
	if a := c.misrouted(); a != nil {
		return a, nil
	}
	if a := c.unacceptable(); a != nil {
		return a, nil
	}
	if a := c.invalidOptions(); a != nil {
		return a, nil
	}
	if a := s.readBody(&c); a != nil {
		return a, nil
	}
	if c.Verb == "watch" {
		st, failed := s.watch(c)
		return failed, st
	}
	return s.serve(c), nil
}

// definitions are listed by programs that look whether a kind is not served although it is
// defined. Each server has the kind. A world whose Kinds do not have it has no definitions.
//
//nolint:gochecknoglobals // constant
var definitions = Kind{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition",
	Cluster: true, Status: true,
}

// serve answers a call that is no watch.
func (s *Server) serve(c call) *answer {
	s.mu.Lock()
	s.found()
	result := s.route(c)
	changes := s.changes
	s.changes = nil
	s.mu.Unlock()
	if s.changed != nil {
		for _, change := range changes {
			s.changed(change)
		}
	}
	return result
}

func (s *Server) route(c call) *answer {
	switch c.Subresource {
	case "scale":
		return s.scale(c)
	case "binding":
		return s.bind(c)
	case "eviction":
		return s.evict(c)
	}
	switch c.Verb {
	case "get":
		return s.get(c)
	case "list":
		return s.list(c)
	case "create":
		return s.create(c)
	case "update":
		return s.update(c)
	case "patch":
		return s.patch(c)
	case "delete":
		return s.delete(c)
	case "deletecollection":
		return s.deleteCollection(c)
	default:
		return notAllowed(c)
	}
}

func notAllowed(c call) *answer {
	if c.kind.custom() && c.Resource != "" {
		a := errorStatus(http.StatusMethodNotAllowed, "MethodNotAllowed", fmt.Sprintf(
			"%s is not supported on resources of kind %q", c.Verb, c.kind.resource(),
		), c)
		return a.about(Object{"group": c.Group, "kind": c.Resource})
	}
	return errorStatus(
		http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource", c,
	).about(Object{})
}

func absent(c call) *answer {
	return errorStatus(http.StatusNotFound, "NotFound", "the server could not find the requested resource", c).about(Object{})
}

// elsewhere are subresources of built-in kinds that need what no API server in memory
// has, by resource.
var elsewhere = map[string][]string{ //nolint:gochecknoglobals // never changed
	"pods":            {"attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"},
	"services":        {"proxy"},
	"nodes":           {"proxy"},
	"serviceaccounts": {"token"},
	"certificatesigningrequests.certificates.k8s.io": {"approval"},
}

// misrouted refuses a path or a method that the kind does not have, nil if it has it.
func (c call) misrouted() *answer {
	custom := c.kind.custom()
	if c.kind.Cluster && c.Namespace != "" || !c.kind.Cluster && c.Namespace == "" && c.Name != "" {
		return absent(c)
	}
	if c.Subresource != "" {
		return c.misplacedSubresource()
	}
	everywhere := !c.kind.Cluster && c.Namespace == ""
	switch {
	case everywhere && custom && c.Verb != "list" && c.Verb != "watch":
		return absent(c)
	case everywhere && c.Verb != "list" && c.Verb != "watch":
		return notAllowed(c)
	case c.Name == "" && (c.Verb == "update" || c.Verb == "patch") && custom:
		return errorStatus(http.StatusBadRequest, "BadRequest", "name must be provided", c).about(nil)
	case c.Name == "" && (c.Verb == "update" || c.Verb == "patch"), c.Name != "" && c.Verb == "create",
		c.Verb == "deletecollection" && c.kind.resource() == "namespaces":
		return notAllowed(c)
	}
	return nil
}

func (c call) misplacedSubresource() *answer {
	is, name := c.kind.traits(), c.kind.resource()
	switch {
	case c.Subresource == "status" && c.kind.Status,
		c.Subresource == "scale" && c.kind.scale() != nil,
		c.Subresource == "finalize" && name == "namespaces":
		if !slices.Contains([]string{"get", "update", "patch"}, c.Verb) || c.Subresource == "finalize" && c.Verb != "update" {
			return notAllowed(c)
		}
		return nil
	case name == "pods" && (c.Subresource == "binding" || c.Subresource == "eviction"):
		if c.Verb != "create" {
			return notAllowed(c)
		}
		return nil
	case c.kind.custom() && c.kind.Schema != nil: // whose definition says what it has
		return notFound(c)
	case c.Subresource == "status" && (is.status || c.kind.custom()):
		return unserved(http.StatusNotFound, "NotFound", notFound(c).message(), "set Kind.Status for /status", c)
	case c.Subresource == "scale" && c.kind.custom():
		return unserved(http.StatusNotFound, "NotFound", notFound(c).message(), "set Kind.Scale for /scale", c)
	case slices.Contains(elsewhere[name], c.Subresource):
		return unserved(
			http.StatusNotFound, "NotFound", notFound(c).message(),
			"answer it with a RoundTripper of your own in front of the server", c,
		)
	case c.kind.custom():
		return notFound(c)
	}
	return absent(c)
}

// unacceptable refuses a request whose answer would be no JSON.
func (c call) unacceptable() *answer {
	accept := strings.Join(c.options.Header.Values("Accept"), ",")
	switch {
	case accept == "", strings.Contains(accept, "json"), strings.Contains(accept, "*/*"), strings.Contains(accept, "application/*"):
		return nil
	case strings.Contains(accept, "application/vnd.kubernetes.protobuf") && !c.kind.custom(),
		strings.Contains(accept, "yaml"), strings.Contains(accept, "cbor"):
		return unserved(
			http.StatusNotAcceptable, "NotAcceptable", "the server answers in JSON, not "+accept,
			"set AcceptContentTypes of the rest.Config to application/json", c,
		)
	}
	return errorStatus(http.StatusNotAcceptable, "NotAcceptable", "only the following media types are accepted: application/json, "+
		"application/yaml, application/vnd.kubernetes.protobuf", c).about(nil)
}

// invalidOptions refuses options of a write that a real server refuses.
func (c call) invalidOptions() *answer {
	query := c.options.URL.Query()
	kind := map[string]string{"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}[c.Verb]
	if kind == "" {
		return nil // of deletions, which may have them in the body
	}
	if dry := query["dryRun"]; len(dry) > 0 && !slices.Equal(dry, []string{"All"}) {
		return invalidOption(c, kind, fmt.Sprintf("dryRun: Unsupported value: %q: supported values: \"All\"", dry))
	}
	if mode := c.option("fieldValidation"); !slices.Contains([]string{"", "Ignore", "Warn", "Strict"}, mode) {
		return invalidOption(
			c,
			kind,
			fmt.Sprintf("fieldValidation: Unsupported value: %q: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"", mode),
		)
	}
	if len(c.option("fieldManager")) > 128 {
		return invalidOption(c, kind, "fieldManager: Too long: may not be more than 128 bytes")
	}
	return nil
}

func invalidOption(c call, kind, why string) *answer {
	return errorStatus(http.StatusUnprocessableEntity, "Invalid", kind+".meta.k8s.io \"\" is invalid: "+why, c).
		about(Object{"group": "meta.k8s.io", "kind": kind})
}

// readBody decodes a body that is no JSON.
func (s *Server) readBody(c *call) *answer {
	if len(c.body) == 0 || !slices.Contains([]string{"create", "update", "delete", "deletecollection"}, c.Verb) {
		return nil
	}
	text := c.options.Header.Get("Content-Type")
	form, _, err := mime.ParseMediaType(text)
	switch {
	case text == "", err == nil && form == "application/json":
		return nil
	case form == "application/yaml", form == "application/vnd.kubernetes.protobuf" && !c.kind.custom(), form == "application/cbor":
		if s.Machinery == nil {
			return unserved(
				http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body of the request is no JSON: "+text,
				"set Machinery, or ContentType of the rest.Config to application/json: typed clients prefer protobuf", *c,
			)
		}
		o, err := s.Machinery.Decode(form, c.body)
		if err != nil {
			return refused(*c, err, http.StatusBadRequest)
		}
		if c.body, err = encode(o); err != nil {
			return badRequest(*c, err.Error())
		}
		return nil
	}
	return errorStatus(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body of the request was in an unknown format - "+
		"accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf", *c).about(nil)
}

// refused answers with the code of an error, or else with another one.
func refused(c call, err error, code int) *answer {
	var coded interface{ StatusCode() int }
	if errors.As(err, &coded) {
		code = coded.StatusCode()
	}
	switch code {
	case http.StatusConflict:
		a := errorStatus(code, "Conflict", err.Error(), c).about(nil)
		var why interface{ Causes() []Cause }
		if errors.As(err, &why) && len(why.Causes()) > 0 {
			a.about(Object{"causes": inDetails(why.Causes())})
		}
		return a
	case http.StatusBadRequest:
		return badRequest(c, err.Error())
	case http.StatusUnsupportedMediaType:
		return errorStatus(code, "UnsupportedMediaType", err.Error(), c).about(nil)
	case http.StatusUnprocessableEntity:
		return errorStatus(code, "Invalid", "the server rejected our request due to an error in our request: "+err.Error(), c).about(nil)
	}
	return failure(c, code, err.Error())
}
