package apply_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

func TestOwnershipIsMovedAlsoWhileAControllerReportsStatus(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"kubectl-create"}
	b.kubectl(t, "create", "configmap", "-n", b.ns, "a", "--from-literal=key=1", "--from-literal=dropped=1")
	a := b.start(t)
	a.Adoption = apply.AdoptForeign
	// Twice, between the look at the record of ownership and the patch of it.
	changes := 0
	a.net.Fault = func(r applytest.Request) applytest.Fault {
		if r.Writes() && r.Name == "a" && changes > 0 && changes < 3 {
			b.kubectl(t, "annotate", "-n", b.ns, "configmap", "a", fmt.Sprintf("example.com/seen-%d=yes", changes))
		}
		if r.Writes() && r.Name == "a" {
			changes++
		}
		return applytest.Fault{}
	}
	apply1(t, a, b.set(t, configMap("a", "1")))
	require.Equal(t, "{\"key\":\"1\"}", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data}"))
	require.Equal(
		t,
		"yes yes",
		b.kubectl(
			t,
			"get",
			"-n",
			b.ns,
			"configmap",
			"a",
			"-o",
			`jsonpath={.metadata.annotations.example\.com/seen-1} {.metadata.annotations.example\.com/seen-2}`,
		),
	)
	require.Len(t, a.net.Writes(), 5, "one that finds the object, two in vain, the move, the apply")
}

func TestWhatASupersededManagerMadeIsAdoptedAndNothingElse(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"earlier"}
	for name, manager := range map[string]string{"ours": "earlier", "theirs": "another", "both": "another"} {
		b.kubectl(t, "create", "configmap", "-n", b.ns, name, "--from-literal=key=1", "--from-literal=dropped=1", "--field-manager="+manager)
	}
	// A manager of metadata has not made an object, and one of a part of it not all.
	b.kubectl(t, "annotate", "-n", b.ns, "configmap", "ours", "--field-manager=another", "example.com/seen=yes")
	b.kubectl(t, "annotate", "-n", b.ns, "configmap", "theirs", "--field-manager=earlier", "example.com/seen=yes")
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "both", "--field-manager=earlier", "-p", `{"data":{"more":"1"}}`)
	b.kubectl(t, "create", "configmap", "-n", b.ns, "parent")
	uid := b.kubectl(t, "get", "-n", b.ns, "configmap", "parent", "-o", "jsonpath={.metadata.uid}")
	b.kubectl(t, "create", "configmap", "-n", b.ns, "controlled", "--from-literal=key=1", "--field-manager=earlier")
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "controlled", "--field-manager=earlier", "-p",
		fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"parent","uid":%q,"controller":true}]}}`, uid))

	a := b.start(t)
	set := b.set(t, configMap("ours", "1"), configMap("theirs", "1"), configMap("both", "1"), configMap("controlled", "1"))
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Len(t, plan.Changes, 1)
	require.Equal(t, "ours", plan.Changes[0].Name, "the plan knows")
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Equal(t, 1, report.Count(apply.Updated))
	require.Equal(t, 3, report.Count(apply.Refused))
	require.JSONEq(t, `{"key":"1"}`, b.kubectl(t, "get", "-n", b.ns, "configmap", "ours", "-o", "jsonpath={.data}"))
	require.Equal(t, "yes", b.kubectl(t, "get", "-n", b.ns, "configmap", "ours", "-o", `jsonpath={.metadata.annotations.example\.com/seen}`))
	for _, name := range []string{"theirs", "both", "controlled"} {
		require.Empty(t, b.kubectl(t, "get", "-n", b.ns, "configmap", name, "-o", `jsonpath={.metadata.annotations.example\.com/desired-hash}`), name)
	}
	pruned, err := a.Prune(t.Context(), b.set(t, configMap("kept", "1")), complete)
	require.NoError(t, err)
	require.Len(t, pruned.Results, 1, "what was adopted is ours to prune, and nothing else")
	require.Equal(t, "ours", pruned.Results[0].ID.Name)
}
