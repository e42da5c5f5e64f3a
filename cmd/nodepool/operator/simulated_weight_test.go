package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAPodGoesToTheHeavierPoolThatCanHaveIt has two pools of other types of machines that both fit a
// pod. It goes to the one with the higher weight, and at once to the other one if that is full, or
// the cloud has no machine of its type.
func TestAPodGoesToTheHeavierPoolThatCanHaveIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standby  int  // of p0, whose weight is 1; the one of p1 is 10
		capacity bool // of the cloud for p1
		full     bool // p1 has as many machines as it may
		want     string
	}{
		"the heavier":                            {capacity: true, want: "p1"},
		"a standby machine goes before a launch": {standby: 1, capacity: true, want: "p0"},
		"the cloud has none of the heavier":      {want: "p0"},
		"the heavier is full":                    {capacity: true, full: true, want: "p0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var launches []time.Time // since the pod is there
			pool := ""
			r := simtest.Simulate(t, func() simtest.Scenario {
				spec := func(class string, size, standby, weight int) map[string]any {
					return map[string]any{
						"poolSize": size, "minStandby": standby, "weight": weight,
						"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": class}},
					}
				}
				other := class("c1")
				other.Set("m5.2xlarge", "spec", "instanceType")
				p, s := calm(func(w *simtest.World) {
					w.After(4*time.Minute, func() {
						anywhere := replicas("r0", "", 1, "3")
						anywhere.Set(map[string]any{"kubernetes.io/os": "linux"}, "spec", "template", "spec", "nodeSelector")
						_ = w.Create(anywhere) // it does not exist
						launches = nil
					})
					if c.full {
						_ = w.Create(replicas("r1", "p1", 1, "6")) // it does not exist
					}
					w.After(10*time.Minute, func() {
						for _, pod := range w.Objects("pods") {
							if pod.Name()[:2] != "r0" {
								continue
							}
							on, _ := pod.Field("spec", "nodeName").(string)
							pool = w.Object("nodes", "", on).Label(v1alpha1.LabelPool)
						}
					})
				}, other, own("NodePool", "p0", spec("c0", 3, c.standby, 1)), own("NodePool", "p1", spec("c1", 1, 0, 10)))
				p.OnCall = func(w *simtest.World, call cloudtest.Call) {
					p.judge(w, call)
					if !c.capacity {
						p.Cloud.Capacity = map[cloud.Placement]int{
							{InstanceType: "m5.2xlarge", Zone: "home-1a"}: 0, {InstanceType: "m5.2xlarge", Zone: "home-1b"}: 0,
						}
					}
					if call.Operation == "LaunchInstance" && pool == "" {
						launches = append(launches, time.Now())
					}
				}
				return s
			}, 1)
			require.Empty(t, r.Wrong)
			require.Equal(t, c.want, pool)
			if !c.capacity {
				// One of the heavier pool in each zone, and then the other pool at once.
				require.Len(t, launches, 3)
				require.Less(t, launches[2].Sub(launches[0]), time.Second)
			}
		})
	}
}
