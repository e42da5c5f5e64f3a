package ec2test

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// Proxy sits before a server of AWS and applies a test's faults to each request. Its
// methods are safe for concurrent use.
type Proxy struct {
	// URL is its endpoint.
	URL string

	target string
	server *http.Server
	served chan struct{}

	mu      sync.Mutex
	hook    func(Request) Fault
	allowed []string
	calls   map[string]int
}

// Request is one that a proxy has received.
type Request struct {
	// Action is the operation, such as RunInstances.
	Action string
	// Form has the parameters of the protocol, such as ClientToken and InstanceId.1. It
	// must not be changed.
	Form url.Values
	// Number counts the requests of the action, from 1. A client that tries again sends
	// another one.
	Number int
}

// Fault is what happens to a request. The zero value is none. A delay comes first; of
// the others the first that is set counts.
type Fault struct {
	// Delay is how long the request waits before anything happens to it.
	Delay time.Duration
	// DropRequest ends the connection. The server does not see the request.
	DropRequest bool
	// DropAnswer ends the connection after the server has carried out the request.
	DropAnswer bool
	// Code refuses the request with this error of AWS, such as RequestLimitExceeded or
	// InsufficientInstanceCapacity. The server does not see it.
	Code string
	// Status is the status of the answer. Zero: what AWS sends with Code. Without a
	// Code the answer has no error of AWS, as one of a broken gateway.
	Status int
	// Message of the error. Empty: one that says that it is a fault of the test.
	Message string
}

// StartProxy starts a proxy before a server, such as a [Server.URL]. It ends with the
// test.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		URL:    "http://" + listener.Addr().String(),
		target: strings.TrimRight(target, "/"),
		served: make(chan struct{}),
		calls:  map[string]int{},
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(p.served)
		p.server.Serve(listener) //nolint:errcheck // it ends by Close
	}()
	tb.Cleanup(p.Stop)
	return p
}

// Stop ends the proxy and its connections. Calling it again does nothing.
func (p *Proxy) Stop() {
	p.server.Close() //nolint:errcheck // nothing is kept
	<-p.served
}

// Inject replaces the hook that decides what happens to each request from now on. It
// may block. Nil: nothing happens.
func (p *Proxy) Inject(hook func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// Allow refuses all but these actions with UnauthorizedOperation from now on. Without any
// it allows all.
func (p *Proxy) Allow(actions ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = slices.Clone(actions)
}

// Calls returns how many requests of each action there were since the start, with those
// that were refused or dropped. The caller owns it.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		drop(w)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fault := p.fault(form)
	if fault.Delay > 0 && !pause.For(r.Context(), fault.Delay) {
		return
	}
	switch {
	case fault.DropRequest:
		drop(w)
	case fault.DropAnswer:
		p.forward(discard{http.Header{}}, r, body)
		drop(w)
	case fault.Code != "":
		refuse(w, fault)
	case fault.Status != 0:
		http.Error(w, fault.message(), fault.Status)
	default:
		p.forward(w, r, body)
	}
}

// fault counts a request and returns what happens to it.
func (p *Proxy) fault(form url.Values) Fault {
	request := Request{Action: form.Get("Action"), Form: form}
	p.mu.Lock()
	p.calls[request.Action]++
	request.Number = p.calls[request.Action]
	hook, refused := p.hook, len(p.allowed) > 0 && !slices.Contains(p.allowed, request.Action)
	p.mu.Unlock()
	if refused {
		return Fault{Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation: " + request.Action}
	}
	if hook == nil {
		return Fault{}
	}
	return hook(request)
}

// forward sends a request on. What the server was sent is done to its end, also when the
// client has disconnected.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, body []byte) {
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	answer, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	io.Copy(w, answer.Body) //nolint:errcheck // the client has gone
}

// drop ends the connection without an answer.
func drop(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client has gone
	}
	connection.Close() //nolint:errcheck // nothing was sent
}

func (f Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return "a fault that the test has asked for"
}

// refuse answers as EC2 does.
func refuse(w http.ResponseWriter, f Fault) {
	type failure struct{ Code, Message string }
	text, err := xml.Marshal(struct {
		XMLName   xml.Name  `xml:"Response"`
		Errors    []failure `xml:"Errors>Error"`
		RequestID string    `xml:"RequestID"`
	}{Errors: []failure{{f.Code, f.message()}}, RequestID: "00000000-0000-0000-0000-000000000000"})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(f.status())
	w.Write(append([]byte(xml.Header), text...)) //nolint:errcheck // the client has gone
}

// status returns the HTTP status of an error of AWS.
func (f Fault) status() int {
	switch {
	case f.Status != 0:
		return f.Status
	case f.Code == "UnauthorizedOperation" || f.Code == "AuthFailure":
		return http.StatusForbidden
	case f.Code == "RequestLimitExceeded" || f.Code == "Unavailable" || f.Code == "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case f.Code == "InternalError" || strings.HasPrefix(f.Code, "Insufficient"):
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

// discard takes an answer that no client receives.
type discard struct{ header http.Header }

func (d discard) Header() http.Header          { return d.header }
func (discard) Write(text []byte) (int, error) { return len(text), nil }
func (discard) WriteHeader(int)                {}
