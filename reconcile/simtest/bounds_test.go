package simtest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// copied is the bound of a copier, which looks every ten seconds: each Widget has its copy.
func copied(within time.Duration) simtest.Bound {
	return simtest.Bound{What: "each Widget has a copy", Within: within, Late: func(w *simtest.World) (late []string) {
		for _, each := range w.Objects("widgets.example.com") {
			if w.Object("configmaps", "shop", each.Name()) == nil {
				late = append(late, each.Name())
			}
		}
		return late
	}}
}

// TestABoundIsKeptOrNot: a program that looks every ten seconds keeps a bound of eleven, and not
// always one of eight.
func TestABoundIsKeptOrNot(t *testing.T) {
	t.Parallel()
	wrong := func(within time.Duration) (all []string) {
		for seed := range uint64(5) {
			s := copier{}.scenario()
			s.Rest, s.Disturbances, s.Bounds = time.Hour, []applytest.Disturbance{}, []simtest.Bound{copied(within)}
			all = append(all, simtest.Simulate(t, always(s), seed+1).Wrong...)
		}
		return all
	}
	require.Empty(t, wrong(11*time.Second))
	broken := wrong(8 * time.Second)
	require.NotEmpty(t, broken)
	require.Regexp(t, `^each Widget has a copy: \w+: not within 8s$`, broken[0])
}

// TestDisturbancesTakeTheirTimeOutOfABound: with all habits, a bound holds again once a program may
// have tried again. One that does not try again breaks it, long before the end.
func TestDisturbancesTakeTheirTimeOutOfABound(t *testing.T) {
	t.Parallel()
	histories := func(c copier, recovery time.Duration) (all []string) {
		for seed := range uint64(20) {
			s := c.scenario()
			s.Settle, s.Rest, s.Bounds, s.Recovery = 10*time.Minute, time.Hour, []simtest.Bound{copied(11 * time.Second)}, recovery
			s.Converged = nil
			all = append(all, simtest.Simulate(t, always(s), seed+1).Wrong...)
		}
		return all
	}
	require.Empty(t, histories(copier{}, 40*time.Second))
	require.NotEmpty(t, histories(copier{}, time.Nanosecond), "requests that fail take no time out")
	require.Contains(t, histories(copier{forgets: true}, 40*time.Second), "each Widget has a copy: w0: not within 11s")
}

// TestWithinIsOfAnEvent: what is to hold some time after an event is looked at then, and not once
// the program has ended.
func TestWithinIsOfAnEvent(t *testing.T) {
	t.Parallel()
	wrong := func(within time.Duration) []string {
		return simtest.Simulate(t, func() simtest.Scenario {
			s := short(copier{})
			s.Disturbances = []applytest.Disturbance{}
			s.Start = func(w *simtest.World) {
				w.After(15*time.Second, func() {
					makeWidget(w, "later")
					w.Within(within, "it is copied", func(w *simtest.World) bool { return w.Object("configmaps", "shop", "later") != nil })
				})
				w.Within(1000*time.Hour, "time ends", func(*simtest.World) bool { return false })
			}
			return s
		}, 1).Wrong
	}
	require.Empty(t, wrong(11*time.Second))
	require.Equal(t, []string{"it is copied: not within 2s"}, wrong(2*time.Second))
}

// TestAServiceOfAScenarioDisturbs: what the scenario says takes its time out, too.
func TestAServiceOfAScenarioDisturbs(t *testing.T) {
	t.Parallel()
	wrong := func(disturbs bool) []string {
		return simtest.Simulate(t, func() simtest.Scenario {
			s := short(copier{})
			until := time.Now().Add(30 * time.Second) // of its world
			s.Disturbances, s.Recovery, s.Bounds = []applytest.Disturbance{}, time.Second, []simtest.Bound{copied(11 * time.Second)}
			s.Program = func(ctx context.Context, net http.RoundTripper) error {
				time.Sleep(time.Until(until))
				return copier{}.run(ctx, net)
			}
			if disturbs {
				s.Actors = []func(*simtest.World, simtest.Change){func(w *simtest.World, _ simtest.Change) { w.Disturb(until) }}
			}
			return s
		}, 1).Wrong
	}
	require.Empty(t, wrong(true))
	require.NotEmpty(t, wrong(false))
}

// TestAKillAtACallDisturbs: the time until the program is started again is not the program's.
func TestAKillAtACallDisturbs(t *testing.T) {
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := short(copier{})
		s.Recovery, s.Bounds = time.Minute, []simtest.Bound{copied(11 * time.Second)}
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			for pause.For(ctx, 10*time.Second) {
				if simtest.Call(ctx, net, "look", func(*simtest.World) error { return nil }) == nil {
					_ = copier{}.look(ctx, net) // it looks again
				}
			}
			return nil
		}
		return s
	}, 1)
	c.Check(t, 100)
}
