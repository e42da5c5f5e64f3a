package clusters_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// link sees what agents and the control plane say to each other, and can have it fail.
type link struct {
	// fault, if set, answers in the place of the control plane, which is next.
	fault atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]

	mu        sync.Mutex
	exchanges []*exchange
}

// exchange is one request of an agent.
type exchange struct {
	endpoint string // the last part of the path, such as snapshots
	cluster  string
	token    string
	body     []byte
	status   int // of the answer, 0 for none, or none yet
	answer   []byte
	began    time.Time
	answered time.Time // when the first byte of the answer was written
	ended    time.Time // zero while it lasts
}

// set sets what happens to requests from now on, nil for nothing.
func (l *link) set(fault func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	if fault == nil {
		l.fault.Store(nil)
		return
	}
	l.fault.Store(&fault)
}

func endpointOf(r *http.Request) string { return r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] }

func (l *link) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if len(parts) != 5 || parts[2] != "clusters" {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the agent has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		e := &exchange{
			endpoint: parts[4],
			cluster:  parts[3],
			token:    strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
			body:     body,
			began:    time.Now(),
		}
		l.mu.Lock()
		l.exchanges = append(l.exchanges, e)
		l.mu.Unlock()
		tee := &tee{ResponseWriter: w, status: http.StatusOK}
		whole := false
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			e.ended = time.Now()
			if whole {
				e.status, e.answer, e.answered = tee.status, tee.body.Bytes(), tee.began
			}
		}()
		if fault := l.fault.Load(); fault != nil {
			(*fault)(tee, r, next)
		} else {
			next.ServeHTTP(tee, r)
		}
		whole = true
	})
}

// tee keeps a copy of an answer.
type tee struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
	began  time.Time
}

func (t *tee) begin() {
	if t.began.IsZero() {
		t.began = time.Now()
	}
}

// WriteHeader implements http.ResponseWriter.
func (t *tee) WriteHeader(status int) {
	t.begin()
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *tee) Write(p []byte) (int, error) {
	t.begin()
	t.body.Write(p)
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// to returns the exchanges with an endpoint so far, those that last among them.
func (l *link) to(endpoint string) (found []exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.exchanges {
		if e.endpoint == endpoint {
			found = append(found, *e)
		}
	}
	return found
}

// pulls returns how many questions for the desired state were answered.
func (l *link) pulls() int {
	return len(slices.DeleteFunc(l.to("desired-state"), func(e exchange) bool { return e.status == 0 }))
}

// unavailable answers 503 in the place of one endpoint, of all for the empty one.
func unavailable(endpoint string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if endpoint != "" && endpointOf(r) != endpoint {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// repeated returns the answer to the repetition of the last request to an endpoint that got
// none.
func (l *link) repeated(endpoint string) (found exchange, ok bool) {
	list := l.to(endpoint)
	for i := range slices.Backward(list) {
		if list[i].status != 0 {
			continue
		}
		if list[i].ended.IsZero() {
			return found, false // it may be the one that gets none
		}
		for _, next := range list[i+1:] {
			if next.status != 0 && bytes.Equal(next.body, list[i].body) {
				return next, true
			}
		}
		return found, false
	}
	return found, false
}

// overlaps returns how many answered requests to an endpoint began before the one before had
// its answer.
func (l *link) overlaps(endpoint string) (n int) {
	var last time.Time
	for _, e := range l.to(endpoint) {
		if e.status == 0 {
			continue
		}
		if e.began.Before(last) {
			n++
		}
		last = e.answered
	}
	return n
}

// times describes the exchanges with an endpoint, for people.
func (l *link) times(endpoint string) string {
	var text strings.Builder
	for _, e := range l.to(endpoint) {
		text.WriteString(
			"\n" + e.began.Format("15:04:05.000") + " to " + e.ended.Format("15:04:05.000") + ": " + strconv.Itoa(e.status) + " " + string(e.answer),
		)
	}
	return text.String()
}
