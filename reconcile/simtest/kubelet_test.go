package simtest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// pods is a user who makes and deletes pods, of which those named j end.
func pods(k simtest.Kubelet, nodes ...simtest.Object) simtest.Scenario {
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
			{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true},
		},
		Program:  func(ctx context.Context, _ http.RoundTripper) error { <-ctx.Done(); return nil },
		ReadOnly: true, Settle: 5 * time.Minute, Rest: time.Hour,
		Actors: []func(*simtest.World, simtest.Change){k.Act},
		Start: func(w *simtest.World) {
			for _, n := range nodes {
				if err := w.Create(n); err != nil {
					panic(err)
				}
			}
		},
		Edit: func(w *simtest.World) {
			name, policy := fmt.Sprint("a", w.Random.IntN(3)), "Always"
			if w.Random.IntN(2) == 0 {
				name, policy = fmt.Sprint("j", w.Random.IntN(3)), "Never"
			}
			if w.Delete("pods", "shop", name) != nil {
				_ = w.Create(simtest.Object{ // one of the name may still be going
					"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": name},
					"spec": map[string]any{"restartPolicy": policy},
				})
			}
		},
		// Whether a pod fails is chance.
		State: func(*simtest.World) string { return "" },
	}
}

func machine(name string, cordoned bool) simtest.Object {
	return simtest.Object{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}, "spec": map[string]any{"unschedulable": cordoned},
	}
}

func TestAKubeletRunsPods(t *testing.T) {
	t.Parallel()
	ended := map[any]int{}
	for seed := range uint64(10) {
		s := pods(simtest.Kubelet{Kills: 20})
		s.Kinds = s.Kinds[:1]
		s.Converged = func(w *simtest.World) error {
			for _, pod := range w.Objects("pods") {
				phase := pod.Field("status", "phase")
				ended[phase]++
				switch {
				case pod.Deleting():
					return fmt.Errorf("%s is still there", pod.Name())
				case pod.Field("spec", "nodeName") != "node-1":
					return fmt.Errorf("%s has no node", pod.Name())
				case strings.HasPrefix(pod.Name(), "j") && phase != "Succeeded" && phase != "Failed":
					return fmt.Errorf("%s has not ended: %v", pod.Name(), phase)
				case strings.HasPrefix(pod.Name(), "a") && phase != "Running" && phase != "Failed":
					return fmt.Errorf("%s does not run: %v", pod.Name(), phase)
				}
			}
			return nil
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong, "seed %d", seed+1)
	}
	for _, phase := range []string{"Running", "Succeeded", "Failed"} {
		require.Positive(t, ended[phase], phase)
	}
}

func TestPodsGoToNodesThatTakeThem(t *testing.T) {
	t.Parallel()
	waits, runs := 0, 0
	for seed := range uint64(5) {
		s := pods(simtest.Kubelet{}, machine("good", false), machine("cordoned", true))
		s.Check = func(_ *simtest.World, c simtest.Change) error {
			if node := c.After.Field("spec", "nodeName"); c.After["kind"] == "Pod" && node != nil && node != "good" {
				return fmt.Errorf("%s is on %v", c.After.Name(), node)
			}
			return nil
		}
		s.Converged = func(w *simtest.World) error {
			for _, pod := range w.Objects("pods") {
				runs++
				if pod.Field("spec", "nodeName") != "good" {
					return fmt.Errorf("%s has no node", pod.Name())
				}
			}
			return nil
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong)
		s = pods(simtest.Kubelet{}, machine("cordoned", true))
		s.Converged = func(w *simtest.World) error {
			for _, pod := range w.Objects("pods") {
				waits++
				if pod.Field("spec", "nodeName") != nil {
					return fmt.Errorf("%s has a node", pod.Name())
				}
			}
			return nil
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong)
	}
	require.Positive(t, waits)
	require.Positive(t, runs)
}

func TestARunEndsAsItIsTold(t *testing.T) {
	t.Parallel()
	s := pods(simtest.Kubelet{Runs: func(_ *simtest.World, pod simtest.Object) (time.Duration, bool) {
		return time.Minute, pod.Name() == "j1"
	}})
	s.Kinds = s.Kinds[:1]
	phases := map[string]any{}
	s.Converged = func(w *simtest.World) error {
		for _, pod := range w.Objects("pods") {
			phases[pod.Name()] = pod.Field("status", "phase")
		}
		return nil
	}
	r := simtest.Simulate(t, always(s), 3)
	require.Empty(t, r.Wrong)
	require.NotEmpty(t, phases)
	for name, phase := range phases {
		require.Equal(t, map[bool]any{true: "Succeeded", false: "Failed"}[name == "j1"], phase, name)
	}
	require.Contains(t, r.Trace, "scheduler: update pods shop/")
	require.Contains(t, r.Trace, "kubelet: update pods shop/")
}

// TestAPodThatIsHeldEnds has a finalizer.
func TestAPodThatIsHeldEnds(t *testing.T) {
	t.Parallel()
	ended := 0
	s := pods(simtest.Kubelet{})
	s.Kinds = s.Kinds[:1]
	s.Start = func(w *simtest.World) {
		if err := w.Create(simtest.Object{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"namespace": "shop", "name": "held", "finalizers": []any{"example.com/hold"}},
		}); err != nil {
			panic(err)
		}
	}
	s.Edit = func(w *simtest.World) {
		if w.Object("pods", "shop", "held").Field("status", "phase") == "Running" {
			_ = w.Delete("pods", "shop", "held") // once more does nothing
		}
	}
	s.Converged = func(w *simtest.World) error {
		for _, pod := range w.Objects("pods") { // none is desired
			ended++
			if !pod.Deleting() || pod.Field("status", "phase") != "Failed" {
				return fmt.Errorf("%s is deleted: %v, and is %v", pod.Name(), pod.Deleting(), pod.Field("status", "phase"))
			}
		}
		return nil
	}
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.Equal(t, 1, ended)
}

// TestAKubeletKeepsItsRules has pods that come and go, some of the same name.
func TestAKubeletKeepsItsRules(t *testing.T) {
	t.Parallel()
	const run = 20 * time.Second
	ends, binds := 0, 0
	for seed := range uint64(20) {
		leaving := machine("leaving", false)
		leaving.Set([]any{"example.com/hold"}, "metadata", "finalizers")
		s := pods(
			simtest.Kubelet{Runs: func(*simtest.World, simtest.Object) (time.Duration, bool) { return run, true }},
			machine("n1", false), machine("n2", false), leaving,
		)
		s.Edits = 60
		start := s.Start
		s.Start = func(w *simtest.World) {
			start(w)
			if err := w.Delete("nodes", "", "leaving"); err != nil {
				panic(err)
			}
		}
		started := map[string]time.Time{}
		s.Check = func(w *simtest.World, c simtest.Change) error {
			if c.After["kind"] != "Pod" || c.Before == nil {
				return nil
			}
			was, is := c.Before.Field("status", "phase"), c.After.Field("status", "phase")
			switch {
			case c.By == "scheduler" && c.After.Field("spec", "nodeName") != nil:
				binds++
				n := w.Object("nodes", "", fmt.Sprint(c.After.Field("spec", "nodeName")))
				if n.Deleting() || !strings.Contains(fmt.Sprint(n["status"]), "status:True type:Ready") {
					return fmt.Errorf("%s is given %s, which is not ready", c.After.Name(), n.Name())
				}
			case was != "Running" && is == "Running":
				started[c.After.UID()] = time.Now()
				if c.Before.Deleting() || c.Before.Field("spec", "nodeName") == nil {
					return fmt.Errorf("%s starts, deleted: %v, on %v", c.After.Name(), c.Before.Deleting(), c.Before.Field("spec", "nodeName"))
				}
			case was == "Running" && is != "Running" && !c.Before.Deleting():
				ends++
				if d := time.Since(started[c.After.UID()]); d != run {
					return fmt.Errorf("%s ends after %v", c.After.Name(), d)
				}
			}
			return nil
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong, "seed %d", seed+1)
	}
	require.Positive(t, ends)
	require.Positive(t, binds)
}

// TestNoPodIsKilledWithoutFaults kills all others.
func TestNoPodIsKilledWithoutFaults(t *testing.T) {
	t.Parallel()
	running := 0
	s := pods(simtest.Kubelet{Kills: 100})
	s.Kinds = s.Kinds[:1]
	s.Converged = func(w *simtest.World) error {
		for _, pod := range w.Objects("pods") {
			if phase := pod.Field("status", "phase"); strings.HasPrefix(pod.Name(), "a") && phase != "Running" {
				return fmt.Errorf("%s is %v", pod.Name(), phase)
			}
			running++
		}
		return nil
	}
	require.Empty(t, simtest.Sweep(t, always(s), 1).Failed)
	require.Positive(t, running)
	r := simtest.Simulate(t, always(s), 1)
	require.NotEmpty(t, r.Wrong, "with faults they are")
}

// TestThePodsOfADeletedNodeGo and those of other Nodes stay.
func TestThePodsOfADeletedNodeGo(t *testing.T) {
	t.Parallel()
	collected := 0
	for seed := range uint64(12) {
		s := pods(simtest.Kubelet{}, machine("n1", false), machine("n2", false), machine("n3", false))
		s.Edits, s.Rest, s.Disturbances = 40, time.Minute, []applytest.Disturbance{simtest.DeleteNode}
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			for pause.For(ctx, 5*time.Second) {
				_, _ = send(ctx, net, http.MethodGet, "/api/v1/pods", "")
			}
			return nil
		}
		s.Actors = append(s.Actors, func(w *simtest.World, c simtest.Change) {
			if c.After == nil && c.Before["kind"] == "Node" && c.Before.Name() == "n1" {
				w.After(20*time.Second, func() { _ = w.Create(machine("n1", false)) }) // it registers again
			}
		})
		s.Check = func(w *simtest.World, c simtest.Change) error {
			if c.By != "pod garbage collector" {
				return nil
			}
			collected++
			if name := fmt.Sprint(c.Before.Field("spec", "nodeName")); w.Object("nodes", "", name) != nil {
				return fmt.Errorf("%s is on %s, which is there", c.Before.Name(), name)
			}
			return nil
		}
		s.Converged = func(w *simtest.World) error {
			for _, pod := range w.Objects("pods") {
				if name, ok := pod.Field("spec", "nodeName").(string); ok && w.Object("nodes", "", name) == nil {
					return fmt.Errorf("%s is on %s, which is gone", pod.Name(), name)
				}
			}
			return nil
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong, "seed %d", seed+1)
	}
	require.Positive(t, collected)
}
