package cloud_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

func TestOnlyTheEdgesOfTheTableAreAllowed(t *testing.T) {
	states := []cloud.State{"", cloud.StateWarmup, cloud.StateStandby, cloud.StateRunning, cloud.StateTerminating, "other"}
	allowed := map[[2]cloud.State]bool{
		{"", cloud.StateWarmup}:                        true,
		{cloud.StateWarmup, cloud.StateStandby}:        true,
		{cloud.StateWarmup, cloud.StateTerminating}:    true,
		{cloud.StateStandby, cloud.StateRunning}:       true,
		{cloud.StateStandby, cloud.StateTerminating}:   true,
		{cloud.StateRunning, cloud.StateTerminating}:   true,
		{cloud.StateRunning, cloud.StateStandby}:       true,
		{cloud.StateTerminating, cloud.StateStandby}:   true,
		{cloud.StateTerminating, cloud.StateRunning}:   true,
		{cloud.StateTerminating, cloud.StateWarmup}:    false,
		{cloud.StateStandby, cloud.StateWarmup}:        false,
		{cloud.StateRunning, cloud.StateWarmup}:        false,
		{cloud.StateWarmup, cloud.StateRunning}:        false,
		{cloud.StateTerminating, cloud.State("other")}: false,
		{cloud.State("other"), cloud.StateTerminating}: false,
		{cloud.State(""), cloud.StateStandby}:          false,
	}
	for _, from := range states {
		for _, to := range states {
			err := cloud.CheckTransition("i-1", from, to)
			if from == to || allowed[[2]cloud.State{from, to}] {
				require.NoError(t, err, "%q to %q", from, to)
				continue
			}
			require.ErrorIs(t, err, cloud.ErrInvalidTransition, "%q to %q", from, to)
			var refused *cloud.TransitionError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, cloud.TransitionError{Machine: "i-1", From: from, To: to}, *refused)
		}
	}
}

// TestNoMachineWaitsForEver looks at every state, state in the cloud and fault of
// one machine: what waits for the cloud acts once it has waited too long, or the
// cloud itself goes on.
func TestNoMachineWaitsForEver(t *testing.T) {
	scope := cloud.Scope{Domain: "stratos.sh", Cluster: "c", Pool: "p", PoolUID: "u"}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	states := []cloud.State{"", cloud.StateWarmup, cloud.StateStandby, cloud.StateRunning, cloud.StateTerminating, "nonsense"}
	instances := []cloud.InstanceState{ // not pending, which the cloud ends itself
		"", cloud.InstanceRunning, cloud.InstanceStopping, cloud.InstanceStopped, cloud.InstanceShuttingDown, cloud.InstanceTerminated,
	}
	for _, state := range states {
		for _, instance := range instances {
			for _, node := range []string{"none", "ready", "not ready", "occupied"} {
				for _, verb := range []cloud.Verb{"", cloud.Stop, cloud.Terminate} {
					seen := cloud.Observed{Listed: start}
					if instance != "" {
						seen.Instances = []cloud.Instance{{ID: "i-1", State: instance, LaunchTime: start.Add(-time.Minute), Tags: tags(scope, state)}}
					}
					if node != "none" {
						n := cloud.NodeStatus{
							Name:        "n",
							ID:          "i-1",
							State:       state,
							Since:       start.Add(-time.Second),
							Ready:       node != "not ready",
							LastStarted: start,
						}
						if node == "occupied" {
							n.Pods = 3
						}
						if state == cloud.StateTerminating {
							n.Intent = cloud.Intent{Verb: verb, Since: start}
						}
						seen.Nodes = []cloud.NodeStatus{n}
					}
					if len(seen.Instances)+len(seen.Nodes) == 0 {
						continue
					}
					final := instance == cloud.InstanceShuttingDown || instance == cloud.InstanceTerminated && node == "none" ||
						state == cloud.StateStandby && instance == cloud.InstanceStopped && node != "none"
					if instance == cloud.InstanceRunning && node == "occupied" {
						final = state == cloud.StateRunning // in use
					}
					require.Equal(t, !final, acts(t, scope, seen, start), "state %q, cloud %q, node %s, intent %q", state, instance, node, verb)
				}
			}
		}
	}
}

// acts reports whether a plan of the same observation acts within a day. It must
// have been asked for by the plan before.
func acts(t *testing.T, scope cloud.Scope, seen cloud.Observed, start time.Time) bool {
	t.Helper()
	pool := cloud.Pool{Scope: scope, Size: 5}
	var wake time.Time
	for at := start; at.Before(start.Add(24 * time.Hour)); at = at.Add(time.Minute) {
		seen.Listed = at
		plan := pool.Plan(seen, cloud.Want{}, at)
		seen.Memory = plan.Memory
		for _, a := range plan.Actions {
			if a.Verb == cloud.Retag || a.Verb == cloud.ClearEmpty {
				continue
			}
			if at.After(start) {
				require.False(t, wake.IsZero() || wake.After(at), "%s: the plan before asked to be woken at %s: %+v", a, wake, seen)
			}
			return true
		}
		wake = plan.Wake
	}
	return false
}

func tags(scope cloud.Scope, state cloud.State) map[string]string {
	out := scope.LaunchTags("op", nil)
	out[scope.Key("state")] = string(state)
	return out
}
