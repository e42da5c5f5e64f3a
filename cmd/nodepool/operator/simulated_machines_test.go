package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAMachineThatNeverJoinsIsInTheStatus while it boots and ends. Once all machines have Nodes, the
// status has none.
func TestAMachineThatNeverJoinsIsInTheStatus(t *testing.T) {
	t.Parallel()
	var booting, left any
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := calm(func(w *simtest.World) {
			w.After(45*time.Second, func() { booting = w.Object(poolsKind, "", "p0").Field("status", "machines") })
			w.After(10*time.Minute, func() { left = w.Object(poolsKind, "", "p0").Field("status", "machines") })
		}, poolOf(2, 1, map[string]any{"preWarm": map[string]any{"timeout": "1m"}}))
		p.Habit = first(habit{neverJoins: true})
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Len(t, booting, 1)
	machine, _ := booting.([]any)[0].(map[string]any)
	require.Regexp(t, `^i-fake-\d+$`, machine["id"])
	require.NotEmpty(t, machine["launchTime"])
	delete(machine, "id")
	delete(machine, "launchTime")
	require.Equal(t, map[string]any{"state": "warmup", "cloudState": "running", "zone": "home-1a", "reason": "warming up"}, machine)
	require.Nil(t, left)
}
