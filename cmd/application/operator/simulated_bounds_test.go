package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// bounds returns the bounds of time of C4 and C16.
func (p *platform) bounds() []simtest.Bound {
	late := func(is func(w *simtest.World, live map[string]app, a app) bool) func(*simtest.World) []string {
		return func(w *simtest.World) (names []string) {
			live := apps(w)
			for _, uid := range keysOf(live) {
				if a := live[uid]; !obstructed(a) && is(w, live, a) {
					names = append(names, a.Namespace()+"/"+a.Name()+" "+uid)
				}
			}
			return names
		}
	}
	return []simtest.Bound{
		{What: "what is in the cluster is as stated", Within: time.Minute, Late: late(func(w *simtest.World, live map[string]app, a app) bool {
			return p.complete(w, live, a) && p.children(w, a) != nil
		})},
		{What: "what is outside is as stated", Within: 10 * time.Minute, Late: late(func(w *simtest.World, live map[string]app, a app) bool {
			for name, wanted := range a.wants() {
				if _, err := p.has(w, live, a, name); wanted && err != nil {
					return true
				}
			}
			return false
		})},
		{What: "it is Running once its pods are", Within: 10 * time.Second, Late: late(func(w *simtest.World, live map[string]app, a app) bool {
			return p.complete(w, live, a) && p.workload(w, a) == nil && rolledOut(w, a) && a.Field("status", "phase") != "Running" &&
				a.condition("IngressReady")["reason"] != "HostTaken"
		})},
		{What: "it is Running while its pods are", Within: 10 * time.Second, Late: late(func(w *simtest.World, _ map[string]app, a app) bool {
			return w.Stored("deployments.apps", a.Namespace(), a.Name()) != nil && !rolledOut(w, a) && a.Field("status", "phase") == "Running"
		})},
	}
}

// rolledOut reports whether all pods of an Application are ready, of its newest template.
func rolledOut(w *simtest.World, a app) bool {
	d := w.Stored("deployments.apps", a.Namespace(), a.Name())
	for _, field := range []string{"replicas", "updatedReplicas", "readyReplicas"} {
		if d.Field("status", field) != d.Field("spec", "replicas") {
			return false
		}
	}
	return d.Field("status", "observedGeneration") == d.Field("metadata", "generation")
}

// complete reports whether an Application has all that it wants outside, and nothing holds its
// workload up.
func (p *platform) complete(w *simtest.World, live map[string]app, a app) bool {
	for name, wanted := range a.wants() {
		if has, err := p.has(w, live, a, name); wanted && (!has || err != nil) {
			return false
		}
	}
	migrated := !a.migrates() || a.condition(v1alpha1.ConditionMigrations)["status"] == "True" // they take their time
	return migrated && !p.waits(w, a)
}

// TestBoundsInASimulatedWorld has the bounds to the second, in histories in which no request
// fails, but people kill pods and change what is outside.
func TestBoundsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated()
		s.Disturbances, s.Without, s.Prompt = []applytest.Disturbance{changeByHand}, nil, true
		s.Edits, s.Rest = 30, time.Minute
		if s.Histories = 3; testing.Short() {
			s.Histories = 1
		}
		s.Edit = func(w *simtest.World) {
			pods := w.AllStored("pods")
			if n := w.Random.IntN(4 * max(1, len(pods))); n < len(pods) {
				_ = w.As("person").Delete("pods", pods[n].Namespace(), pods[n].Name()) // it exists
				return
			}
			editApps(w)
		}
		return s
	})
}

// TestPodsThatFailShowWhileAPartIsMissing: the workload stays as it is while the realm is of
// another, and its pods are in the status.
func TestPodsThatFailShowWhileAPartIsMissing(t *testing.T) {
	t.Parallel()
	var seen []any
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		spec := withAll("app:1")
		for _, part := range []string{"auth", "database", "storage"} {
			delete(spec, part)
		}
		look := func(w *simtest.World) {
			seen = append(seen, w.Stored(appsKind, "blue", "taken").Field("status", "phase"))
		}
		return scripted(p, s,
			func(w *simtest.World) error { return w.Create(anApp("blue", "taken", spec)) },
			func(w *simtest.World) error {
				return w.Update(appsKind, "blue", "taken", func(o simtest.Object) { o.Set(true, "spec", "auth", "enabled") })
			},
			func(w *simtest.World) error {
				look(w)
				w.After(3*time.Second, func() { look(w) })
				pod := w.AllStored("pods")[0]
				return w.As("person").Delete("pods", "blue", pod.Name())
			},
			func(w *simtest.World) error {
				look(w)
				return nil
			},
		)
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, []any{"Running", "Failed", "Running"}, seen)
}
