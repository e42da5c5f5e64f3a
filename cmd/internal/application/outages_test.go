package application_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
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

// TestARestartWritesNothing is C5 and D3, with D5: nothing follows the last write of a
// status.
func TestARestartWritesNothing(t *testing.T) {
	t.Parallel()
	const many = 10
	c := newCell(t)
	b := c.bench(t, "restart")
	first := c.start(t)
	for n := range many {
		b.app(fmt.Sprint("app-", n), withDatabase)
	}
	for n := range many {
		b.phase(fmt.Sprint("app-", n), "Running")
	}
	b.rests(first)
	passwords := map[string]string{}
	for n := range many {
		name := fmt.Sprint("app-", n)
		passwords[name] = b.secret(name+"-db", "DB_PASSWORD")
	}
	first.stop()
	before, roles := len(c.sent(t)), b.rows("SELECT rolname || ' ' || coalesce(rolpassword, '') FROM pg_authid WHERE rolname LIKE 'prod%' ORDER BY 1")
	second := c.start(t)
	// A pass of each shows that it has begun.
	b.in("annotate", "app", "--all", "example.com/note=1")
	b.rests(second)
	reads := map[string]int{}
	for _, r := range c.sent(t)[before:] {
		require.NotContains(t, []string{"create", "update", "patch", "delete"}, r.Verb, r.String())
		reads[r.Verb+" "+r.Resource]++
	}
	require.GreaterOrEqual(t, reads["get secrets"], many)
	require.Equal(t, roles, b.rows("SELECT rolname || ' ' || coalesce(rolpassword, '') FROM pg_authid WHERE rolname LIKE 'prod%' ORDER BY 1"))
	for name, password := range passwords {
		require.Equal(t, password, b.secret(name+"-db", "DB_PASSWORD"))
		conn, err := b.login(name)
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
	}
	t.Logf("figure application_writes_at_restart 0 requests (%d applications, reads %v)", many, reads)
}

// TestTheDatabaseIsDown is D10, C6 and C26 for the database: apps without one run, one with
// is Pending and says why, a running one goes on, and a deletion waits.
func TestTheDatabaseIsDown(t *testing.T) {
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
		return strings.Contains(b.condition("dying", "Ready", "message"), "database") && b.condition("dying", "Ready", "reason") == "DeletionFailed"
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

// TestStorageIsDown is D11 and D14: an app with a database alone runs, one with buckets says
// why it waits and has its database, and a deletion waits with its step named, also over a
// restart of the operator.
func TestStorageIsDown(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.bench(t, "down")
	first := c.start(t)
	const both = ", imageRef: 'app:1', database: {enabled: true}, storage: {enabled: true, buckets: [{name: a}]}"
	b.app("dying", both)
	b.phase("dying", "Running")
	c.s3.Kill()
	b.app("new", both)
	b.app("without", withDatabase)
	b.phase("without", "Running")
	b.eventually("it says why", func() bool { return b.condition("new", "StorageReady", "reason") == "Unreachable" })
	b.eventually("it has its database", func() bool { return b.condition("new", "DatabaseReady", "status") == "True" })
	b.phase("new", "Pending")
	b.in("delete", "app", "dying", "--wait=false")
	b.eventually("the deletion names its step", func() bool { return strings.Contains(b.condition("dying", "Ready", "message"), "deletion: storage: ") })
	first.stop()
	c.start(t)
	require.NoError(b, c.s3.Start(b.Context()))
	b.eventually("the deletion ends", func() bool { return b.get("app", "dying", ".metadata.name") == "" })
	require.Empty(b, b.left("prod_dying"))
	require.Empty(b, b.buckets("plattr-prod-dying"))
	b.phase("new", "Running")
}
