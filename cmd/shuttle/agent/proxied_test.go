package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/test/proxytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAnOutageThroughAProxyLosesNothing has something else answer for Starbase, ten minutes each: first to
// all requests, then to reports. Nothing comes of its answers, and afterwards nothing is missing.
func TestAnOutageThroughAProxyLosesNothing(t *testing.T) {
	t.Parallel()
	var answer proxytest.Answer
	var transport string
	worlds := simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		p.transport = transport
		behindAProxy(answer, p, s)
	})
	for turn, source := range []string{"poll", "stream"} {
		transport = source
		for n, each := range proxytest.Answers() {
			if answer = each; testing.Short() && n%2 != turn { // one transport for each answer
				continue
			}
			if r := simtest.Simulate(t, worlds, 1); len(r.Wrong) > 0 {
				t.Errorf("%s, %s: %s", transport, answer.Name, strings.Join(r.Wrong, "\n"))
			}
		}
	}
}

func behindAProxy(answer proxytest.Answer, p *starbaseWorld, s *simtest.Scenario) {
	const outage, bound = 10 * time.Minute, time.Minute
	p.proxy = &proxytest.Proxy{Home: "starbase.example.com"}
	first, second := servicePathOf(1, 0, productionOf), servicePathOf(1, 1, stagingOf)
	image := func(n int) { p.putWeb(first, n) }
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		p.putProject(1)
		p.putWeb(first, 1)
		p.putWeb(second, 1)
		entry := map[string]any{"key": "TOKEN", "value": "secret", "secret": true}
		p.plane.Put(groupPath(1), map[string]any{"name": "group", "entries": []any{entry}})
		p.plane.Put(second+"/var-groups", map[string]any{"var_groups": []string{uuid(101)}})
		p.note()
	}
	away := false
	check := s.Check
	s.Check = func(w *simtest.World, c simtest.Change) error {
		if away && c.By == "program" && c.Request.Verb == "delete" {
			return fmt.Errorf("%s: nothing says that it is to go", c.Request)
		}
		return check(w, c)
	}
	s.Edits, s.Pause, s.Settle, s.Rest = 1, time.Second, 27*time.Minute, time.Minute
	s.Disturbances, s.Bounds, s.Prompt = []applytest.Disturbance{}, nil, true
	s.Edit = func(w *simtest.World) {
		blame := func(when string, err error) {
			if err != nil {
				w.Blame("%s: %v", when, err)
			}
		}
		at := func(when time.Duration, do func()) { w.After(when, do) }
		at(time.Minute, func() {
			blame("at first", errors.Join(objects().Unlike(w, p.stated()), p.reported(w)))
			away = true
			p.log.Reset()
			p.proxy.Put(&answer, nil)
			p.plane.Cut()
		})
		// Not at once: what the control plane is asked just before may be answered a moment later.
		at(time.Minute+time.Minute/2, func() {
			image(2)
			p.plane.Remove(second)
			p.note()
			for _, o := range w.Objects("configmaps") {
				if ownObject(o) {
					must(w.As("person").Delete("configmaps", o.Namespace(), o.Name()))
				}
			}
		})
		at(time.Minute+outage, func() {
			for _, o := range w.Objects("deployments.apps") {
				containers, _ := o.Field("spec", "template", "spec", "containers").([]any)
				if !strings.Contains(fmt.Sprint(containers), "example.com/web:1") {
					w.Blame("in the outage %s has %v", o.Name(), containers)
				}
			}
			if n := len(w.Objects("deployments.apps")); n != 2 {
				w.Blame("%d Deployments in the outage", n)
			}
			if n := len(w.Objects("configmaps")); n < 2 {
				w.Blame("what a person deletes in the outage is not made again")
			}
			blame("the pull", p.saidOnce(answer, "pull", "/desired-state"))
			blame("tries", tried(answer, p.proxy.Answered()["desired-state"], outage))
			away = false
			p.proxy.Put(nil, nil)
		})
		at(time.Minute+outage+bound, func() {
			blame("a minute after the outage", errors.Join(objects().Unlike(w, p.stated()), p.reported(w)))
			p.log.Reset()
			p.proxy.Put(&answer, func(r *http.Request) bool { return r.Method == http.MethodPost })
			image(3)
		})
		at(time.Minute+outage+2*bound, func() { blame("while reports fail", objects().Unlike(w, p.stated())) })
		at(time.Minute+2*outage+bound, func() {
			if p.reported(w) == nil {
				w.Blame("what was not reported is known")
			}
			blame("the reports", p.saidOnce(answer, "status", "/status"))
			blame("tries", tried(answer, p.proxy.Answered()["status"], outage))
			p.proxy.Put(nil, nil)
		})
		at(time.Minute+2*outage+2*bound, func() {
			blame("a minute after the second outage", p.reported(w))
			if to := p.proxy.Strangers(); len(to) > 0 {
				w.Blame("requests with the token went to %v", to)
			}
		})
	}
}

// saidOnce returns an error unless the log has one line that a loop has failed, which names the endpoint and
// says what is wrong with its answers.
func (p *starbaseWorld) saidOnce(answer proxytest.Answer, loop, endpoint string) error {
	var lines []string
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "pass failed") && strings.Contains(line, "loop="+loop+" ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], endpoint) || !strings.Contains(lines[0], answer.Says) {
		return fmt.Errorf("the log has %d lines: %q", len(lines), lines)
	}
	return nil
}

// saysAgain reports whether the log says that a loop that has failed is well again.
func (p *starbaseWorld) saysAgain(loop string) bool {
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "pass done again") && strings.Contains(line, "loop="+loop+" ") {
			return true
		}
	}
	return false
}

// tried returns an error unless a call was made so often in an outage that it backs off, and does not give up.
func tried(answer proxytest.Answer, n int, outage time.Duration) error {
	least, most := int(outage/time.Minute), int(outage/(10*time.Second))
	if answer.Name == "502" {
		most *= 3 // attempts of a call
	}
	if n < least || n > most {
		return fmt.Errorf("%d, want %d to %d", n, least, most)
	}
	return nil
}
