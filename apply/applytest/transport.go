package applytest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing/iotest"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// ErrCrashed is the error of every request after a crash.
var ErrCrashed = errors.New("applytest: the program has crashed")

// ErrLost is the error of a request that was lost, or whose answer was lost.
var ErrLost = errors.New("applytest: connection lost")

// Transport sits between a client and an API server. The zero value passes and records
// every request.
type Transport struct {
	// Fault, if set, returns what happens to each request. It may be
	// called from several goroutines at once, and must not be set while requests
	// are under way.
	Fault func(Request) Fault
	// OnCrash is called, if set, when a fault has crashed the program, whether or not
	// the request was sent. It should end the program's context.
	OnCrash func()

	mu       sync.Mutex
	requests []*Request
	writes   int
	crashed  bool // no request is sent
	over     bool // and the last one has ended
	watches  map[*stream]struct{}
	frozen   bool
	expired  int // watches opened before this generation get 410 on their next start
}

// Fault is what happens to a request. The zero value is no fault.
type Fault struct {
	// Delay holds the request back, at most until its context ends.
	Delay time.Duration
	// Status answers in the server's place, with a metav1.Status of that code and
	// Message. 429 and 503 carry RetryAfter, in whole seconds. Page answers with that
	// HTML in place of the metav1.Status, as a proxy does.
	Status        int
	RetryAfter    time.Duration
	Message, Page string
	// Lose fails the request without sending it; LoseAnswer sends it and fails it
	// nevertheless, or answers with Status; CutAnswer sends it and ends the answer in
	// the middle.
	Lose, LoseAnswer, CutAnswer bool
	// Crash lets nothing through from now on, this request included; with
	// LoseAnswer this one is sent before.
	Crash bool
}

// Wrap puts the Transport before another one. It is made for rest.Config.Wrap.
func (t *Transport) Wrap(next http.RoundTripper) http.RoundTripper {
	return &wrapped{t, next}
}

type wrapped struct {
	transport *Transport
	next      http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w *wrapped) RoundTrip(r *http.Request) (*http.Response, error) {
	request, number, err := w.transport.begin(r)
	if err != nil {
		return nil, err
	}
	var fault Fault
	if w.transport.Fault != nil {
		fault = w.transport.Fault(request)
	}
	if err := delay(r, fault.Delay); err != nil {
		return nil, err
	}
	if fault.Crash {
		w.transport.crash()
		defer w.transport.dead()
	}
	switch {
	case fault.Lose, fault.Crash && !fault.LoseAnswer:
		return nil, w.transport.lost(r)
	case fault.Status != 0 && !fault.LoseAnswer:
		drain(r.Body)
		w.transport.answered(number, fault.Status)
		return stand(r, fault), nil
	}
	if w.transport.stale(request) {
		return stand(r, Fault{Status: http.StatusGone}), nil
	}
	answer, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if fault.LoseAnswer {
		w.transport.answered(number, answer.StatusCode)
		if request.Verb != "watch" {
			_, err = io.Copy(io.Discard, answer.Body) // the answer's end: it is carried out
		}
		if fault.Status != 0 {
			return stand(r, fault), errors.Join(err, answer.Body.Close())
		}
		return nil, errors.Join(w.transport.lost(r), err, answer.Body.Close())
	}
	w.transport.answered(number, answer.StatusCode)
	if fault.CutAnswer && request.Verb != "watch" {
		return cut(answer)
	}
	if request.Verb == "watch" && answer.StatusCode == http.StatusOK {
		answer.Body = w.transport.follow(answer)
	}
	return answer, nil
}

// begin counts a request.
func (t *Transport) begin(r *http.Request) (Request, *Request, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.crashed {
		drain(r.Body)
		return Request{}, nil, ErrCrashed
	}
	request := ParseRequest(r)
	request.Number = len(t.requests) + 1
	if request.Writes() {
		t.writes++
		request.WriteNumber = t.writes
	}
	kept := request
	t.requests = append(t.requests, &kept)
	return request, &kept, nil
}

func (t *Transport) answered(r *Request, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Status = status
}

// Crash lets nothing through from now on, as a Fault with Crash does, and calls OnCrash.
func (t *Transport) Crash() {
	t.crash()
	t.dead()
}

func (t *Transport) crash() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.crashed = true
	for s := range t.watches {
		s.cut()
	}
}

// dead follows crash when the last request is over, which may still be carried out.
func (t *Transport) dead() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	if t.OnCrash != nil {
		t.OnCrash()
	}
}

func (t *Transport) lost(r *http.Request) error {
	drain(r.Body)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.crashed {
		return ErrCrashed
	}
	return ErrLost
}

// Crashed reports whether a fault has crashed the program. One that loses an answer
// has done so once the server has carried the request out: a test that ends the program
// then does not call the request back.
func (t *Transport) Crashed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// Requests returns the requests since the start or the last Reset, in order, with the
// answers so far.
func (t *Transport) Requests() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Request, len(t.requests))
	for i, r := range t.requests {
		all[i] = *r
	}
	return all
}

// Writes returns the requests that write.
func (t *Transport) Writes() []Request {
	return slices.DeleteFunc(t.Requests(), func(r Request) bool { return !r.Writes() })
}

// Count returns how many requests had the verb.
func (t *Transport) Count(verb string) int {
	n := 0
	for _, r := range t.Requests() {
		if r.Verb == verb {
			n++
		}
	}
	return n
}

// Reset forgets the requests so far, and counts from 1 again.
func (t *Transport) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.writes = nil, 0
}

// Reporter is the part of testing.TB that the assertions need.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// NoWrites fails the test for each write since the start or the last Reset.
func (t *Transport) NoWrites(r Reporter) {
	r.Helper()
	for _, w := range t.Writes() {
		r.Errorf("a write where none was due: %s", w)
	}
}

// NoRequests fails the test for each request since the start or the last Reset,
// but for lists and watches, by which a program keeps its view up to date.
func (t *Transport) NoRequests(r Reporter) {
	r.Helper()
	for _, request := range t.Requests() {
		if request.Verb != "list" && request.Verb != "watch" {
			r.Errorf("a request where none was due: %s", request)
		}
	}
}

// delay waits for d, at most until the request's context ends.
func delay(r *http.Request, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if !pause.For(r.Context(), d) {
		drain(r.Body)
		return r.Context().Err()
	}
	return nil
}

// drain closes the body of a request that is not sent, as a RoundTripper must.
func drain(body io.Closer) {
	if body != nil {
		_ = body.Close() // of a request that is not sent
	}
}

// cut leaves half of an answer.
func cut(answer *http.Response) (*http.Response, error) {
	data, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	half := bytes.NewReader(data[:len(data)/2])
	answer.Body = io.NopCloser(io.MultiReader(half, iotest.ErrReader(io.ErrUnexpectedEOF)))
	return answer, nil
}

// stand answers in the server's place.

func stand(r *http.Request, fault Fault) *http.Response {
	reason := map[int]string{
		http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "ServiceUnavailable",
		http.StatusInternalServerError: "InternalError", http.StatusConflict: "Conflict", http.StatusGone: "Expired",
		http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized", http.StatusNotFound: "NotFound",
		http.StatusGatewayTimeout: "Timeout", http.StatusUnprocessableEntity: "Invalid",
	}[fault.Status]
	body, err := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.Status, "reason": reason,
		"message": cmp.Or(fault.Message, fmt.Sprintf("applytest: answered %d in the server's place", fault.Status)),
	})
	if err != nil {
		body = nil // of strings and a number: it cannot fail
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if fault.Page != "" {
		body, header = []byte(fault.Page), http.Header{"Content-Type": {"text/html"}}
	}
	if fault.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(fault.RetryAfter.Seconds())))
	}
	return &http.Response{
		Status: http.StatusText(fault.Status), StatusCode: fault.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}
