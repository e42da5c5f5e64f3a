package agent_test

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// ticking is what happens in a world whose agent is not woken by drift.
type ticking struct {
	mu      sync.Mutex
	passes  map[string][]reconcile.Pass // by the name of the loop
	posts   map[string][]time.Time      // when they were sent, by the end of the path
	slow    map[string]time.Duration    // requests, by the end of the path or the method
	removed map[string]time.Time        // by hand, and not back
	repairs [][2]time.Time              // removed and back
	flying  map[string]int              // slow requests in flight
	twice   map[string]bool             // slow requests that were in flight twice at a time
}

// through delays the requests that are slow.
func (k *ticking) through(next http.RoundTripper) http.RoundTripper {
	return httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		k.mu.Lock()
		wait := max(k.slow[path.Base(r.URL.Path)], k.slow[r.Method])
		if name := path.Base(r.URL.Path); r.Method == http.MethodPost {
			k.posts[name] = append(k.posts[name], time.Now())
		}
		k.mu.Unlock()
		if wait == 0 {
			return next.RoundTrip(r)
		}
		request := r.Method + " " + r.URL.Path
		k.fly(request, 1)
		defer k.fly(request, -1)
		if !pause.For(r.Context(), wait) {
			return nil, r.Context().Err()
		}
		return next.RoundTrip(r)
	})
}

// fly counts the requests that are on their way.
func (k *ticking) fly(request string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flying[request] += n; k.flying[request] > 1 {
		k.twice[request] = true
	}
}

func (k *ticking) slowDown(what string, by time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = map[string]time.Duration{what: by}
}

func (k *ticking) see(p reconcile.Pass) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passes[p.Name] = append(k.passes[p.Name], p)
}

// note takes in that a ConfigMap was removed by hand, or is back.
func (k *ticking) note(c simtest.Change) {
	switch {
	case c.By == "person" && c.After == nil:
		k.removed[controlplanetest.Key(c.Before)] = time.Now()
	case c.By == "program" && c.Before == nil:
		key := controlplanetest.Key(c.After)
		if at, was := k.removed[key]; was {
			k.repairs = append(k.repairs, [2]time.Time{at, time.Now()})
			delete(k.removed, key)
		}
	}
}

// TestTheTickerInASimulatedWorld is STARFORM_WAKE_ON_DRIFT=false and C19: passes begin at the interval
// of their loop, or with an answer of Starbase, and at nothing else. For the first ten minutes all is
// well; then Starbase is away, then each write to Kubernetes takes longer than an interval, too; then
// the desired state comes slowly, and then snapshots are taken slowly.
func TestTheTickerInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		k := &ticking{
			passes: map[string][]reconcile.Pass{}, posts: map[string][]time.Time{}, removed: map[string]time.Time{},
			flying: map[string]int{}, twice: map[string]bool{},
		}
		p.transport = "poll"
		var began time.Time
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			p.plane.Open() //nolint:contextcheck // the control plane has a context of its own
			p.note()       //nolint:contextcheck // the control plane has a context of its own
			env := p.environment(p.transport)
			config, err := shuttle.ReadConfig(func(name string) string {
				if name == "STARFORM_WAKE_ON_DRIFT" {
					return "false"
				}
				return env(name)
			})
			if err != nil {
				return err
			}
			a := &shuttle.Agent{
				Config: config, Kubernetes: &rest.Config{Host: "http://simtest", Transport: k.through(net)},
				Starbase: k.through(p.plane.Link(net)), Logger: slog.New(slog.DiscardHandler),
			}
			work, err := a.Observed(k.see)
			if err != nil {
				return err
			}
			return work.Start(ctx)
		}
		start, check := s.Start, s.Check
		s.Start = func(w *simtest.World) {
			start(w)
			began = time.Now()
			p.putProject(1)
			for n := range 8 {
				p.plane.Put(servicePathOf(1, n, productionOf), map[string]any{"service_name": "web", "image": "example.com/web:1", "replicas": 1})
			}
			p.note()
		}
		s.Check = func(w *simtest.World, c simtest.Change) error {
			k.note(c)
			return check(w, c)
		}
		s.Edit = func(w *simtest.World) {
			// At odd times, and each object seldom: a fight is repaired later.
			var all []simtest.Object
			w.After(2*time.Minute, func() {
				all = slices.DeleteFunc(w.Objects("configmaps"), func(o simtest.Object) bool { return !ownObject(o) })
			})
			for n := range 36 {
				w.After(3*time.Minute+time.Duration(n)*47*time.Second, func() {
					o := all[n%len(all)]
					must(w.As("person").Delete("configmaps", o.Namespace(), o.Name()))
				})
			}
			for _, each := range []struct {
				from, to time.Duration
				what     string
				by       time.Duration
			}{
				{23 * time.Minute, 31 * time.Minute, http.MethodPatch, 50 * time.Second},
				{33 * time.Minute, 43 * time.Minute, "desired-state", 25 * time.Second},
				{43 * time.Minute, 53 * time.Minute, "snapshots", 25 * time.Second},
			} {
				w.After(each.from, func() { k.slowDown(each.what, each.by) })
				w.After(each.to, func() { k.slowDown("", 0) })
			}
			p.plane.Lose = func(string) bool {
				since := time.Since(began)
				return since > 13*time.Minute && since < 32*time.Minute
			}
			w.After(54*time.Minute, func() { k.judge(w, began) })
		}
		s.Prompt, s.Bounds = true, nil
		s.Edits, s.Settle, s.Rest, s.Histories, s.Disturbances = 1, 55*time.Minute, time.Minute, 1, []applytest.Disturbance{}
	}))
}

// judge looks at the passes of all the time.
func (k *ticking) judge(w *simtest.World, began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := func(t time.Time) time.Duration { return t.Sub(began) }
	shares, longer := []float64{}, 0
	for name, interval := range map[string]time.Duration{"pull": 30 * time.Second, "converge": 30 * time.Second, "capacity": time.Minute} {
		all := k.passes[name]
		for i := range all[:len(all)-1] {
			this, next := all[i], all[i+1]
			gap := next.Start.Sub(this.Start)
			switch {
			case gap < this.Duration:
				w.Blame("%s: pass %d overlaps the one at %v", name, next.Number, at(this.Start))
			case this.Duration > interval*12/10:
				if longer++; gap > this.Duration+time.Second {
					w.Blame("%s: pass %d begins %v after one that was longer than the interval", name, next.Number, gap-this.Duration)
				}
			case next.Reason != reconcile.Ticked || gap == this.Duration:
			case gap < interval*8/10 || gap > interval*12/10:
				w.Blame("%s: a tick at %v comes after %v", name, at(next.Start), gap)
			default:
				shares = append(shares, gap.Seconds()/interval.Seconds())
			}
		}
	}
	lowest, highest := shares[0], shares[0]
	for _, share := range shares {
		lowest, highest = min(lowest, share), max(highest, share)
	}
	if len(shares) < 100 || lowest > 0.85 || highest < 1.15 {
		w.Blame("%d intervals are from %.2f to %.2f, want them from 0.8 to 1.2 of the setting", len(shares), lowest, highest)
	}
	for request := range k.twice {
		w.Blame("two passes send %s at a time", request)
	}
	if longer < 3 {
		w.Blame("only %d passes were longer than the interval", longer)
	}
	k.judgeRepairs(w, at)
	k.judgeSnapshots(w, began)
	k.judgeReports(w, began)
}

// judgeRepairs has each repair be of the first pass that begins after the change, which no change causes.
func (k *ticking) judgeRepairs(w *simtest.World, at func(time.Time) time.Duration) {
	if len(k.repairs) < 25 {
		w.Blame("only %d repairs", len(k.repairs))
	}
	late := 0
	for _, r := range k.repairs {
		if r[1].Sub(r[0]) > time.Second {
			late++
		}
		next := r[0].Add(100 * time.Millisecond) // events take a while
		for _, pass := range k.passes["converge"] {
			if end := pass.Start.Add(pass.Duration); !end.Before(r[1]) || !pass.Start.Before(next) {
				if pass.Start.After(r[1]) || end.Before(r[1]) {
					w.Blame("removed at %v, back at %v: the next pass is from %v to %v", at(r[0]), at(r[1]), at(pass.Start), at(end))
				}
				break
			}
		}
	}
	if late < len(k.repairs)*8/10 {
		w.Blame("%d of %d changes were put right within a second", len(k.repairs)-late, len(k.repairs))
	}
	for _, pass := range k.passes["converge"] {
		if pass.Reason == reconcile.Triggered && at(pass.Start) > time.Minute && !k.during("pull", pass.Start) && !k.afterLonger(pass) {
			w.Blame("a pass at %v is triggered by no answer of Starbase", at(pass.Start))
		}
	}
}

// during reports whether a pass of a loop lasts at a time.
func (k *ticking) during(name string, at time.Time) bool {
	for _, pass := range k.passes[name] {
		if !at.Before(pass.Start) && !at.After(pass.Start.Add(pass.Duration)) {
			return true
		}
	}
	return false
}

// afterLonger reports whether a pass of the converger waited for the one before.
func (k *ticking) afterLonger(p reconcile.Pass) bool {
	before := k.passes["converge"][p.Number-2]
	return p.Start.Equal(before.Start.Add(before.Duration))
}

// judgeSnapshots has them sent in the first third of each minute, and the desired state asked for as
// often as ever, whichever of the two is slow.
func (k *ticking) judgeSnapshots(w *simtest.World, began time.Time) {
	for minute := 34; minute < 53; minute++ {
		boundary := began.Add(time.Duration(minute) * time.Minute).Truncate(time.Minute)
		sent := 0
		for _, post := range k.posts["snapshots"] {
			if !post.Before(boundary) && post.Before(boundary.Add(21*time.Second)) {
				sent++
			}
		}
		if sent == 0 {
			w.Blame("no snapshot is sent in the first 21 seconds of minute %d", minute)
		}
	}
	for i, pass := range k.passes["pull"] {
		if since := pass.Start.Sub(began); i > 0 && since > 34*time.Minute && pass.Start.Sub(k.passes["pull"][i-1].Start) > 36*time.Second {
			w.Blame("the desired state is asked for at %v, and not in the 36 seconds before", since)
		}
	}
}

// judgeReports has the status be reported every five minutes, though nothing of it changes.
func (k *ticking) judgeReports(w *simtest.World, began time.Time) {
	const most = 5 * time.Minute
	all := k.posts["status"]
	for i := range all[:len(all)-1] {
		if since := all[i].Sub(began); since > 34*time.Minute && all[i+1].Sub(all[i]) > most {
			w.Blame("after the report at %v the next one comes after %v", since, all[i+1].Sub(all[i]))
		}
	}
	if last := all[len(all)-1].Sub(began); last < 48*time.Minute {
		w.Blame("the last report is sent at %v", last)
	}
}
