package statesynctest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// door stands before a Handler. It records what is asked for, and answers some requests
// itself, or changes the answer.
type door struct {
	mu      sync.Mutex
	handler http.Handler
	down    bool
	// plan has what to do with the next requests, one each; those beyond it are served.
	plan     []act
	requests []url.Values
	arrived  chan struct{}
	// mark is the mark of the newest frame that was sent, and marks has it as it was when
	// each request came.
	mark  string
	marks []string
}

// act answers one request; inner is the handler.
type act func(w http.ResponseWriter, r *http.Request, inner http.Handler)

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	if d.down {
		d.mu.Unlock()
		abort()
	}
	var do act
	if len(d.plan) > 0 {
		do, d.plan = d.plan[0], d.plan[1:]
	}
	d.requests, d.marks = append(d.requests, r.URL.Query()), append(d.marks, d.mark)
	close(d.arrived)
	d.arrived = make(chan struct{})
	inner := d.handler
	d.mu.Unlock()
	if do == nil {
		do = bends(func(_ map[string]any, line []byte) []byte { return line })
	}
	do(&bent{w, d.sends}, r, inner)
}

// sends records the mark of a line that is sent.
func (d *door) sends(line []byte) ([]byte, bool) {
	var frame statesync.Frame
	if json.Unmarshal(line, &frame) == nil && frame.Mark != (statesync.Mark{}) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mark = frame.Mark.String()
	}
	return line, false
}

// abort gives the connection up, as http.ErrAbortHandler does.
func abort() { panic(http.ErrAbortHandler) } //nolint:forbidigo // net/http has no other way

// next plans what to do with the next requests.
func (d *door) next(acts ...act) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = append(d.plan, acts...)
}

func (d *door) set(down bool, handler http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.handler = down, handler
}

func (d *door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.requests)
}

// request returns the parameters of the n-th request, from 1, and the newest mark that was
// sent before it. It is false before the request comes: more is closed once another has come.
func (d *door) request(n int) (query url.Values, mark string, more <-chan struct{}, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.requests) < n {
		return nil, "", d.arrived, false
	}
	return d.requests[n-1], d.marks[n-1], nil, true
}

// says answers with a body.
func says(status int, contentType, body string) act {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // a reader that has gone is no matter
	}
}

const page = "<!doctype html><title>Sign in</title>\n<form action=/login></form>\n"

func fails(status int, code, reason string) act {
	body := fmt.Sprintf(`{"error":{"code":%q,"message":"a fault of the test","reason":%q}}`, code, reason)
	return says(status, "application/json", body+"\n")
}

// bends serves a stream with other lines: bend returns what is sent for one, nil for
// nothing.
func bends(bend func(frame map[string]any, line []byte) []byte) act {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
		inner.ServeHTTP(&bent{w, func(line []byte) ([]byte, bool) {
			frame := map[string]any{}
			if json.Unmarshal(line, &frame) != nil {
				return line, false
			}
			return bend(frame, line), false
		}}, r)
	}
}

// cuts serves a stream until, and with a half of, the first frame for which at is true.
func cuts(at func(frame map[string]any) bool) act {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
		inner.ServeHTTP(&bent{w, func(line []byte) ([]byte, bool) {
			frame := map[string]any{}
			if json.Unmarshal(line, &frame) == nil && at(frame) {
				return line[:len(line)/2], true
			}
			return line, false
		}}, r)
	}
}

// bent is a writer of other lines. A Handler writes each line of a stream in one call.
type bent struct {
	http.ResponseWriter
	bend func(line []byte) (sent []byte, cut bool)
}

// Unwrap is for http.ResponseController.
func (b *bent) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *bent) Write(line []byte) (int, error) {
	sent, cut := b.bend(line)
	if len(sent) > 0 {
		if _, err := b.ResponseWriter.Write(sent); err != nil {
			return 0, err
		}
	}
	if cut {
		_ = http.NewResponseController(b.ResponseWriter).Flush() // the connection is given up in any case
		abort()
	}
	return len(line), nil
}

// encoded is a frame as a line.
func encoded(frame map[string]any) []byte {
	line, err := json.Marshal(frame)
	if err != nil {
		return nil
	}
	return append(line, '\n')
}
