package simtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestEachPodHasAnAddressOfItsOwn looks at each write: a new pod is Pending, and one that
// runs has an address that no other pod has.
func TestEachPodHasAnAddressOfItsOwn(t *testing.T) {
	t.Parallel()
	running := 0
	for seed := range uint64(5) {
		r := simtest.Simulate(t, func() simtest.Scenario {
			s := pods(simtest.Kubelet{}, machine("n1", false))
			s.Check = func(w *simtest.World, c simtest.Change) error {
				if c.Before == nil && c.After["kind"] == "Pod" && c.After.Field("status", "phase") != "Pending" {
					return fmt.Errorf("%s begins as %v", c.After.Name(), c.After["status"])
				}
				of := map[any]string{}
				for _, pod := range w.Objects("pods") {
					ip := pod.Field("status", "podIP")
					switch other, taken := of[ip]; {
					case ip == nil && pod.Field("status", "phase") == "Running":
						return fmt.Errorf("%s runs without an address", pod.Name())
					case ip == nil:
						continue
					case taken:
						return fmt.Errorf("%s has the address of %s", pod.Name(), other)
					}
					of[ip], running = pod.Name(), running+1
				}
				return nil
			}
			return s
		}, seed+1)
		require.Empty(t, r.Wrong, r.Trace)
	}
	require.NotZero(t, running)
}

// TestAPodOfADaemonSetGoesToItsNode gives each pod a node that takes no others.
func TestAPodOfADaemonSetGoesToItsNode(t *testing.T) {
	t.Parallel()
	placed := 0
	r := simtest.Simulate(t, func() simtest.Scenario {
		s := pods(simtest.Kubelet{}, machine("n1", false), machine("n2", true))
		s.Without = append(s.Without, simtest.DeleteNode)
		s.Edit = func(w *simtest.World) {
			required := map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchFields": []any{
				map[string]any{"key": "metadata.name", "operator": "In", "values": []any{"n2"}},
			}}}}
			require.NoError(t, w.Create(simtest.Object{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "generateName": "d-"},
				"spec": map[string]any{"affinity": map[string]any{"nodeAffinity": map[string]any{
					"requiredDuringSchedulingIgnoredDuringExecution": required,
				}}},
			}))
		}
		s.Converged = func(w *simtest.World) error {
			for _, pod := range w.Objects("pods") {
				if placed++; pod.Field("spec", "nodeName") != "n2" {
					return fmt.Errorf("%s is on %v", pod.Name(), pod.Field("spec", "nodeName"))
				}
			}
			return nil
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong, r.Trace)
	require.NotZero(t, placed)
}

// TestAnEvictionIsThatOfTheServer evicts a pod that a budget holds, and then one that
// it lets go.
func TestAnEvictionIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	drained := false
	drain := func(w *simtest.World) {
		require.ErrorContains(t, w.As("drain").Evict("shop", "a"), "would violate the pod's disruption budget")
		require.NoError(t, w.Update("poddisruptionbudgets.policy", "shop", "a", func(o simtest.Object) {
			o.Set(1, "status", "disruptionsAllowed")
			o.Set(1, "status", "observedGeneration")
		}))
		require.NoError(t, w.As("drain").Evict("shop", "a"))
		require.True(t, w.Object("pods", "shop", "a").Deleting())
		require.ErrorContains(t, w.As("drain").Evict("shop", "b"), "404")
		drained = true
	}
	r := simtest.Simulate(t, func() simtest.Scenario {
		s := pods(simtest.Kubelet{}, machine("n1", false))
		s.Kinds = append(s.Kinds, simtest.Kind{
			Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true,
		})
		s.Disturbances = []applytest.Disturbance{}
		s.Edits, s.Edit = 1, func(w *simtest.World) {
			meta := map[string]any{"namespace": "shop", "name": "a", "labels": map[string]any{"app": "a"}}
			require.NoError(t, w.Create(simtest.Object{"apiVersion": "v1", "kind": "Pod", "metadata": meta}))
			require.NoError(t, w.Create(simtest.Object{
				"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta,
				"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "a"}}},
			}))
			w.After(3*time.Minute, func() { drain(w) })
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong, r.Trace)
	require.True(t, drained)
}

// TestAForbiddenEvictionIsTriedAgainIfTheServerSaysSo holds that of a real server: only while it
// has not seen the budget does it name a time, after which client-go tries again by itself.
func TestAForbiddenEvictionIsTriedAgainIfTheServerSaysSo(t *testing.T) {
	t.Parallel()
	s := &simtest.Server{Kinds: []simtest.Kind{
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true},
	}}
	c := caller{t, s}
	const budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
	c.must("POST /api/v1/namespaces/shop/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app":"a"}}}`)
	c.must("PATCH /api/v1/namespaces/shop/pods/a/status", `{"status":{"phase":"Running"}}`)
	c.must("POST "+budgets,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"app":"a"}}}}`)
	evict := func() (after string, message any) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://simtest/api/v1/namespaces/shop/pods/a/eviction",
			strings.NewReader(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`))
		require.NoError(t, err)
		answer, err := s.RoundTrip(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
		var o simtest.Object
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&o))
		causes, _ := o.Field("details", "causes").([]any)
		require.Len(t, causes, 1)
		return answer.Header.Get("Retry-After"), causes[0].(map[string]any)["message"] //nolint:forcetypeassert // of a server
	}
	after, message := evict()
	require.Equal(t, "10", after)
	require.Equal(t, "The disruption budget a is still being processed by the server.", message)
	c.must("PATCH "+budgets+"/a/status", `{"status":{"observedGeneration":1,"desiredHealthy":1,"currentHealthy":1}}`)
	after, message = evict()
	require.Empty(t, after)
	require.Equal(t, "The disruption budget a needs 1 healthy pods and has 1 currently", message)
}
