package pools_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
)

func TestAPodThatWaitsHasOneMachineStarted(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		stages, bound := map[pools.Stage]time.Duration{}, time.Duration(0)
		w.loop.Trace.OnStage = func(_ string, s pools.Stage, took time.Duration) { stages[s] = took }
		w.loop.Trace.OnBound = func(_ string, took time.Duration) { bound = took }
		w.pod("a", "")
		synctest.Wait()
		require.Equal(w, []string{"node-0"}, w.running())
		require.Equal(w, "running", w.node("node-0").Labels[domain.StateLabel()])
		require.Len(w, w.starts(), 1)
		require.Equal(w, int32(1), w.looks.Load(), "the pool has a machine that starts")
		time.Sleep(30 * time.Second)
		require.Equal(w, []string{"node-0"}, w.running(), "it is kept for its pod")
		assigned := w.loop.Assignments("web")
		require.Len(w, assigned, 1)
		require.Equal(w, "node-0", assigned[0].Node)
		require.Len(w, w.loop.Reserved(), 1)
		require.Empty(w, w.loop.InFlight())

		w.ready("node-0")
		time.Sleep(2 * time.Second)
		w.pod("a", "node-0")
		synctest.Wait()
		require.Empty(w, w.loop.Reserved())
		require.Empty(w, w.loop.Assignments("web"))
		require.Equal(w, 32*time.Second, bound)
		require.Equal(w, map[pools.Stage]time.Duration{
			pools.StageDecision: 0, pools.StageAPI: 0, pools.StageBoot: 30 * time.Second, pools.StageRegister: 0,
			pools.StageReady: 0, pools.StageBind: 2 * time.Second,
		}, stages)
	})
}

// TestAPodThatTheMachineDoesNotTakeIsNotAssignedToIt has a machine that turns out to be closed for its pod.
func TestAPodThatTheMachineDoesNotTakeIsNotAssignedToIt(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		w.pod("a", "")
		synctest.Wait()
		require.Len(w, w.loop.Assignments("web"), 1)
		_, err := w.nodes.Patch(w.Context(), "node-0", types.MergePatchType, []byte(
			`{"spec":{"taints":[{"key":"example.com/closed","effect":"NoSchedule"}]}}`,
		), metav1.PatchOptions{})
		require.NoError(w, err)
		w.loop.Cluster.SawNode(w.node("node-0"))
		time.Sleep(11 * time.Second)
		require.Empty(w, w.loop.Assignments("web"))
	})
}

func TestAPodLooksForAnotherMachineAfterAMinute(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		w.pod("a", "")
		time.Sleep(59 * time.Second)
		require.Equal(w, []string{"node-0"}, w.running())
		time.Sleep(12 * time.Second)
		require.Equal(w, []string{"node-0", "node-1"}, w.running())
		time.Sleep(time.Hour)
		require.Len(w, w.running(), 2, "there is no third one")
	})
}

func TestAMachineThatCannotBeStartedIsPassedOverForAWhile(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		var first string
		w.cloud.Fault = func(c cloudtest.Call) cloudtest.Fault {
			if c.Operation == "StartInstance" && (first == "" || c.IDs[0] == first) {
				first = c.IDs[0]
				return cloudtest.Fault{Err: errors.New("it is broken")}
			}
			return cloudtest.Fault{}
		}
		w.pod("a", "")
		synctest.Wait()
		require.Equal(w, []string{"node-1"}, w.running())
		w.pod("b", "")
		time.Sleep(29 * time.Second)
		require.Len(w, w.starts(), 2, "the broken one and the other")
		time.Sleep(12 * time.Second)
		require.Len(w, w.starts(), 3)
		require.Equal(w, first, w.starts()[2].Action.Machine)
		require.Error(w, w.starts()[2].Err)
	})
}

// TestAPlaceWithoutCapacityIsPassedOver: no machine of a type and zone is tried again at once.
func TestAPlaceWithoutCapacityIsPassedOver(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		w.pool.InstanceType = "large"
		w.cloud.Fault = func(c cloudtest.Call) cloudtest.Fault {
			if c.Operation == "StartInstance" {
				return cloudtest.Fault{Err: &cloud.CapacityError{InstanceType: "large", Zone: "zone-a"}}
			}
			return cloudtest.Fault{}
		}
		w.pod("a", "")
		time.Sleep(4 * time.Minute)
		require.Len(w, w.starts(), 1)
		time.Sleep(2 * time.Minute)
		require.Len(w, w.starts(), 2, "there may be capacity again")
	})
}

// TestAPodWaitsForAMachineWhoseNodeCouldNotBeWritten: the cloud has started it.
func TestAPodWaitsForAMachineWhoseNodeCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		w.net.Fault = func(r applytest.Request) applytest.Fault {
			if r.Resource == "nodes" && r.Verb == "patch" {
				return applytest.Fault{Status: http.StatusForbidden}
			}
			return applytest.Fault{}
		}
		w.pod("a", "")
		time.Sleep(59 * time.Second)
		require.Equal(w, []string{"node-0"}, w.running())
		require.Len(w, w.loop.InFlight(), 1)
		time.Sleep(12 * time.Second)
		require.Equal(w, []string{"node-0", "node-1"}, w.running())
	})
}

// TestAMachineThatAnotherProcessHasStartedIsWaitedFor: the list of the cloud shows that it runs.
func TestAMachineThatAnotherProcessHasStartedIsWaitedFor(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		other := w.cloud.Instances()[1].ID
		require.NoError(w, w.cloud.StartInstance(w.Context(), other))
		instances, err := w.cloud.ListInstances(w.Context(), w.pool.Spec.Scope.Tags())
		require.NoError(w, err)
		w.pool.Memory.Take(instances, time.Now())
		w.pod("a", "")
		time.Sleep(59 * time.Second)
		require.Equal(w, []string{"node-1"}, w.running())
	})
}

func TestWhatStandbyMachinesCannotServeIsToBeLaunched(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		pool := *w.pool
		pool.Spec.Templates = []cloud.Template{{Name: "a", InstanceType: "large", Zone: "zone-a"}}
		pool.Machine = func(cloud.Template) demand.Node { return demand.Node{} }
		pool.Plan.Counts.Total = 1
		w.pool = &pool
		w.pod("a", "")
		w.pod("b", "")
		w.pod("c", "")
		synctest.Wait()
		require.Equal(w, []string{"node-0"}, w.running())
		require.Equal(w, map[string]int{"a": 2}, w.loop.Launches("web"))
		w.pod("c", "elsewhere")
		synctest.Wait()
		require.Equal(w, map[string]int{"a": 1}, w.loop.Launches("web"))
	})
}

func TestAPreviewStartsNothing(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		w.stop()
		w.pod("a", "")
		result := w.loop.Decide()
		require.Len(w, result.Pools, 1)
		require.Len(w, result.Pools[0].Start, 1)
		require.Len(w, w.loop.InFlight(), 1, "what is planned next counts on it")
		synctest.Wait()
		require.Empty(w, w.running())
	})
}
