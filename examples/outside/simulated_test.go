package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

const (
	failCalls   applytest.Disturbance = "the service of names fails"
	loseAnswers applytest.Disturbance = "an answer of the service of names is lost"
	byHand      applytest.Disturbance = "a person changes a record"
)

// theirs is a record of others, with a name that Sites want as well.
var theirs = record{Target: "192.0.2.1", Comment: "made by hand"}

// world is a simulated service of names beside the simulated API server.
type world struct {
	names names
	alone bool     // whether there are no children
	early []string // the records that went while a ConfigMap still named them
}

// transport is the way of the program to the service.
func (s *world) transport(net http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		var answer *http.Response
		err := simtest.Call(r.Context(), net, r.Method+" "+r.URL.Path, func(w *simtest.World) error {
			dice := w.Dice(r.Method + " " + r.URL.Path)
			happens := func(habit applytest.Disturbance, oneIn int) bool {
				return dice.IntN(oneIn) == 0 && w.Has(habit) && w.Faulty()
			}
			if happens(byHand, 20) {
				w.Disturb(time.Now())
				for name, r := range s.names.all() {
					if r != theirs {
						s.names.set(name, nil)
						break
					}
				}
			}
			if happens(failCalls, 8) {
				w.Disturb(time.Now())
				return errors.New("503 Service Unavailable")
			}
			if name := strings.TrimPrefix(r.URL.Path, "/records/"); r.Method == http.MethodDelete {
				for _, config := range w.AllStored("configmaps") {
					if config.Field("data", "host") == name {
						s.early = append(s.early, name)
					}
				}
			}
			recorder := httptest.NewRecorder()
			s.names.ServeHTTP(recorder, r)
			if happens(loseAnswers, 8) {
				w.Disturb(time.Now())
				return errors.New("EOF")
			}
			answer = recorder.Result()
			return nil
		})
		if err != nil {
			return nil, err
		}
		return answer, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func simulated() simtest.Scenario { return scenario(func(*operator.Operator[*Site]) {}) }

// alone is the operator without children.
func alone() simtest.Scenario {
	return scenario(func(o *operator.Operator[*Site]) { o.Owns, o.Children = nil, nil })
}

func scenario(change func(*operator.Operator[*Site])) simtest.Scenario {
	s := &world{}
	s.names.set("h2", &theirs)
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Group: domain, Version: "v1", Resource: "sites", Kind: "Site", Status: true},
			{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
			{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event"},
		},
		Machinery: &upstream.Machinery{Scheme: scheme.Scheme},
		Program: func(ctx context.Context, net http.RoundTripper) error {
			z := &zone{url: "http://names", client: &http.Client{Transport: s.transport(net)}}
			o := newOperator(z, "simulated", slog.New(slog.DiscardHandler))
			change(o)
			s.alone = o.Children == nil
			return run(ctx, o, &rest.Config{Host: "http://simtest", Transport: net})
		},
		Habits: []simtest.Habit{
			{Name: failCalls, Does: "A call fails, and is not carried out.", Source: "a full pool of connections", Always: true},
			{Name: loseAnswers, Does: "A call is carried out, and fails.", Source: "a proxy that restarts", Always: true},
			{Name: byHand, Does: "A person deletes a record.", Source: "an administrator", Always: true},
		},
		// Of a Site that a backup has taken away nothing is known any more: its record stays, and is named
		// by the next Site that wants it.
		Without: []applytest.Disturbance{simtest.RestoreStore},
		Edits:   8,
		Edit: func(w *simtest.World) {
			name := fmt.Sprint("s", w.Random.IntN(2))
			spec := map[string]any{"target": fmt.Sprint("192.0.2.", 10+w.Random.IntN(2))}
			if n := w.Random.IntN(4); n < 3 {
				spec["host"] = fmt.Sprint("h", n)
			}
			switch live := w.Stored("sites."+domain, "shop", name); {
			case w.Random.IntN(5) == 0:
				_ = w.Delete("sites."+domain, "shop", name) // it may not exist
			case live == nil:
				_ = w.Create(simtest.Object{ // its name may still be going
					"apiVersion": domain + "/v1", "kind": "Site", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
				})
			default:
				_ = w.Update("sites."+domain, "shop", name, func(o simtest.Object) { o["spec"] = spec }) // it exists
			}
		},
		Check: func(w *simtest.World, c simtest.Change) error {
			if s.names.all()["h2"] != theirs {
				return errors.New("the record of others was touched")
			}
			if len(s.early) > 0 {
				return fmt.Errorf("%v: deleted while a ConfigMap names it", s.early)
			}
			return nil
		},
		Converged: func(w *simtest.World) (err error) {
			wanted := map[string]bool{"h2": true}
			for _, site := range w.AllStored("sites." + domain) {
				err = errors.Join(err, s.converged(w, site, wanted))
			}
			for name, r := range s.names.all() {
				if !wanted[name] {
					err = errors.Join(err, fmt.Errorf("record %s is left: %v", name, r))
				}
			}
			return err
		},
		Bounds:   []simtest.Bound{{What: "a ConfigMap shows a record that was made", Within: 10 * time.Second, Late: s.unshown}},
		Recovery: 10 * time.Minute, // a record is looked at every five
		// Of two Sites with one host, the first has it, and with another history the other.
		State:  func(*simtest.World) string { return "" },
		Settle: 15 * time.Minute, Refreshes: 1, // each object is applied again once a day
	}
}

// unshown returns the Sites whose record is there, and whose ConfigMap does not say so.
func (s *world) unshown(w *simtest.World) (names []string) {
	for _, site := range w.AllStored("sites." + domain) {
		host, _ := site.Field("spec", "host").(string)
		config := w.Stored("configmaps", "shop", site.Name())
		ours := host != "" && strings.Contains(s.names.all()[host].Comment, " uid="+site.UID())
		if ours && !s.alone && !site.Deleting() && (config == nil || config.Field("data", "host") != host) {
			names = append(names, site.Name())
		}
	}
	return names
}

// converged reports what a Site lacks.
func (s *world) converged(w *simtest.World, site simtest.Object, wanted map[string]bool) error {
	host, _ := site.Field("spec", "host").(string)
	have, reason := s.names.all()[host], reasonOf(site)
	for name, r := range s.names.all() { // until it has another, it keeps the one of before
		wanted[name] = wanted[name] || host != "" && strings.Contains(r.Comment, " uid="+site.UID())
	}
	ours := strings.Contains(have.Comment, " uid="+site.UID())
	config := w.Stored("configmaps", "shop", site.Name())
	if (config == nil) != s.alone {
		return fmt.Errorf("%s has the ConfigMap %v", site.Name(), config)
	}
	shown, _ := config.Field("data", "host").(string)
	if s.alone && ours {
		shown = host
	}
	switch {
	case host == "" && (reason != "Ready" || shown != ""):
		return fmt.Errorf("%s without a host is %s, and shows %q", site.Name(), reason, shown)
	case host == "":
		return nil
	case !ours && (reason != "NotOurs" || shown != "" && shown != host): // a person deleted it, and another was faster
		return fmt.Errorf("%s has not got %s, is %s, and shows %q", site.Name(), host, reason, shown)
	case !ours:
		return nil
	}
	for name, r := range s.names.all() {
		if name != host && strings.Contains(r.Comment, " uid="+site.UID()) {
			return fmt.Errorf("%s has also %s", site.Name(), name)
		}
	}
	things, _ := site.Field("status", "outside").([]any)
	if len(things) != 1 || things[0].(map[string]any)["made"] != true {
		return fmt.Errorf("%s records %v", site.Name(), things)
	}
	if have.Target != site.Field("spec", "target") || reason != "Ready" || shown != host {
		return fmt.Errorf("%s has %v at %s, is %s, and shows %q", site.Name(), have, host, reason, shown)
	}
	return nil
}

func reasonOf(site simtest.Object) string {
	conditions, _ := site.Field("status", "conditions").([]any)
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Ready" {
			return fmt.Sprint(c["reason"])
		}
	}
	return ""
}

func TestSitesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	histories := uint64(40)
	if testing.Short() {
		histories = 6
	}
	for seed := range histories {
		for _, world := range []func() simtest.Scenario{simulated, alone} {
			r := simtest.Simulate(t, world, seed+1)
			require.Empty(t, r.Wrong, "seed %d", seed+1)
		}
	}
}

// TestTheOperatorMayBeKilledAnywhere kills it before and after each request, and each call of the service.
func TestTheOperatorMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, simulated, 1)
	c.Check(t, 97)
}
