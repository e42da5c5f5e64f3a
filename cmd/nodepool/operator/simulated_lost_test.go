package operator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// deleteStandbyNode is a habit of the whole world: no pod starts the machine any more, and it takes the room of another.
func deleteStandbyNode() simtest.Habit {
	return simtest.Habit{
		Name: "delete the Node of a machine on standby at", Does: "A person deletes the Node of a machine that is off.", Spell: time.Minute,
		Act: func(w *simtest.World, _ applytest.Request) {
			if all := nodesIn(w, "standby"); len(all) > 0 {
				_ = w.As("administrator").Delete("nodes", "", all[w.Dice("delete a Node").IntN(len(all))].Name()) // it exists
			}
		},
	}
}

// eventNotes are the notes of the Events with a reason about an object.
func eventNotes(w *simtest.World, name, reason string) (notes []string) {
	for _, e := range w.Objects("events") {
		if about, _ := e.Field("involvedObject", "name").(string); strings.HasPrefix(about, name) && e["reason"] == reason {
			note, _ := e["message"].(string)
			notes = append(notes, note)
		}
	}
	return notes
}

// TestAStandbyMachineWithoutANodeIsNoRoom deletes the Node of the one standby machine of a pool that has as many
// machines as it may: conditions, buffers and pods are told so, until the machine has ended and another one has its place.
func TestAStandbyMachineWithoutANodeIsNoRoom(t *testing.T) {
	t.Parallel()
	var before, after, buffer, ended map[string]any
	var degraded map[string]any
	var told []string
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			defineBuffers(w)
			w.After(5*time.Minute, func() {
				_ = w.Create(simtest.Object{ // it does not exist
					"apiVersion": buffers.Group + "/" + buffers.Version, "kind": buffers.Kind,
					"metadata": map[string]any{"namespace": "team", "name": "b0"},
					"spec": map[string]any{
						"provisioningStrategy": "buffer.stratos.sh/standby-capacity", "podTemplateRef": map[string]any{"name": "p0"}, "replicas": 1,
					},
				})
			})
			w.After(8*time.Minute, func() {
				before = conditionOf(w.Object(buffersKind, "team", "b0"), buffers.ConditionReady)
				_ = w.As("administrator").Delete("nodes", "", nodesIn(w, "standby")[0].Name()) // it exists
			})
			w.After(8*time.Minute+5*time.Second, func() {
				pool := w.Object(poolsKind, "", "p0")
				after, degraded = conditionOf(pool, v1alpha1.ConditionFull), conditionOf(pool, v1alpha1.ConditionDegraded)
				buffer = conditionOf(w.Object(buffersKind, "team", "b0"), buffers.ConditionReady)
				_ = w.Create(replicas("r1", "p0", 1, "3")) // it does not exist
			})
			w.After(8*time.Minute+20*time.Second, func() { told = eventNotes(w, "r1", "NoMachineFits") })
			w.After(23*time.Minute, func() { ended = conditionOf(w.Object(poolsKind, "", "p0"), v1alpha1.ConditionDegraded) })
		}, poolOf(2, 1, nil), replicas("r0", "p0", 1, "3"))
		s.Settle = 40 * time.Minute
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, "True", before["status"])
	require.Equal(t, "True", after["status"])
	require.Equal(t, "PoolFull", after["reason"])
	require.Equal(t, "2 of 2 machines, 1 of them stopped and without a Node, none on standby that can be started: "+
		"pods that need one more wait, or go to another pool", after["message"])
	require.Equal(t, "NodeMissing", degraded["reason"])
	require.Contains(t, degraded["message"], "1 of 1 standby machines have no Node")
	require.Equal(t, "False", buffer["status"])
	require.Equal(t, "DoesNotFit", buffer["reason"])
	require.Contains(t, buffer["message"], "PoolFull: it has 2 of 2 machines, 1 of them stopped and without a Node")
	require.NotEmpty(t, told)
	require.Contains(t, told[0], "PoolFull: it has 2 of 2 machines, 1 of them stopped and without a Node")
	require.Equal(t, "False", ended["status"], "%v", ended)
}

// fullness returns what is wrong about the condition Full of a pool at rest.
func fullness(w *simtest.World, pool simtest.Object) string {
	standby := slices.DeleteFunc(nodesIn(w, "standby"), func(n simtest.Object) bool { return n.Label(v1alpha1.LabelPool) != pool.Name() })
	is := integer(pool.Field("status", "total")) >= integer(pool.Field("spec", "poolSize")) && len(standby) == 0
	if says := conditionOf(pool, v1alpha1.ConditionFull); is != (says["status"] == "True") {
		return "Full is " + says["status"].(string) + ", " + says["message"].(string) //nolint:forcetypeassert // texts
	}
	return ""
}
