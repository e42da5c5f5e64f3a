package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// within is one of the contract's bounds of time: once do was done at a time, what holds within
// that bound. The bound is 0 if do says it itself.
type within struct {
	at    time.Duration
	what  string
	do    func(*simtest.World)
	bound time.Duration
	holds func(*simtest.World) bool
}

// TestTimesInASimulatedWorld has the bounds of time that the contract states, without chance of a
// busy computer.
func TestTimesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *simulatedRegion, s *simtest.Scenario) {
		start := s.Start
		s.Start = func(w *simtest.World) {
			start(w)
			p.plane.Put(p.deployment(0, "example.com/web:1", "running", nil))
			for n := range 4 { // an empty list deletes nothing
				p.plane.Put(p.policy(n, 1))
			}
			p.note()
			for _, b := range p.bounds() {
				w.After(b.at, func() {
					w.Log("%s", b.what)
					b.do(w)
					p.note()
					if b.holds != nil {
						w.Within(b.bound, b.what, b.holds)
					}
				})
			}
		}
		s.Edit = func(*simtest.World) {}
		s.Edits, s.Settle, s.Rest, s.Histories = 1, 45*time.Minute, time.Minute, 2
		s.Disturbances = []applytest.Disturbance{}
	}))
}

// bounds are in the order of their times.
func (p *simulatedRegion) bounds() []within {
	made := func(name string) func(*simtest.World) bool {
		return func(w *simtest.World) bool {
			return slices.ContainsFunc(w.Objects("replicasets.apps"), func(o simtest.Object) bool { return o.Name() == name })
		}
	}
	put := func(n int) {
		p.plane.Put(p.deployment(n, "example.com/web:1", "running", nil))
		p.note()
	}
	image := func(w *simtest.World) string {
		containers, _ := w.Object("replicasets.apps", "shop-0", "web-0").Field("spec", "template", "spec", "containers").([]any)
		first, _ := containers[0].(map[string]any)
		image, _ := first["image"].(string)
		return image
	}
	return []within{
		{time.Minute, "a deployment is made", func(*simtest.World) { put(1) }, 5 * time.Second, made("web-1")},
		{2 * time.Minute, "a person changes an image", func(w *simtest.World) {
			must(w.As("person").Update("replicasets.apps", "shop-0", "web-0", func(o simtest.Object) {
				containers, _ := o.Field("spec", "template", "spec", "containers").([]any)
				containers[0].(map[string]any)["image"] = "example.com/rival" //nolint:forcetypeassert // a server takes no other
			}))
		}, 5 * time.Second, func(w *simtest.World) bool { return image(w) == "example.com/web:1" }},
		{4 * time.Minute, "a policy is removed", func(*simtest.World) {
			p.plane.Remove(resourcePath("policies", "p-0"))
		}, 5 * time.Second, func(w *simtest.World) bool {
			return w.Object("ciliumnetworkpolicies.cilium.io", "shop-0", "rule-0") == nil
		}},
		{5 * time.Minute, "a deployment is stopped", func(*simtest.World) {
			p.plane.Put(p.deployment(1, "example.com/web:1", "stopped", nil))
		}, time.Minute, func(w *simtest.World) bool {
			return !made("web-1")(w) && !strings.Contains(p.plane.Rows("SELECT deployment_id FROM instances"), "d-1")
		}},
		{7 * time.Minute, "the streams become silent", func(*simtest.World) {
			p.plane.Silence()
			put(2)
		}, 50 * time.Second, made("web-2")},
		{9 * time.Minute, "the token is another", func(w *simtest.World) {
			token, err := p.plane.Regions.Agents().Rotate(context.Background(), regionID, 0)
			must(err)
			put(3)
			// The agent has been refused for long by then, and tries seldom.
			w.After(110*time.Second, func() {
				p.plane.SetToken(token)
				w.Within(5*time.Second, "the token is read", made("web-3"))
			})
		}, 0, nil},
		{11 * time.Minute, "the control plane starts again", func(*simtest.World) {
			p.plane.Restart()
			put(4)
		}, time.Minute, made("web-4")},
		{13 * time.Minute, "what was stopped comes back with a backup", func(w *simtest.World) {
			p.plane.Put(p.deployment(2, "example.com/web:1", "stopped", nil))
			w.After(10*time.Second, func() {
				for !made("web-2")(w) { // the backup is up to a minute old
					restoreBackup(w)
				}
				w.Within(70*time.Second, "what was stopped comes back with a backup", func(w *simtest.World) bool { return !made("web-2")(w) })
			})
		}, 0, nil},
		{
			15 * time.Minute, "the row of a policy vanishes", func(*simtest.World) { p.vanish(1) }, 24 * time.Minute,
			func(w *simtest.World) bool {
				return w.Object("ciliumnetworkpolicies.cilium.io", "shop-1", "rule-1") == nil
			},
		},
	}
}

// TestADeletionIsReportedInTheEndInASimulatedWorld is C23 where no message has the deletion any
// more: the rows of a running and of a stopped deployment are removed by hand, and reports are
// lost until all pods have ended. The instances are gone within ten minutes of the first report
// that comes through.
func TestADeletionIsReportedInTheEndInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *simulatedRegion, s *simtest.Scenario) {
		start := s.Start
		s.Start = func(w *simtest.World) {
			start(w)
			for n := range 4 {
				p.plane.Put(p.deployment(n, "example.com/web:1", "running", nil))
			}
			p.note()
		}
		instances := func(id string) bool { return strings.Contains(p.plane.Rows("SELECT deployment_id FROM instances"), id) }
		s.Edit = func(w *simtest.World) {
			w.After(2*time.Minute, func() {
				until := time.Now().Add(40 * time.Minute)
				p.plane.Lose = func(method string) bool { return method == "ReportDeploymentStatus" && time.Now().Before(until) }
				p.plane.Put(p.deployment(2, "example.com/web:1", "stopped", nil))
				vanish := func(id string) {
					p.plane.Vanish(resourcePath("deployments", id), "DELETE FROM deployment_topology WHERE deployment_id = '"+id+"'")
					p.note()
				}
				vanish("d-1")
				w.After(time.Minute, func() { vanish("d-2") })
				w.Within(39*time.Minute, "they are recorded", func(*simtest.World) bool { return instances("d-1") && instances("d-2") })
				w.Within(50*time.Minute, "they are gone", func(*simtest.World) bool { return !instances("d-1") && !instances("d-2") })
			})
		}
		s.Edits, s.Pause, s.Settle, s.Rest, s.Histories = 1, time.Minute, time.Hour, time.Minute, 4
		s.Disturbances = []applytest.Disturbance{}
	}))
}

func restoreBackup(w *simtest.World) {
	for _, h := range simtest.Habits() {
		if h.Name == simtest.RestoreStore {
			h.Act(w, applytest.Request{})
		}
	}
}
