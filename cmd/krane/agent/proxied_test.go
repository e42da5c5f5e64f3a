package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/test/proxytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAnOutageThroughAProxyLosesNothing has something else answer for the control plane, ten minutes each: first
// to all requests, then to the unary ones. Nothing comes of its answers, and afterwards nothing is missing.
func TestAnOutageThroughAProxyLosesNothing(t *testing.T) {
	t.Parallel()
	var answer proxytest.Answer
	worlds := simulated(t, func(p *simulatedRegion, s *simtest.Scenario) { behindAProxy(answer, p, s) })
	for _, answer = range proxytest.Answers() {
		if r := simtest.Simulate(t, worlds, 1); len(r.Wrong) > 0 {
			t.Errorf("%s: %s", answer.Name, strings.Join(r.Wrong, "\n"))
		}
	}
}

func behindAProxy(answer proxytest.Answer, p *simulatedRegion, s *simtest.Scenario) {
	const outage, bound = 10 * time.Minute, time.Minute
	proxy := &proxytest.Proxy{Home: "control.example.com"}
	p.before = proxy.Before
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		p.plane.Put(p.sentinel(0, "example.com/guard:1", 1))
		p.plane.Put(p.policy(0, 1))
		p.plane.Put(p.deployment(0, "example.com/web:1", "running", nil))
		p.plane.Put(p.deployment(2, "example.com/web:1", "running", nil))
		p.note()
	}
	away := false
	check := s.Check
	s.Check = func(w *simtest.World, c simtest.Change) error {
		if away && c.By == "program" && (c.Request.Verb == "delete" || c.Before == nil) {
			return fmt.Errorf("%s: nothing says that it is to be so", c.Request)
		}
		return check(w, c)
	}
	s.Edits, s.Pause, s.Settle, s.Rest = 1, time.Second, 30*time.Minute, time.Minute
	s.Disturbances, s.Prompt = []applytest.Disturbance{}, true
	s.Edit = func(w *simtest.World) {
		blame := func(when string, err error) {
			if err != nil {
				w.Blame("%s: %v", when, err)
			}
		}
		// others end a pod, which has to be reported.
		endPods := func() {
			for _, o := range w.Objects("pods") {
				must(w.As("person").Delete("pods", o.Namespace(), o.Name()))
			}
		}
		w.After(time.Minute, func() {
			blame("at first", errors.Join(objects().Unlike(w, p.wanted(w)), p.reported(w)))
			away = true
			p.log.Reset()
			proxy.Put(&answer, nil)
			p.plane.Restart() // its open streams end
		})
		// Not at once: what the control plane is asked just before may be answered a moment later.
		w.After(time.Minute+time.Minute/2, func() {
			p.plane.Put(p.deployment(1, "example.com/web:2", "running", nil))
			p.plane.Put(p.deployment(2, "example.com/web:1", "stopped", nil))
			p.plane.Remove(resourcePath("policies", "p-0"))
			p.note()
			endPods()
		})
		w.After(time.Minute+outage, func() {
			for _, each := range []string{
				"replicasets.apps shop-0 web-0", "replicasets.apps shop-0 web-2", "ciliumnetworkpolicies.cilium.io shop-0 rule-0",
			} {
				at := strings.Fields(each)
				if w.Object(at[0], at[1], at[2]) == nil {
					w.Blame("%s went in the outage", each)
				}
			}
			blame("the outage", p.saidOnce(answer))
			blame("tries", tried(proxy.Answered(), outage))
			away = false
			proxy.Put(nil, nil)
		})
		w.After(time.Minute+outage+bound, func() {
			blame("a minute after the outage", errors.Join(objects().Unlike(w, p.wanted(w)), p.reported(w)))
			for _, each := range []string{"replicasets.apps shop-0 web-2", "ciliumnetworkpolicies.cilium.io shop-0 rule-0"} {
				at := strings.Fields(each)
				if w.Object(at[0], at[1], at[2]) != nil {
					w.Blame("%s is left", each)
				}
			}
		})
		// By then what failed in the first outage is forgotten, or was answered.
		const second = time.Minute + outage + 4*time.Minute
		w.After(second, func() {
			p.log.Reset()
			proxy.Put(&answer, func(r *http.Request) bool { return !strings.HasPrefix(path.Base(r.URL.Path), "Watch") })
			p.plane.Put(p.deployment(1, "example.com/web:2", "stopped", nil))
			p.note()
			endPods()
		})
		w.After(second+bound, func() {
			blame("while reports fail", objects().Unlike(w, p.wanted(w)))
			if w.Object("replicasets.apps", "shop-1", "web-1") != nil {
				w.Blame("what is stopped is left while reports fail")
			}
		})
		w.After(second+outage, func() {
			blame("the second outage", p.saidOnce(answer))
			proxy.Put(nil, nil)
		})
		w.After(second+outage+bound, func() {
			blame("a minute after the second outage", p.reported(w))
			if to := proxy.Strangers(); len(to) > 0 {
				w.Blame("requests with the token went to %v", to)
			}
		})
	}
}

// saidOnce returns an error unless the log has one line that the contact is lost, which names the endpoint and
// says what is wrong with its answers.
func (p *simulatedRegion) saidOnce(answer proxytest.Answer) error {
	var lines []string
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "no contact") || !strings.Contains(lines[0], "https://control.example.com") ||
		!strings.Contains(lines[0], answer.Says) {
		return fmt.Errorf("the log has %d lines: %q", len(lines), lines)
	}
	return nil
}

// tried returns an error unless each call was made so often in an outage that it backs off, and does not give up.
func tried(answered map[string]int, outage time.Duration) error {
	var errs []error
	for _, call := range []string{"WatchDeployments", "WatchSentinels", "WatchCiliumNetworkPolicies", "Heartbeat"} {
		if n := answered[call]; n < int(outage/time.Minute) || n > int(outage/(5*time.Second)) {
			errs = append(errs, fmt.Errorf("%s: %d times", call, n))
		}
	}
	return errors.Join(errs...)
}
