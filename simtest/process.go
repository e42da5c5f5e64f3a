package simtest

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// touched is the annotation that another client changes.
const touched = "simtest/touched"

// patience is how long a program may take to end, in virtual time.
const patience = time.Minute

// process is one life of the program.
type process struct {
	world *World
	life  int
	net   *applytest.Transport
	next  http.RoundTripper
	stop  context.CancelFunc
	done  chan struct{}
}

// launch starts the program with no memory. It is started again when it ends,
// until the world is stopped.
func (w *World) launch(ctx context.Context) *process {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.life++
	p := &process{world: w, life: w.life, stop: cancel, done: make(chan struct{})}
	w.process = p
	w.mu.Unlock()
	p.net = &applytest.Transport{Fault: p.fault, OnCrash: cancel}
	p.next = p.net.Wrap(w.server)
	w.log("life %d: starts", p.life)
	go func() {
		defer cancel()
		err := w.scenario.Program(ctx, p)
		w.agenda.after(0, fmt.Sprintf("exit %d", p.life), func() { w.log("life %d: ends: %v", p.life, err) })
		close(p.done)
	}()
	return p
}

// operate keeps the program running until ctx ends. The returned function waits
// for its end.
func (w *World) operate(ctx context.Context) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			p := w.launch(ctx)
			<-p.done
			delay := w.dice("restart").IntN(20_000)
			again := make(chan struct{})
			i := w.agenda.after(time.Duration(1+delay)*time.Millisecond, "restart", func() { close(again) })
			select {
			case <-again:
			case <-ctx.Done():
				w.agenda.drop(i)
			}
		}
	}()
	return func() {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			w.blame("the program did not return within %v after its context had ended", patience)
		}
	}
}

// RoundTrip implements http.RoundTripper: the program's connection to the server.
// Requests take their turn one by one.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	w := p.world
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	request := applytest.ParseRequest(r)
	sum := fnv.New64a()
	_, _ = sum.Write(body) // a hash takes everything
	name := fmt.Sprintf("life %d: %s %x", p.life, request, sum.Sum64())
	turn := make(chan struct{})
	// Two steps: that a view waits decides when the latency is drawn.
	i := w.agenda.at(later(time.Now(), w.readable(p, r, request)), name, func() {
		w.agenda.after(w.latency(name), name, func() { close(turn) })
	})
	select {
	case <-turn:
	case <-r.Context().Done():
		w.agenda.drop(i)
		return nil, r.Context().Err()
	}
	w.mu.Lock()
	w.requests = append(w.requests, request.String())
	w.mu.Unlock()
	answer, err := p.next.RoundTrip(r)
	p.record(r, request, answer, err)
	if err == nil && request.Verb == "watch" && answer.StatusCode == http.StatusOK {
		answer.Body = &viewed{ReadCloser: answer.Body, end: func() { w.pathEnded(p, r, request) }}
	}
	return answer, err
}

func (w *World) latency(name string) time.Duration {
	dice := w.dice(name)
	if w.faulty() && dice.IntN(10) == 0 {
		return time.Duration(1+dice.IntN(3000)) * time.Millisecond
	}
	return time.Duration(1+dice.IntN(10_000)) * time.Microsecond
}

func (p *process) record(r *http.Request, request applytest.Request, answer *http.Response, err error) {
	w := p.world
	if err != nil {
		w.log("life %d: %s: %v", p.life, request, err)
	} else {
		w.log("life %d: %s: %d", p.life, request, answer.StatusCode)
	}
	refused := err == nil && answer.StatusCode >= http.StatusBadRequest
	if request.Writes() && !refused && request.Group != "coordination.k8s.io" {
		w.mu.Lock()
		w.writes = append(w.writes, request.String())
		w.mu.Unlock()
	}
	if reads(request) && (err != nil || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusUnprocessableEntity) {
		w.pathEnded(p, r, request)
	}
}

func reads(r applytest.Request) bool { return r.Verb == "list" || r.Verb == "watch" }

// viewPath names a view: the objects that one client lists and watches.
func (p *process) viewPath(r *http.Request, request applytest.Request) string {
	query := r.URL.Query()
	return fmt.Sprint(p.life, request.Resource, request.Group, request.Namespace, query.Get("labelSelector"), query.Get("fieldSelector"),
		strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"))
}

// readable is when the next list or watch of a view is answered. After an end or a
// failure it waits longer than the random delay of client-go's reflectors, which
// doubles from one failure to the next, so that this delay decides nothing.
func (w *World) readable(p *process, r *http.Request, request applytest.Request) time.Time {
	if !reads(request) {
		return time.Time{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	view := w.paths[p.viewPath(r, request)]
	if view == nil {
		return time.Time{}
	}
	return view.last.Add(time.Duration(1<<min(view.ends, 6)) * time.Second)
}

func (w *World) pathEnded(p *process, r *http.Request, request applytest.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := p.viewPath(r, request)
	view := w.paths[name]
	if view == nil {
		view = &path{}
		w.paths[name] = view
	}
	if time.Since(view.last) > 150*time.Second {
		view.ends = 0
	}
	view.ends++
	view.last = time.Now()
}

// viewed is the body of a watch, whose end is noticed.
type viewed struct {
	io.ReadCloser

	once sync.Once
	end  func()
}

// Read implements io.Reader.
func (v *viewed) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	if err != nil {
		v.once.Do(v.end)
	}
	return n, err
}

// Close implements io.Closer.
func (v *viewed) Close() error {
	v.once.Do(v.end)
	return v.ReadCloser.Close()
}

// fault decides what happens to a request whose turn has come.
func (p *process) fault(r applytest.Request) applytest.Fault {
	w := p.world
	w.mu.Lock()
	number, calm := len(w.requests), w.calm
	w.mu.Unlock()
	if cut := w.plan.cut; cut.Request == number && number > 0 {
		w.mu.Lock()
		w.reached = r.String()
		w.mu.Unlock()
		return p.disturb(cut.What, r)
	}
	if calm {
		return applytest.Fault{}
	}
	dice := w.dice(fmt.Sprintf("life %d: fault %s", p.life, r))
	switch chance := dice.Float64(); {
	case chance < w.deathRate && len(w.deaths) > 0:
		return p.disturb(w.deaths[dice.IntN(len(w.deaths))], r)
	case chance > 1-w.faultRate && len(w.faults) > 0:
		return p.disturb(w.faults[dice.IntN(len(w.faults))], r)
	}
	return applytest.Fault{}
}

func (p *process) disturb(what applytest.Disturbance, r applytest.Request) applytest.Fault {
	w := p.world
	w.log("life %d: %s %s", p.life, what, r)
	switch what {
	case Touch:
		w.touch(r)
		return applytest.Fault{}
	case applytest.ExpireWatches:
		w.server.expire()
		return applytest.Fault{}
	default:
		return p.net.Disturb(what)
	}
}

// touch has another client change the object that a request is about to change.
func (w *World) touch(r applytest.Request) {
	if !r.Writes() || r.Name == "" {
		return
	}
	k := key{r.Group, r.Resource, r.Namespace, r.Name}
	number := w.served()
	// There may be no such object any more.
	_ = w.update("another client", k, func(o Object) { o.Set(fmt.Sprint(number), "metadata", "annotations", touched) })
}
