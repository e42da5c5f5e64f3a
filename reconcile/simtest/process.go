package simtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

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
func (w *World) launch(ctx context.Context, program func(context.Context, http.RoundTripper) error) *process {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.life++
	p := &process{world: w, life: w.life, stop: cancel, done: make(chan struct{})}
	w.mu.Unlock()
	p.net = &applytest.Transport{Fault: p.fault, OnCrash: cancel}
	p.next = p.net.Wrap(w.server)
	w.Log("life %d: starts", p.life)
	if p.life > 1 {
		w.Disturb(time.Now())
	}
	go func() {
		defer cancel()
		err := contained(func() error { return program(ctx, p) })
		if panicked, ok := errors.AsType[*panicError](err); ok {
			w.Blame("the program panics: %v\n%s", panicked.value, panicked.stack)
		} else if ctx.Err() == nil {
			w.mu.Lock()
			w.ended, w.ending = w.ended+1, err
			w.mu.Unlock()
		}
		w.agenda.after(0, fmt.Sprintf("exit %d", p.life), func() { w.Log("life %d: ends: %v", p.life, err) })
		close(p.done)
	}()
	return p
}

// panicError is a panic of the program.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprint("panic: ", e.value) }

// contained calls a function. Its panic is the error.
func contained(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return call()
}

// beside runs a program beside the first for a while, at most until that is stopped, unless
// another one still does.
func (w *World) beside(what string, program func(context.Context, http.RoundTripper) error) {
	w.mu.Lock()
	alone, ctx := !w.two, w.running
	w.two = true
	w.mu.Unlock()
	if !alone {
		return
	}
	w.Log("%s starts", what)
	w.replicas.Go(func() {
		p := w.launch(ctx, program)
		length := time.Duration(1 + w.dice("replica").Int64N(int64(2*time.Minute)))
		i := w.agenda.after(length, fmt.Sprintf("replica %d", p.life), p.stop)
		<-p.done
		w.agenda.drop(i)
		w.Disturb(time.Now())
		w.mu.Lock()
		w.two = false
		w.mu.Unlock()
	})
}

// operate keeps the program running until ctx ends. The returned function waits
// for its end.
func (w *World) operate(ctx context.Context) (wait func()) {
	ended := make(chan struct{})
	w.mu.Lock()
	w.running = ctx
	w.mu.Unlock()
	go func() {
		defer close(ended)
		defer w.replicas.Wait()
		for ctx.Err() == nil {
			p := w.launch(ctx, w.scenario.Program)
			w.mu.Lock()
			w.process = p
			w.mu.Unlock()
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
			w.Blame("the program did not return within %v after its context had ended", patience)
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
	if request.Group != "coordination.k8s.io" { // the identity of a holder is often drawn
		_, _ = sum.Write(body) // a hash takes everything
	}
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
	w.mu.Lock()
	before, owners := w.changes, w.moves
	w.halved, w.disturbed = false, false
	w.mu.Unlock()
	answer, err := p.next.RoundTrip(r)
	w.mu.Lock()
	changed, moved, halved := w.changes > before, w.moves > owners, w.halved
	if err == nil && request.Writes() && answer.StatusCode >= http.StatusBadRequest && !w.disturbed {
		w.refused++
	}
	w.mu.Unlock()
	p.record(request, answer, err, changed, moved)
	if reads(request) && (err != nil || halved || !served(answer)) {
		w.pathEnded(p, r, request)
	}
	if err == nil && request.Verb == "watch" && answer.StatusCode == http.StatusOK {
		answer.Body = &viewed{ReadCloser: answer.Body, end: func() { w.pathEnded(p, r, request) }}
	}
	return answer, err
}

func (w *World) latency(name string) time.Duration {
	dice := w.dice(name)
	if w.Lasts(SlowDown) {
		slow := time.Duration(1+dice.IntN(20_000)) * time.Millisecond
		w.Disturb(time.Now().Add(slow))
		return slow
	}
	if w.faulty() && !w.scenario.Prompt && dice.IntN(10) == 0 && (w.plan.story == nil || !w.plan.story.prompt) {
		slow := time.Duration(1+dice.IntN(3000)) * time.Millisecond
		w.hold(time.Now().Add(slow))
		return slow
	}
	return time.Duration(1+dice.IntN(10_000)) * time.Microsecond
}

// What a trace says of a write that was accepted and changed no value.
const (
	changedNothing = " (it changed nothing)"
	changedOwners  = " (it changed the managers of fields alone)"
)

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
	at := view.last.Add(time.Duration(1<<min(view.ends, 6)) * time.Second)
	w.hold(at)
	return at
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
	calm, here := w.calm, w.plan.cuts(r.String(), w.requests)
	w.mu.Unlock()
	if cut := w.plan.cut; here {
		w.Disturb(time.Now())
		w.mu.Lock()
		w.reached = r.String()
		w.mu.Unlock()
		return p.disturb(cut.What, r)
	}
	if calm {
		return applytest.Fault{}
	}
	f, ok := w.suffers(r)
	if ok {
		w.met(r)
		w.Disturb(time.Now())
	} else if what := w.happens(r, func() applytest.Disturbance { return p.draw(r) }); what != "" {
		f = p.disturb(what, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed = f.Status >= http.StatusBadRequest && !f.LoseAnswer
	return f
}

// met counts the requests that look alike.
func (w *World) met(r applytest.Request) happening {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[r.String()]++
	return happening{request: r.String(), nth: w.asked[r.String()]}
}

// happens returns what happens at a request: nothing, or what the story has, or, in a history
// without one, what is drawn.
func (w *World) happens(r applytest.Request, draw func() applytest.Disturbance) applytest.Disturbance {
	h := w.met(r)
	if told := w.plan.story; told == nil {
		h.what = draw()
	} else if i := slices.IndexFunc(told.happenings, h.sameRequest); i >= 0 {
		h.what = told.happenings[i].what
	}
	if h.what != "" {
		w.Disturb(time.Now())
		w.mu.Lock()
		w.happened = append(w.happened, h)
		w.mu.Unlock()
	}
	return h.what
}

// draw returns what the seed has happen at a request.
func (p *process) draw(r applytest.Request) applytest.Disturbance {
	w := p.world
	dice := w.dice(fmt.Sprintf("life %d: fault %s", p.life, r))
	switch chance := dice.Float64(); {
	case chance < w.deathRate && len(w.deaths) > 0:
		return w.deaths[dice.IntN(len(w.deaths))]
	case chance > 1-w.faultRate && len(w.faults) > 0:
		return w.faults[dice.IntN(len(w.faults))]
	case chance > 0.4 && chance < 0.4+w.longRate && len(w.long) > 0:
		return w.long[dice.IntN(len(w.long))]
	case chance > 0.45 && chance < 0.45+w.refusalRate:
		return w.refusal(dice, r)
	}
	return ""
}

func (p *process) disturb(what applytest.Disturbance, r applytest.Request) applytest.Fault {
	w := p.world
	w.Log("life %d: %s %s", p.life, what, r)
	if what == applytest.ExpireWatches {
		w.server.expire()
		return applytest.Fault{}
	}
	if what == CutAnswer {
		w.mu.Lock()
		w.halved = true
		w.mu.Unlock()
	}
	if h := w.habits[what]; h.Act != nil || h.answers != nil || h.Spell > 0 {
		return w.begin(h, r)
	}
	return p.net.Disturb(what)
}
