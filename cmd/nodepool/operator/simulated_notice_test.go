package operator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAMachineWhoseEndIsAnnouncedIsDrainedBefore has the cloud announce the end of a machine that
// runs a pod two minutes before. The pod runs on another machine by then.
func TestAMachineWhoseEndIsAnnouncedIsDrainedBefore(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"it ends": true, "it has to stop": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stays []stay
			var machine, node string
			r := simtest.Simulate(t, func() simtest.Scenario {
				var p *pooled
				where := func(w *simtest.World) string {
					for _, pod := range w.Objects("pods") {
						if pod.Field("status", "phase") == "Running" {
							on, _ := pod.Field("spec", "nodeName").(string)
							return on
						}
					}
					return ""
				}
				p, s := calm(func(w *simtest.World) {
					w.After(8*time.Minute, func() {
						node = where(w)
						machine = w.Object("nodes", "", node).Label(v1alpha1.LabelInstanceID)
						p.Announced.Announce(cloud.Notice{Machine: machine, Reason: "it goes", Ends: ends})
					})
					w.After(10*time.Minute, func() {
						if on := where(w); on == "" || on == node {
							w.Blame("the pod is on %q, which is about to end", on)
						}
						state := p.of(machine).State
						if ends != state.Ending() || !ends && state != cloud.InstanceStopped {
							w.Blame("machine %s is %s", machine, state)
						}
						if n := p.Announced.Left(); n > 0 {
							w.Blame("%d messages are left", n)
						}
					})
				}, poolOf(3, 1, map[string]any{"disruption": map[string]any{"budgets": []any{map[string]any{"nodes": "0"}}}}), replicas("r0", "p0", 1, "3"))
				s.Check = notes(&stays)
				return s
			}, 1)
			require.Empty(t, r.Wrong)
			require.NotEmpty(t, machine)
			i := slices.IndexFunc(stays, func(s stay) bool { return s.state == "terminating" })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, node, stays[i].node)
			require.Contains(t, stays[i].after.Field("metadata", "annotations", v1alpha1.AnnotationIntent), "the cloud announces that it goes")
		})
	}
}
