package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// stream is the body of a watch.
type stream struct {
	server   *Server
	call     call
	selected selector
	from     int64 // the version it begins after
	// These belong to the world: which watch this is, and when its last event so far
	// is delivered.
	number int
	due    time.Time
	muted  bool // nothing comes any more

	mu      sync.Mutex
	changed *sync.Cond
	pending []byte
	sent    int64 // the version that the reader has
	err     error // how it ended
	release func() bool
}

// watch opens a stream.
func (s *Server) watch(c call) (*stream, *answer) {
	selected, err := c.selector()
	if err != nil {
		return nil, badRequest(c, err.Error())
	}
	if why := c.invalidWatch(); why != "" {
		return nil, invalidOption(c, "ListOptions", why)
	}
	if c.option("sendInitialEvents") == "true" && !s.WatchList {
		return nil, invalid(
			c,
			"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
		)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found()
	st := &stream{server: s, call: c, selected: selected}
	st.changed = sync.NewCond(&st.mu)
	from, initial := s.version, c.option("sendInitialEvents") == "true"
	switch version := c.option("resourceVersion"); {
	case initial, version == "":
		initial = true
	case version == "0":
		initial, from = true, s.readAt(c)
	default:
		if from, err = strconv.ParseInt(version, 10, 64); err != nil || from < 0 {
			return nil, failure(c, http.StatusInternalServerError, fmt.Sprintf("resourceVersion: Invalid value: %q", version))
		}
	}
	if from < s.compacted {
		st.write("ERROR", errorStatus(http.StatusGone, "Expired", "too old resource version: "+strconv.FormatInt(from, 10), c).body)
		st.err = io.EOF
		return st, nil
	}
	st.from, st.sent = from, from
	if initial {
		objects := s.at(from)
		for _, k := range s.keys(objects, selected) {
			st.write("ADDED", c.shape(objects[k]))
		}
		if c.option("sendInitialEvents") == "true" {
			st.write("BOOKMARK", st.bookmark(true))
		}
	}
	s.streams = append(s.streams, st)
	if s.opened != nil {
		s.opened(st)
	}
	for _, e := range s.since(from) {
		if st.selects(e) {
			s.dispatch(st, e)
		}
	}
	return st, nil
}

// invalidWatch returns why a real server refuses the options of a watch.
func (c call) invalidWatch() string {
	match, initial := c.option("resourceVersionMatch"), c.option("sendInitialEvents")
	switch {
	case initial != "" && match != "NotOlderThan":
		return "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
	case initial == "" && match != "":
		return "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
	}
	return ""
}

// response is the answer with the stream as its body. It ends with the request.
func (st *stream) response(r *http.Request) *http.Response {
	ctx := r.Context()
	st.mu.Lock()
	st.release = context.AfterFunc(ctx, func() { st.end(ctx.Err()) })
	st.mu.Unlock()
	return response(r, http.StatusOK, st, -1)
}

// selects reports whether the reader gets to know of an event.
func (st *stream) selects(e event) bool {
	return st.selected.matches(e.key, e.before) || st.selected.matches(e.key, e.after)
}

// send delivers an event, and returns its type.
func (st *stream) send(e event) string {
	kind, o := "MODIFIED", e.last
	switch was, is := st.selected.matches(e.key, e.before), st.selected.matches(e.key, e.after); {
	case !is:
		kind = "DELETED"
		if e.after != nil { // the reader gets what it knew, at the version that hides it
			o = clone(e.before)
			o.keep(e.last, "metadata", "resourceVersion")
		}
	case !was:
		kind = "ADDED"
	}
	st.mu.Lock()
	st.sent = e.version
	st.mu.Unlock()
	st.write(kind, st.call.shape(o))
	return kind
}

// bookmark is an object with nothing but the version.
func (st *stream) bookmark(initial bool) Object {
	o := Object{"kind": st.call.kind.Kind, "apiVersion": st.call.kind.apiVersion()}
	o.Set(strconv.FormatInt(st.sent, 10), "metadata", "resourceVersion")
	if initial {
		o.Set("true", "metadata", "annotations", "k8s.io/initial-events-end")
	}
	return st.call.shape(o)
}

// mark sends a bookmark. If no event is on its way, it has the newest version.
func (st *stream) mark() {
	st.server.mu.Lock()
	if !st.due.After(time.Now()) {
		st.mu.Lock()
		st.sent = st.server.version
		st.mu.Unlock()
	}
	st.server.mu.Unlock()
	st.write("BOOKMARK", st.bookmark(false))
}

func (st *stream) write(kind string, o Object) {
	data, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		return // of what JSON has decoded: it cannot fail
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil {
		st.pending = append(append(st.pending, data...), '\n')
		st.changed.Broadcast()
	}
}

// end ends the stream: io.EOF as the server does, any other error as the network
// does. What is pending is still delivered.
func (st *stream) end(err error) {
	st.server.mu.Lock()
	st.server.streams = slices.DeleteFunc(st.server.streams, func(each *stream) bool { return each == st })
	st.server.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil {
		st.err = err
	}
	if st.release != nil {
		st.release()
	}
	st.changed.Broadcast()
}

func (st *stream) ended() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.err != nil
}

// Read implements io.Reader.
func (st *stream) Read(p []byte) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for len(st.pending) == 0 {
		if st.err != nil {
			return 0, st.err
		}
		st.changed.Wait()
	}
	n := copy(p, st.pending)
	st.pending = st.pending[n:]
	return n, nil
}

// Close implements io.Closer.
func (st *stream) Close() error {
	st.end(http.ErrBodyReadAfterClose)
	return nil
}
