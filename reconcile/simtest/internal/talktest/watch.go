package talktest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"
)

// watch is one of both servers.
type watch struct {
	request Request
	kind    *kind
	labels  string // of an object that it selects
	bodies  [2]*http.Response
	lines   [2]*bufio.Scanner
	until   int
	cancel  context.CancelFunc
}

func (w *watch) close() {
	w.cancel()
	for _, body := range w.bodies {
		_ = body.Body.Close() // nothing was written
	}
}

// begin opens a watch.
func (c *Conversation) begin(ctx context.Context, r Request, k *kind, labels string) (difference string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	w := &watch{request: r, kind: k, labels: labels, until: c.step + 1 + c.random.IntN(40), cancel: cancel}
	for i := range w.bodies {
		if w.bodies[i], err = c.open(ctx, i, r); err != nil { //nolint:bodyclose // by close
			cancel()
			return "", fmt.Errorf("step %d: %s: %w", c.step, r, err)
		}
		w.lines[i] = bufio.NewScanner(w.bodies[i].Body)
		w.lines[i].Buffer(nil, 1<<20)
	}
	c.watches = append(c.watches, w)
	if a, b := w.bodies[0].StatusCode, w.bodies[1].StatusCode; a != b {
		return fmt.Sprintf("seed %d, step %d: %s\n     real: %d\nsimulated: %d", c.Seed, c.step, r, a, b), nil
	}
	return "", nil
}

// end creates an object that the watch selects, and compares all events up to it.
func (c *Conversation) end(ctx context.Context, w *watch) (difference string, err error) {
	last := fmt.Sprintf("last-%d", c.step)
	path := w.kind.path(c.Namespace)
	r := Request{Method: http.MethodPost, Path: path, Form: "application/json", Body: w.kind.body(last, w.labels)}
	if difference, err = c.ask(ctx, r); difference != "" || err != nil {
		return difference, err
	}
	var events [2][]string
	for i := range w.lines {
		if events[i], err = c.read(i, w, last); err != nil {
			return "", fmt.Errorf("seed %d, step %d: %s: %w: %v and %v", c.Seed, c.step, w.request, err, events[0], events[1])
		}
	}
	if !reflect.DeepEqual(events[0], events[1]) {
		at := 0
		for at < min(len(events[0]), len(events[1])) && events[0][at] == events[1][at] {
			at++
		}
		return fmt.Sprintf(
			"seed %d, step %d: %s: event %d\n     real: %v\nsimulated: %v",
			c.Seed,
			c.step,
			w.request,
			at,
			events[0][at:],
			events[1][at:],
		), nil
	}
	return c.ask(ctx, Request{Method: http.MethodDelete, Path: path + "/" + last + "?propagationPolicy=Background"})
}

func (c *Conversation) read(i int, w *watch, last string) ([]string, error) {
	timer := time.AfterFunc(20*time.Second, w.cancel)
	defer timer.Stop()
	var events []string
	for w.lines[i].Scan() {
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := json.Unmarshal(w.lines[i].Bytes(), &e); err != nil {
			return events, err
		}
		if !c.mine(e.Object) {
			continue
		}
		data, err := json.Marshal(c.normal(i, Request{}, e.Object))
		if err != nil {
			return events, err
		}
		events = append(events, e.Type+" "+string(data))
		if field(e.Object, "metadata", "name") == last {
			return events, nil
		}
	}
	return events, fmt.Errorf("the watch ended: %w", w.lines[i].Err())
}
