package simtest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestKeepsOthersKnowsWhoseAFieldIs has the changes of a ConfigMap, one after the other: by whom,
// its keys, and the managedFields of the program and of another client.
func TestKeepsOthersKnowsWhoseAFieldIs(t *testing.T) {
	t.Parallel()
	type step struct {
		by     string
		keys   []string
		fields []any // nil: none are kept
	}
	field := func(manager, operation, key string) any {
		return map[string]any{"manager": manager, "operation": operation, "fieldsV1": map[string]any{
			"f:data": map[string]any{".": map[string]any{}, "f:" + key: map[string]any{}},
		}}
	}
	whole := map[string]any{"manager": "p", "operation": "Apply", "fieldsV1": map[string]any{"f:data": map[string]any{}}}
	const program, another = "program", "another client"
	for name, c := range map[string]struct {
		steps []step
		wrong bool
	}{
		"another's key goes": {[]step{
			{program, []string{"a"}, nil},
			{another, []string{"a", "b"}, nil},
			{program, []string{"a"}, nil},
		}, true},
		"another's key stays": {[]step{
			{program, []string{"a"}, nil},
			{another, []string{"a", "b"}, nil},
			{program, []string{"b"}, nil},
		}, false},
		"another takes its key": {[]step{
			{program, []string{"a"}, nil},
			{another, []string{"a", "b"}, nil},
			{another, []string{"a"}, nil},
		}, false},
		"a user's key goes": {[]step{
			{program, []string{"a"}, nil},
			{"user", []string{"a", "b"}, nil},
			{program, []string{"a"}, nil},
		}, false},
		"its key, which another set": {[]step{
			{program, []string{"a", "b"}, nil},
			{another, []string{"a"}, nil},
			{another, []string{"a", "b"}, nil},
			{program, []string{"a"}, nil},
		}, false},
		"the object goes": {[]step{{program, []string{"a"}, nil}, {another, []string{"a", "b"}, nil}, {program, nil, nil}}, false},
		"another's by managedFields": {[]step{
			{program, []string{"a"}, nil},
			{another, []string{"a", "b"}, []any{field("p", "Update", "a"), field(another, "Update", "b")}},
			{program, []string{"a"}, []any{field("p", "Update", "a")}},
		}, true},
		"the program's, it has applied": {[]step{
			{program, []string{"a"}, nil},
			{another, []string{"a", "b"}, []any{field("p", "Apply", "b"), field(another, "Update", "b")}},
			{program, []string{"a"}, nil},
		}, false},
		"of a whole that it applies": {[]step{
			{program, []string{"a"}, nil},
			{another, []string{"a", "b"}, []any{field(another, "Update", "b")}},
			{program, []string{"a"}, []any{whole}},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := simtest.KeepsOthers("configmaps")
			var wrong error
			r := simtest.Simulate(t, func() simtest.Scenario {
				s := short(copier{})
				s.Disturbances, s.Edits = []applytest.Disturbance{}, 1
				s.Edit = func(w *simtest.World) {
					var before simtest.Object
					for _, each := range c.steps {
						o := simtest.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "uid": "u"}}
						for _, key := range each.keys {
							o.Set("yes", "data", key)
						}
						if each.fields != nil {
							o.Set(each.fields, "metadata", "managedFields")
						}
						if each.keys == nil {
							o = nil
						}
						wrong = check(w, simtest.Change{
							By: each.by, Request: applytest.Request{Verb: "update", Resource: "configmaps", Name: "x"}, Before: before, After: o,
						})
						before = o
					}
				}
				return s
			}, 1)
			require.Empty(t, r.Wrong)
			if c.wrong {
				require.ErrorContains(t, wrong, "it takes away data.b, which another client has added")
			} else {
				require.NoError(t, wrong)
			}
		})
	}
}

// TestWhatActorsMakeIsNoDifference has a program that keeps Deployments, and the pods of which have
// names that are drawn.
func TestWhatActorsMakeIsNoDifference(t *testing.T) {
	t.Parallel()
	made := 0
	for seed := range uint64(6) {
		r := simtest.Simulate(t, func() simtest.Scenario {
			s := deployer{}.scenario()
			s.Kinds = append(
				s.Kinds, simtest.Kind{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
				simtest.Kind{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
			)
			s.Actors = []func(*simtest.World, simtest.Change){simtest.Deployments, simtest.ReplicaSets, simtest.Kubelet{}.Act}
			converged := s.Converged
			s.Converged = func(w *simtest.World) error {
				made += len(w.Objects("pods"))
				for _, d := range w.Objects("deployments.apps") {
					if d.Field("status", "readyReplicas") != 1.0 {
						return fmt.Errorf("%v", d["status"])
					}
				}
				return converged(w)
			}
			return s
		}, seed+1)
		require.Empty(t, r.Wrong, "seed %d", seed+1)
	}
	require.Positive(t, made)
}
