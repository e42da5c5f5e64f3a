package simtest

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Kind is a kind of objects that a [Server] serves.
type Kind struct {
	// Group is empty for the core group. Version, Resource, which is the plural in
	// lower case, and Kind are required.
	Group, Version, Resource, Kind string
	// Cluster is whether the objects have no namespace.
	Cluster bool
	// Status is whether the status is a subresource. Writes of the object then
	// leave it as it is, and writes of /status change nothing else.
	Status bool
}

func (k Kind) apiVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

// custom reports whether the kind is one of a definition.
func (k Kind) custom() bool {
	return strings.Contains(k.Group, ".") && !strings.HasSuffix(k.Group, ".k8s.io")
}

// Server is an API server in memory. It is an http.RoundTripper, so it serves any
// client that takes one, such as a rest.Config of client-go with the field
// Transport. It answers in JSON. See the package comment for what it keeps of a
// real server and what it lacks.
//
// Set the fields before the first request. All methods are safe for concurrent
// use.
type Server struct {
	// Kinds are the kinds to serve. Required.
	Kinds []Kind
	// Admit changes an object before it is stored, as defaults of a schema and
	// mutating webhooks do, or refuses it with an error, which is answered with 422.
	// It must return at once. Default nil, which admits everything.
	Admit func(Object) error
	// Fields keeps metadata.managedFields. The Manager of examples/managedfields is
	// one. Default nil: there are no such fields, and server-side apply is answered
	// with 415.
	Fields FieldManager

	// WatchList serves watches that begin with the state (sendInitialEvents).
	// client-go fills a cache from them in random order, so that two histories of
	// one seed differ. Default false: they are refused, as without the feature of
	// that name, and clients list.
	WatchList bool

	mu        sync.Mutex
	version   int64
	compacted int64 // watches cannot begin below it
	created   int   // how many objects were created
	objects   map[key]Object
	history   []event // ascending by version
	streams   []*stream
	changes   []Change // not reported yet

	// The world sets these. Nil: nothing is delayed, reported or stale.
	schedule func(*stream, event)
	opened   func(*stream)
	changed  func(Change)
	stale    func(applytest.Request) time.Duration // how old the state is that a read of any state gets
}

// FieldManager decides who owns which field of an object. live is nil if it does not
// exist yet. Neither argument may be changed.
type FieldManager interface {
	// Apply returns the result of a server-side apply of config. An error is answered
	// as a conflict.
	Apply(live, config Object, w Write) (Object, error)
	// Update returns next, which another kind of write has made of live, with the
	// managedFields that it leaves. An error is answered with 422.
	Update(live, next Object, w Write) (Object, error)
}

// Write is how an object is written.
type Write struct {
	// Manager is the option fieldManager, or the program in the User-Agent.
	Manager string
	// Subresource is empty or status.
	Subresource string
	// Force is whether an apply takes fields from others.
	Force bool
}

// Change is one write that changed an object.
type Change struct {
	// By is "program" for the program under test, "user" for an edit, "another
	// client" for a write that makes a request of the program conflict, and
	// "garbage collector".
	By string
	// Request is the request of the program. It is zero for all others.
	Request applytest.Request
	// Before is nil if the object was created. After is nil if it was deleted.
	// Neither may be changed.
	Before, After Object
}

// key names an object.
type key struct{ group, resource, namespace, name string }

func (k key) String() string {
	s := k.resource
	if k.group != "" {
		s += "." + k.group
	}
	if k.namespace != "" {
		return s + " " + k.namespace + "/" + k.name
	}
	return s + " " + k.name
}

func compareKeys(a, b key) int {
	return cmp.Or(
		cmp.Compare(a.group, b.group),
		cmp.Compare(a.resource, b.resource),
		cmp.Compare(a.namespace, b.namespace),
		cmp.Compare(a.name, b.name),
	)
}

// event is one change in the history.
type event struct {
	version       int64
	at            time.Time
	key           key
	before, after Object
	last          Object // the object at this version, also if it was deleted
}

// call is a request with what the server has found out about it.
type call struct {
	applytest.Request

	by      string
	kind    Kind
	options *http.Request // nil for a call without HTTP
	body    []byte
}

func (c call) key() key { return key{c.Group, c.Resource, c.Namespace, c.Name} }

func (c call) option(name string) string {
	if c.options == nil {
		return ""
	}
	return c.options.URL.Query().Get(name)
}

// write is how the call writes.
func (c call) write() Write {
	w := Write{Manager: c.option("fieldManager"), Subresource: c.Subresource, Force: c.option("force") == "true"}
	switch {
	case w.Manager != "":
	case c.options != nil:
		w.Manager, _, _ = strings.Cut(c.options.UserAgent(), "/")
	default:
		w.Manager = c.by
	}
	return w
}

// metadataOnly reports whether the client wants PartialObjectMetadata.
func (c call) metadataOnly() bool {
	return c.options != nil && strings.Contains(c.options.Header.Get("Accept"), "as=PartialObjectMetadata")
}

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
	kind, ok := s.kind(c.Group, c.Version, c.Resource)
	c.kind = kind
	switch {
	case !ok:
		return respond(r, errorStatus(http.StatusNotFound, "NotFound", "the server could not find the requested resource", c)), nil
	case c.Subresource != "" && (c.Subresource != "status" || !kind.Status):
		return respond(r, errorStatus(http.StatusNotFound, "NotFound", "the server could not find the requested subresource", c)), nil
	case c.Verb == "watch":
		st, failed := s.watch(c)
		if failed != nil {
			return respond(r, failed), nil
		}
		return st.response(r), nil
	}
	return respond(r, s.serve(c)), nil
}

// serve answers a call that is no watch.
func (s *Server) serve(c call) *answer {
	s.mu.Lock()
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
		return errorStatus(http.StatusMethodNotAllowed, "MethodNotAllowed", "the verb "+c.Verb+" is not served", c)
	}
}

func (s *Server) kind(group, version, resource string) (Kind, bool) {
	i := slices.IndexFunc(s.Kinds, func(k Kind) bool {
		return k.Group == group && k.Resource == resource && (version == "" || k.Version == version)
	})
	if i < 0 {
		return Kind{}, false
	}
	return s.Kinds[i], true
}

// commit stores the next state of an object, nil if it was deleted, and sends the
// event. The lock is held. It returns the object at the new version.
func (s *Server) commit(c call, k key, next Object) Object {
	before := s.objects[k]
	s.version++
	last := next
	if next == nil {
		last = clone(before)
	}
	last.Set(strconv.FormatInt(s.version, 10), "metadata", "resourceVersion")
	if s.objects == nil {
		s.objects = map[key]Object{}
	}
	if next == nil {
		delete(s.objects, k)
	} else {
		s.objects[k] = next
	}
	e := event{version: s.version, at: time.Now(), key: k, before: before, after: next, last: last}
	s.history = append(s.history, e)
	change := Change{By: c.by, Before: before, After: next}
	if c.options != nil {
		change.Request = c.Request
	}
	s.changes = append(s.changes, change)
	for _, st := range slices.Clone(s.streams) {
		if st.selects(e) {
			s.dispatch(st, e)
		}
	}
	return last
}

func (s *Server) dispatch(st *stream, e event) {
	if s.schedule != nil {
		s.schedule(st, e)
		return
	}
	st.send(e)
}

// collect deletes, as the garbage collector does, each object all of whose owners
// were deleted, and returns how many it deleted.
func (s *Server) collect() int {
	s.mu.Lock()
	exists := map[string]bool{}
	for _, o := range s.objects {
		exists[o.UID()] = true
	}
	var orphans []key
	for k, o := range s.objects {
		owners := o.owners()
		if len(owners) > 0 && !o.Deleting() && !slices.ContainsFunc(owners, func(r Object) bool { return exists[r.text("uid")] }) {
			orphans = append(orphans, k)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(orphans, compareKeys)
	for _, k := range orphans {
		s.serve(s.local("garbage collector", "delete", k, nil))
	}
	return len(orphans)
}

// expire forgets the history and ends the watches. One that begins again from before
// gets 410.
func (s *Server) expire() {
	s.mu.Lock()
	s.compacted, s.history = s.version, nil
	open := slices.Clone(s.streams)
	s.mu.Unlock()
	for _, st := range open {
		st.end(io.EOF)
	}
}

// local is a call that does not come over HTTP.
func (s *Server) local(by, verb string, k key, body []byte) call {
	kind, _ := s.kind(k.group, "", k.resource)
	return call{by: by, kind: kind, body: body, Request: applytest.Request{
		Verb: verb, Group: k.group, Version: kind.Version, Resource: k.resource, Namespace: k.namespace, Name: k.name,
	}}
}

// keyOf finds out where an object belongs.
func (s *Server) keyOf(o Object) (key, error) {
	i := slices.IndexFunc(s.Kinds, func(k Kind) bool { return k.apiVersion() == o["apiVersion"] && k.Kind == o["kind"] })
	if i < 0 {
		return key{}, fmt.Errorf("simtest: %v %v is not served", o["apiVersion"], o["kind"])
	}
	return key{s.Kinds[i].Group, s.Kinds[i].Resource, o.Namespace(), o.Name()}, nil
}
