package simtest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

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
	// Admit changes what a write is about to store, as defaults of a schema and
	// mutating webhooks do, or refuses it with an error, which is answered with 422.
	// It must return at once. Default nil, which admits everything.
	Admit func(*Admission) error
	// Allow returns an error for a request that the program has no right to send. It
	// is answered with 403 and the text of the error. Everybody may read discovery.
	// Default nil, which allows everything.
	Allow func(applytest.Request) error
	// Machinery has the code of a real server for what needs schemas, such as that of
	// reconcile/simtest/upstream. Default nil: there are no managedFields, and
	// server-side apply, JSON and strategic merge patches, and bodies that are no JSON
	// are refused.
	Machinery Machinery

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
	skew     time.Duration                         // how far the clock is ahead
	unserved func(call, *answer)                   // an answer that has a cure
	forbids  func(applytest.Request) bool          // whether a habit forbids a request
	rights   func(applytest.Request) error         // why the program's role does not allow one
	beyond   func(error)                           // called with this error of a request
}

// firstVersion is below that of all objects. A list of an empty server has it: 0
// would mean any version to the watch that follows, whose reader is then told of no
// deletion in between.
const firstVersion = 100

// Machinery is what the server cannot do without schemas. No argument may be
// changed. An error with a method StatusCode() int is answered with that code, any
// other one with 422.
type Machinery interface {
	// Apply returns the result of a server-side apply of config. live is nil if it does
	// not exist yet.
	Apply(live, config Object, w Write) (Object, error)
	// Update returns next, which another kind of write has made of live, with the
	// managedFields that it leaves. live is nil if it does not exist yet.
	Update(live, next Object, w Write) (Object, error)
	// Patch returns what a patch makes of live. form is application/json-patch+json or
	// application/strategic-merge-patch+json.
	Patch(form string, live Object, patch []byte) (Object, error)
	// Decode reads a body that is no JSON, such as application/vnd.kubernetes.protobuf
	// and application/yaml.
	Decode(form string, body []byte) (Object, error)
}

// Admission is a write that is about to happen.
type Admission struct {
	// Verb is create, update or delete. A patch is an update, or creates.
	Verb string
	// Subresource is empty or such as status.
	Subresource string
	// By is who writes, as in [Change].
	By string
	// Before is nil if the object is created. It may not be changed.
	Before Object
	// Object is what will be stored. It may be changed. It is nil for a deletion.
	Object Object
}

// Write is how an object is written.
type Write struct {
	// Manager is the option fieldManager, or the program in the User-Agent.
	Manager string
	// Subresource is empty or such as status.
	Subresource string
	// Force is whether an apply takes fields from others.
	Force bool
	// Kept are the paths of fields that the write leaves as they are whatever it says of
	// them, such as status and metadata.labels.
	Kept []string
	// Schema is that of the kind.
	Schema Schema
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
	s := qualified(k.resource, k.group)
	if k.namespace != "" {
		return s + " " + k.namespace + "/" + k.name
	}
	return s + " " + k.name
}

func compareKeys(a, b key) int {
	return cmp.Or(
		cmp.Compare(a.group, b.group),
		cmp.Compare(a.resource, b.resource),
		cmp.Compare(a.path(), b.path()),
	)
}

// path is what a real server sorts by: a-b comes before a.
func (k key) path() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
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
	plain   bool // answer with the object itself, whatever the client accepts
}

func (c call) key() key {
	return key{storedGroup(c.Group, c.Resource), c.Resource, c.Namespace, c.Name}
}

func (c call) option(name string) string {
	if c.options == nil {
		return ""
	}
	return c.options.URL.Query().Get(name)
}

// write is how the call writes.
func (c call) write() Write {
	w := Write{
		Manager: c.option("fieldManager"), Subresource: c.Subresource, Force: c.option("force") == "true", Kept: c.kept(), Schema: c.kind.Schema,
	}
	switch {
	case w.Manager != "":
	case c.options != nil:
		w.Manager, _, _ = strings.Cut(cmp.Or(c.options.UserAgent(), "Go-http-client"), "/")
	default:
		w.Manager = c.by
	}
	return w
}

// kept are the fields that the call may not change.
func (c call) kept() []string {
	switch {
	case c.Subresource == "status" && c.kind.custom():
		return []string{"metadata", "spec"}
	case c.Subresource == "status":
		all := []string{"spec"}
		for _, field := range c.kind.traits().kept {
			all = append(all, "metadata."+field)
		}
		return all
	case c.Subresource == "" && c.kind.Status:
		return []string{"status"}
	}
	return nil
}

// as reports whether the client wants an answer in that form.
func (c call) as(form string) bool {
	return c.options != nil && !c.plain && strings.Contains(c.options.Header.Get("Accept"), "as="+form)
}

// dry reports whether the call is to change nothing.
func (c call) dry() bool { return c.DryRun }

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
		if e.version > st.from && st.selects(e) {
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

// restore makes the objects those of an earlier time, as a backup does whose versions are
// raised: watches begin again with a list. It returns what has changed.
func (s *Server) restore(then time.Time) (changes []Change) {
	s.mu.Lock()
	version := s.version
	for _, e := range slices.Backward(s.history) {
		if !e.at.After(then) {
			break
		}
		version = e.version - 1
	}
	before, after := s.objects, s.at(max(version, s.compacted))
	for _, k := range slices.SortedFunc(maps.Keys(after), compareKeys) {
		if o := after[k]; before[k] == nil || before[k].text("metadata", "resourceVersion") != o.text("metadata", "resourceVersion") {
			changes = append(changes, Change{By: backup, Before: clone(before[k]), After: clone(o)})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(before), compareKeys) {
		if after[k] == nil {
			changes = append(changes, Change{By: backup, Before: clone(before[k])})
		}
	}
	s.objects, s.version = maps.Clone(after), s.version+1000
	s.mu.Unlock()
	s.expire()
	return changes
}

// now is the time by the clock of the server.
func (s *Server) now() time.Time { return time.Now().Add(s.skew).UTC() }

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

// resourceOf returns the resource of an object with its group, as World.Objects takes it; empty if it is not served.
func (s *Server) resourceOf(o Object) string {
	k, err := s.keyOf(o)
	if err != nil {
		return ""
	}
	return qualified(k.resource, k.group)
}

// keyOf finds out where an object belongs.
func (s *Server) keyOf(o Object) (key, error) {
	kinds := s.served()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.apiVersion() == o["apiVersion"] && k.Kind == o["kind"] })
	if i < 0 {
		return key{}, fmt.Errorf("simtest: %v %v is not served", o["apiVersion"], o["kind"])
	}
	return key{kinds[i].Group, kinds[i].Resource, o.Namespace(), o.Name()}, nil
}
