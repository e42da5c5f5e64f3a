package operator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/replay"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAReplayHasTheHitsOfTheOperator is N9: as many pods of a trace have room without a launch in the replay as
// in a cluster with the operator, but for one that comes in the second in which another one goes.
func TestAReplayHasTheHitsOfTheOperator(t *testing.T) {
	t.Parallel()
	// A start takes ready, with the call, the kubelet and its network.
	const boot, ready, warmup, before = 15 * time.Second, 22 * time.Second, 3 * time.Minute, 10 * time.Minute
	seeds, apart := uint64(3), 0
	if testing.Short() {
		seeds = 1
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		dice := rand.New(rand.NewPCG(seed, 9))
		var trace []replay.Pod
		for at := time.Duration(0); len(trace) < 30; at += time.Duration(dice.IntN(7)) * time.Minute {
			trace = append(trace, replay.Pod{
				Name: fmt.Sprint("pod-", len(trace)), Arrival: at, Duration: time.Duration(5+dice.IntN(20)) * time.Minute,
				Requests: demand.Resources{CPU: 3000, Memory: 1 << 30},
			})
		}
		want, err := replay.Settings{
			Pool:     cloud.Pool{Size: 6, MinStandby: 2, EmptyTTL: time.Minute},
			Capacity: demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 110}, Boot: ready, Warmup: warmup, Stop: 30 * time.Second,
		}.Replay(trace)
		require.NoError(t, err)

		waits := map[string]time.Duration{}
		r := simtest.Simulate(t, func() simtest.Scenario {
			p, s := calm(func(w *simtest.World) {
				for _, pod := range trace {
					var runs func()
					created := time.Time{}
					runs = func() {
						if w.Object("pods", "team", pod.Name).Field("status", "phase") != "Running" {
							w.After(time.Second, runs)
							return
						}
						waits[pod.Name] = time.Since(created)
						w.After(pod.Duration, func() { _ = w.Delete("pods", "team", pod.Name) }) // it runs
					}
					w.After(before+pod.Arrival, func() {
						created = time.Now()
						o := replicas(pod.Name, "p0", 1, "3").Field("spec", "template").(map[string]any) //nolint:forcetypeassert // made there
						o["apiVersion"], o["kind"] = "v1", "Pod"
						o["metadata"] = map[string]any{"namespace": "team", "name": pod.Name}
						if err := w.Create(o); err != nil {
							panic(err)
						}
						runs()
					})
				}
			}, poolOf(6, 2, map[string]any{"scaleDown": map[string]any{"emptyNodeTTL": "1m"}}))
			p.Boot, p.Warmup = boot, warmup
			s.Settle = before + trace[len(trace)-1].Arrival + 2*time.Hour
			return s
		}, seed)
		require.Empty(t, r.Wrong)
		hits := 0
		for _, pod := range trace {
			require.Contains(t, waits, pod.Name)
			if waits[pod.Name] < 2*boot { // a start, and what the scheduler takes
				hits++
			}
		}
		require.NotEqual(t, len(trace), hits, "some wait for a launch")
		require.InDelta(t, want.Hits, hits, 1, "seed %d", seed)
		apart = max(apart, want.Hits-hits, hits-want.Hits)
	}
	fmt.Printf("figure nodepool_replay_hits_apart %d of 30 pods\n", apart)
}
