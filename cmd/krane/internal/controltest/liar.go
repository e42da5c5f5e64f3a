// Package controltest is what a right control plane never says: a transport before a real one
// that refuses calls, and changes the messages of streams.
package controltest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// Faults are what is wrong with the answers. The zero value is nothing.
type Faults struct {
	// Refuse are errors for calls and new streams.
	Refuse []Refusal
	// Lie, if set, changes what streams bring.
	Lie Lie
	// Plain asks for streams without markers, as a control plane that knows none sends them.
	Plain bool
}

// Refusal answers the methods that begin so with an error, whose detail has the reason unless that is empty.
type Refusal struct {
	Methods string
	Code    connect.Code
	Reason  string
}

// Lie returns what is sent in place of a message of a stream that has brought so many orders, or io.EOF to end the
// stream without an error. It may wait.
type Lie func(m ctrlv1.Message, orders int) ([]ctrlv1.Message, error)

// Liar has the faults, and counts. The zero value has none. Its methods may be called at any time.
type Liar struct {
	mu      sync.Mutex
	faults  Faults
	open    map[*body]bool
	counts  map[string]int
	reports []proto.Message
	beat    *ctrlv1.HeartbeatRequest
}

// Set changes the faults, of open streams too.
func (l *Liar) Set(f Faults) { l.do(func() { l.faults = f }) }

// Cut ends the open streams: with an error of that code, or without an error for 0.
func (l *Liar) Cut(code connect.Code) {
	var open map[*body]bool
	l.do(func() { open = maps.Clone(l.open) })
	for b := range open {
		b.cut(code)
	}
}

// Calls counts the calls and streams of a method, Lists the streams that have asked for everything,
// and Sent the orders on streams.
func (l *Liar) Calls(method string) int { return l.count("calls " + method) }

// Lists is described at Calls.
func (l *Liar) Lists(method string) int { return l.count("lists " + method) }

// Sent is described at Calls.
func (l *Liar) Sent(method string) int { return l.count("sent " + method) }

func (l *Liar) count(what string) (n int) {
	l.do(func() { n = l.counts[what] })
	return n
}

// Reports returns the reports that the control plane has accepted, and Beat the last heartbeat.
func (l *Liar) Reports() (all []proto.Message) {
	l.do(func() { all = slices.Clone(l.reports) })
	return all
}

// Beat is described at Reports.
func (l *Liar) Beat() (last *ctrlv1.HeartbeatRequest) {
	l.do(func() { last = l.beat })
	return last
}

func (l *Liar) do(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts, l.open = map[string]int{}, map[*body]bool{}
	}
	what()
}

// Before returns a transport before the one to a control plane.
func (l *Liar) Before(next http.RoundTripper) http.RoundTripper { return transport{l, next} }

type transport struct {
	liar *Liar
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	method := path.Base(r.URL.Path)
	collection, streams := map[string]string{
		"WatchDeployments": ctrlv1.Deployments, "WatchSentinels": ctrlv1.Sentinels, "WatchCiliumNetworkPolicies": ctrlv1.Policies,
	}[method]
	var f Faults
	t.liar.do(func() {
		f = t.liar.faults
		t.liar.counts["calls "+method]++
	})
	for _, each := range f.Refuse {
		if strings.HasPrefix(method, each.Methods) {
			return each.answer(r, streams), nil
		}
	}
	r = r.Clone(r.Context())
	for _, each := range []string{"Accept-Encoding", "Connect-Accept-Encoding"} {
		r.Header.Del(each) // a compressed message could not be changed
	}
	if streams {
		content = t.liar.asked(method, content, f.Plain)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	answer, err := t.next.RoundTrip(r)
	switch {
	case err != nil || answer.StatusCode != http.StatusOK:
	case streams:
		b := &body{ReadCloser: answer.Body, liar: t.liar, method: method, collection: collection}
		answer.Body = b
		t.liar.do(func() { t.liar.open[b] = true })
	default:
		t.liar.heard(method, content)
	}
	return answer, err
}

// heard keeps a report or a heartbeat.
func (l *Liar) heard(method string, content []byte) {
	m := map[string]proto.Message{
		"ReportDeploymentStatus": &ctrlv1.ReportDeploymentStatusRequest{}, "ReportSentinelStatus": &ctrlv1.ReportSentinelStatusRequest{},
		"Heartbeat": &ctrlv1.HeartbeatRequest{},
	}[method]
	if m == nil || proto.Unmarshal(content, m) != nil {
		return
	}
	l.do(func() {
		if beat, is := m.(*ctrlv1.HeartbeatRequest); is {
			l.beat = beat
			return
		}
		l.reports = append(l.reports, m)
	})
}

// asked counts the request of a stream, and returns the one that is sent. The three kinds have the same fields.
func (l *Liar) asked(method string, content []byte, plain bool) []byte {
	var request ctrlv1.WatchSentinelsRequest
	if len(content) < envelope || proto.Unmarshal(content[envelope:], &request) != nil {
		return content
	}
	if request.GetVersionLastSeen() == 0 {
		l.do(func() { l.counts["lists "+method]++ })
	}
	if !plain {
		return content
	}
	message, _ := proto.Marshal(&ctrlv1.WatchSentinelsRequest{VersionLastSeen: request.GetVersionLastSeen()}) // it is valid
	return enveloped(0, message)
}

// text is the error as the protocol has it.
func (f Refusal) text() string {
	details := ""
	if f.Reason != "" {
		detail, _ := proto.Marshal(&ctrlv1.ErrorDetail{Reason: f.Reason}) // it is valid
		details = fmt.Sprintf(`,"details":[{"type":"ctrl.v1.ErrorDetail","value":%q}]`, base64.RawStdEncoding.EncodeToString(detail))
	}
	return fmt.Sprintf(`{"code":%q,"message":"refused"%s}`, f.Code, details)
}

func (f Refusal) answer(r *http.Request, streams bool) *http.Response {
	a := &http.Response{
		StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(f.text())), ContentLength: -1, Request: r, ProtoMajor: 2,
	}
	if streams {
		a.StatusCode, a.Header = http.StatusOK, http.Header{"Content-Type": {r.Header.Get("Content-Type")}}
		a.Body = io.NopCloser(bytes.NewReader(end(f.Code, f.text())))
	}
	return a
}
