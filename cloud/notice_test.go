package cloud_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

func TestWhatTheCloudAnnouncesIsHeeded(t *testing.T) {
	const why = "the cloud announces that its spot capacity is taken back"
	for name, c := range map[string]struct {
		machines string
		pool     cloud.Pool
		want     cloud.Want
		stays    bool // the machine is only to be stopped
		change   func(*cloud.Observed)
		plan     []string
	}{
		"a machine that ends is drained for good":     {machines: "i-1 running running ready pods=1 started=1h", plan: []string{"drain i-1 (running -> terminating): " + why}},
		"one that has to stop is drained for standby": {machines: "i-1 running running ready pods=1 started=1h", stays: true, plan: []string{"drain i-1 (running -> terminating): " + why}},
		"also with a pod that asks not to be disrupted, and where none may be": {
			machines: "i-1 running running ready pods=1 started=1h", pool: cloud.Pool{Disruptions: -1},
			change: func(o *cloud.Observed) { o.Nodes[0].DoNotDisrupt = true }, plan: []string{"drain i-1 (running -> terminating): " + why},
		},
		"another machine is left alone": {
			machines: "i-2 running running ready pods=1 started=1h", plan: nil,
		},
		"one on standby that ends is terminated":          {machines: "i-1 standby stopped", plan: []string{"terminate i-1 (standby -> terminating): " + why}},
		"one on standby has stopped":                      {machines: "i-1 standby stopped", stays: true},
		"it is terminated before a pod has it started":    {machines: "i-1 standby stopped", want: cloud.Want{Start: []string{"i-1"}}, plan: []string{"terminate i-1 (standby -> terminating): " + why}},
		"one that warms up and ends is no failed warm-up": {machines: "i-1 warmup running none launched=1m", plan: []string{"terminate i-1 (warmup -> terminating): " + why}},
		"one that warms up stops anyway":                  {machines: "i-1 warmup running none launched=1m", stays: true},
		"without a Node it has no pods":                   {machines: "i-1 running running none", plan: []string{"terminate i-1 (running -> terminating): " + why}},
		"an empty one ends at once":                       {machines: "i-1 running running ready empty=1s", plan: []string{"drain i-1 (running -> terminating): " + why}},
		"a drain that was given up is tried again later": {
			machines: "i-1 running running ready pods=1 started=1h", stays: true, change: func(o *cloud.Observed) {
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {State: cloud.InstanceRunning, Since: noon, Listed: true, GaveUp: noon.Add(-9 * time.Minute)}}
			},
		},
		"and then it is": {
			machines: "i-1 running running ready pods=1 started=1h", stays: true, change: func(o *cloud.Observed) {
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {State: cloud.InstanceRunning, Since: noon, Listed: true, GaveUp: noon.Add(-10 * time.Minute)}}
			},
			plan: []string{"drain i-1 (running -> terminating): " + why},
		},
		"one without a Node cannot be drained": {machines: "i-1 running running none", stays: true},
		"what is on its way goes on":           {machines: "i-1 terminating running pods=1 since=1m intent=stop", plan: []string{"drain i-1: pods are left on it"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := machines(t, c.machines)
			seen.Notices = map[string]cloud.Notice{"i-1": {Machine: "i-1", Reason: "its spot capacity is taken back", Ends: !c.stays}}
			if c.change != nil {
				c.change(&seen)
			}
			c.pool.Scope, c.pool.Size = scope, 5
			plan := c.pool.Plan(seen, c.want, noon)
			lines := strings.Split(strings.TrimSpace(plan.String()), "\n")[1:]
			if diff := cmp.Diff(c.plan, append([]string(nil), lines...)); diff != "" {
				t.Error(diff)
			}
			want := cloud.Terminate
			if c.stays {
				want = cloud.Stop
			}
			for _, a := range plan.Actions {
				if a.From != a.To && a.Intent.Verb != want {
					t.Errorf("the intent is %q, must be %q", a.Intent.Verb, want)
				}
			}
			if plan.Memory.Failures != 0 {
				t.Errorf("%d warm-ups have failed, must be none", plan.Memory.Failures)
			}
		})
	}
}
