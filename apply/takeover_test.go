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
