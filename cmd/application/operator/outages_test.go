package operator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// sent returns the requests of all operators but those for the Lease.
func (c *cell) sent(t *testing.T) (all []kubetest.Request) {
	t.Helper()
	found, err := c.cluster.Requests(account)
	require.NoError(t, err)
	for _, r := range found {
		if r.Resource != "leases" {
			all = append(all, r)
		}
	}
	return all
}

// TestTheDatabaseIsDown is D10, C6 and C26 for the database: apps without one run, one with
// is Pending and says why, a running one goes on, and a deletion waits.
func TestTheDatabaseIsDown(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage")
	}
	t.Parallel()
	c := newCell(t)
	b := c.bench(t, "down")
	c.start(t)
	b.app("old", withDatabase)
	b.app("dying", withDatabase)
	b.phase("old", "Running")
	b.phase("dying", "Running")
	c.pg.Kill()
	b.app("new", withDatabase)
	b.app("without", ", imageRef: 'app:1'")
	b.phase("without", "Running")
	b.eventually("it says why", func() bool { return b.condition("new", "DatabaseReady", "reason") == "Unreachable" })
	require.Equal(b, "False", b.condition("new", "DatabaseReady", "status"))
	require.Equal(b, "Pending", b.get("app", "new", ".status.phase"))
	require.NotEmpty(b, b.get("app", "new", ".status.external"), "what may be half made has a name")
	b.in("delete", "app", "dying", "--wait=false")
	b.eventually("the deletion names its step", func() bool {
		return strings.Contains(b.condition("dying", "Ready", "message"), "database") &&
			b.condition("dying", "Ready", "reason") == "DeletionFailed"
	})
	require.Equal(b, "Terminating", b.get("app", "dying", ".status.phase"))
	// A change of the spec reaches the pods of an app that runs.
	b.in("patch", "app", "old", "--type=merge", "-p", `{"spec":{"imageRef":"app:2"}}`)
	b.eventually("the image changes", func() bool { return b.get("deployment", "old", ".spec.template.spec.containers[0].image") == "app:2" })
	require.NoError(b, c.pg.Start(b.Context()))
	b.phase("new", "Running")
	b.eventually("the deletion ends", func() bool { return b.get("app", "dying", ".metadata.name") == "" })
	require.Empty(b, b.left("prod_dying"))
	b.eventually("the old one is well", func() bool { return b.condition("old", "Ready", "status") == "True" })
}
