package agent_test

import (
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// tick is the longest time to the next pass, and through it.
const tick = 36*time.Second + 2*time.Second

// TestBoundsInASimulatedWorld is D2 and D3 in histories in which no request fails: what the user wants,
// and what people change, is right at the next tick.
func TestBoundsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		p.undisturbed, s.Prompt = true, true
		s.Disturbances, s.Edits, s.Settle, s.Rest, s.Histories = []applytest.Disturbance{}, 24, 5*time.Minute, time.Minute, 3
	}))
}

// TestTimesInASimulatedWorld has the bounds of the contract that are of one event.
func TestTimesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		start, path := s.Start, func(n int) string { return servicePathOf(1, n, productionOf) }
		put := func(n int, image string) {
			p.plane.Put(path(n), map[string]any{"service_name": "web", "image": image, "replicas": 1})
			p.note()
		}
		s.Start = func(w *simtest.World) {
			start(w)
			p.putProject(1)
			for n := range 8 {
				put(n, "example.com/web:1")
			}
		}
		right := func(w *simtest.World) bool { return objects().Unlike(w, p.wanted()) == nil }
		deployments := func(n int) func(*simtest.World) bool {
			return func(w *simtest.World) bool { return len(w.Objects("deployments.apps")) == n }
		}
		byHand := func(w *simtest.World) {
			all := w.Objects("deployments.apps")
			must(w.As("person").Delete("deployments.apps", all[0].Namespace(), all[0].Name()))
			must(w.As("person").Update("deployments.apps", all[1].Namespace(), all[1].Name(), controlplanetest.OtherImage))
			must(w.As("person").Update("deployments.apps", all[2].Namespace(), all[2].Name(), controlplanetest.Unlabel("starform.io/managed-by")))
		}
		// The control plane sees that a row was removed by hand when it numbers another change.
		vanish := func(n int) {
			p.plane.Vanish(path(n), "DELETE FROM services WHERE service_id = '"+uuid(10+n)+"'")
			put(0, "example.com/web:3")
		}
		s.Edit = func(w *simtest.World) {
			w.Within(time.Minute, "all is made", func(w *simtest.World) bool { return right(w) && deployments(8)(w) })
			w.After(3*time.Minute, func() {
				byHand(w)
				w.Within(tick, "what people change is right", right)
			})
			w.After(5*time.Minute, func() {
				put(0, "example.com/web:2")
				w.Within(tick, "a service is changed", right)
				// A pass finds how the pods are, and ten seconds later the control plane knows.
				w.Within(2*tick+10*time.Second, "it is reported", func(w *simtest.World) bool { return p.reported(w) == nil })
			})
			w.After(7*time.Minute, func() {
				p.plane.Remove(path(1))
				p.note()
				w.Within(tick, "a service is removed", deployments(7))
			})
			w.After(9*time.Minute, func() {
				until := time.Now().Add(10 * time.Minute)
				p.plane.Lose = func(string) bool { return time.Now().Before(until) }
				w.After(4*time.Minute, func() {
					byHand(w)
					w.Within(tick, "it is right while the control plane is away", right)
				})
			})
			w.After(22*time.Minute, func() {
				vanish(2)
				w.Within(tick, "one body lacks a service", deployments(7))
				w.Within(time.Minute+2*tick, "a second body lacks it, a minute later", deployments(6))
			})
		}
		s.Edits, s.Settle, s.Rest, s.Histories, s.Disturbances = 1, 27*time.Minute, time.Minute, 2, []applytest.Disturbance{}
	}))
}
