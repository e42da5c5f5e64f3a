package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

const (
	tenApps = 10
	// withBuckets is an application with only the parts that are made fast.
	withBuckets = ", imageRef: 'app:1', scaling: {min: 1}, database: {enabled: true}, storage: {enabled: true, buckets: [{name: a}]}"
)

// eachOnce requires of the applications that each thing of theirs was made once: objects by
// the audit log, buckets by what the operators have sent, and in the database one schema
// with two roles and the password of the Secret.
func (b *bench) eachOnce(lives ...*life) {
	b.Helper()
	created := map[string]int{}
	for _, r := range b.sent(b.T) {
		if r.Code == http.StatusCreated && r.Namespace == b.name && r.Resource != "events" {
			created[r.Resource+"/"+r.Name]++
		}
	}
	for _, l := range lives {
		for _, s := range l.calls() {
			if s.to == "s3" && strings.HasPrefix(s.text, "PUT ") && !strings.Contains(s.text, "?tagging") && !strings.Contains(s.text, "?policy") &&
				!strings.Contains(s.text, "?cors") &&
				s.status == http.StatusOK {
				created[s.text]++
			}
		}
	}
	require.GreaterOrEqual(b, len(created), tenApps*9, "%v", created)
	for what, times := range created {
		require.Equal(b, 1, times, what)
	}
	for n := range tenApps {
		name := fmt.Sprint("ten-", n)
		schema := fmt.Sprint("prod_ten_", n)
		require.Equal(b, []string{schema, schema + "_anon", schema + "_app"}, b.left(schema))
		require.Equal(b, []string{fmt.Sprint("plattr-prod-ten-", n, "-a")}, b.buckets(fmt.Sprint("plattr-prod-ten-", n)))
		conn, err := b.login(name)
		require.NoError(b, err)
		require.NoError(b, conn.Close(context.WithoutCancel(b.Context())))
	}
}

// total is everything that a process has sent but for its Lease and its views.
func (r *running) total(l *life) (n int) {
	for _, request := range r.net.Requests() {
		if request.Writes() && request.Resource != "leases" {
			n++
		}
	}
	return n + len(l.calls())
}

// TestTheOtherReplicaTakesOver is D27: of two replicas only the leader sends anything; it is
// killed in a pass while ten applications are created, and within 60 s after its Lease has
// run out the other one has made them, each once.
func TestTheOtherReplicaTakesOver(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Lease runs out")
	}
	t.Parallel()
	const leaseLasts, limit = 15 * time.Second, 60 * time.Second
	c := newCell(t)
	b := c.bench(t, "replicas")
	var armed atomic.Bool
	var buckets atomic.Int64
	lives := []*life{{}, {}}
	for _, l := range lives {
		// It ends before the third bucket, with others under way.
		l.doomed = func(s sent) bool {
			return armed.Load() && s.to == "s3" && strings.HasPrefix(s.text, "PUT ") && buckets.Add(1) == 3
		}
	}
	processes := []*running{c.run(t, lives[0], 0), c.run(t, lives[1], 0)}
	b.app("first", withBuckets)
	b.phase("first", "Running")
	b.in("patch", "app", "first", "--type=merge", "-p", `{"spec":{"imageRef":"app:2"}}`)
	b.eventually(
		"the image changes",
		func() bool { return b.get("deployment", "first", ".spec.template.spec.containers[0].image") == "app:2" },
	)
	b.rests(processes[0])
	b.rests(processes[1])
	leader := 0
	if processes[0].total(lives[0]) == 0 {
		leader = 1
	}
	require.Positive(t, processes[leader].total(lives[leader]))
	require.Zero(t, processes[1-leader].total(lives[1-leader]), "only the leader writes: %v", lives[1-leader].calls())

	armed.Store(true)
	for n := range tenApps {
		b.app(fmt.Sprint("ten-", n), withBuckets)
	}
	b.eventually("the leader is killed", lives[leader].ended)
	killed := time.Now()
	armed.Store(false)
	for n := range tenApps {
		b.phase(fmt.Sprint("ten-", n), "Running")
	}
	took := time.Since(killed)
	t.Logf("figure application_takeover %.1f s after the kill", took.Seconds())
	require.Less(t, took, leaseLasts+limit)
	b.rests(processes[1-leader])
	b.eachOnce(lives...)
	processes[leader].stop()
}

// TestTheServerIsAway is D28: the API server is killed, for 15 seconds or with "make
// test-long" for two minutes, while ten applications are made. Nothing is made twice, and
// all run afterwards.
func TestTheServerIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage of minutes")
	}
	t.Parallel()
	away := 15 * time.Second
	if long() {
		away = 2 * time.Minute
	}
	c := newCell(t)
	b := c.bench(t, "away")
	l := &life{}
	r := c.run(t, l, 0)
	b.app("first", withBuckets)
	b.phase("first", "Running")
	for n := range tenApps {
		b.app(fmt.Sprint("ten-", n), withBuckets)
	}
	b.eventually("some are being made", func() bool { _, writes := l.count("s3"); return writes > 3 })
	c.cluster.StopServer()
	sent := len(r.net.Requests())
	time.Sleep(away)
	require.Greater(t, len(r.net.Requests()), sent, "it tries")
	response, err := http.Get("http://" + r.address + "/healthz") //nolint:noctx // a test
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, c.cluster.StartServer(t.Context()))
	back := time.Now()
	for n := range tenApps {
		name := fmt.Sprint("ten-", n)
		b.eventually(name+" is Running", func() bool {
			b.replaceUnreported()
			return b.get("app", name, ".status.phase") == "Running"
		})
	}
	t.Logf("figure application_after_outage %.1f s", time.Since(back).Seconds())
	b.rests(r)
	b.eachOnce(l)
	for n := range tenApps {
		b.in("delete", "app", fmt.Sprint("ten-", n), "--timeout=120s")
	}
	require.Empty(t, b.buckets("plattr-prod-ten"))
	require.Empty(
		t,
		b.rows(
			"SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'prod\\_ten%' UNION ALL SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'prod\\_ten%'",
		),
	)
}

// replaceUnreported deletes pods that run and are not ready: the pods of nodes without a
// heartbeat for long are marked so, and simulated nodes do not report them again.
func (b *bench) replaceUnreported() {
	b.Helper()
	pods := b.in(
		"get",
		"pods",
		"-o",
		`jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`,
	)
	for line := range strings.SplitSeq(pods, "\n") {
		if name, found := strings.CutSuffix(line, " False"); found {
			b.in("delete", "pod", name, "--wait=false", "--ignore-not-found")
		}
	}
}

// TestARestartOfConvergedApplicationsOnlyReads is mark A3 and C5: 10 applications with
// everything, or 100 with "make test-long"; a restart sends no write to any of the four
// dependencies, and a bounded number of reads.
func TestARestartOfConvergedApplicationsOnlyReads(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many applications")
	}
	t.Parallel()
	many := 10
	if long() {
		many = 100
	}
	c := newWholeCell(t)
	b := c.bench(t, "rest")
	first := c.start(t)
	const wants = ", imageRef: 'app:1', scaling: {min: 1}, database: {enabled: true}, storage: {enabled: true, buckets: [{name: a}]}, auth: {enabled: true}"
	for n := range many {
		b.app(fmt.Sprint("app-", n), wants)
	}
	for n := range many {
		b.phase(fmt.Sprint("app-", n), "Running")
	}
	b.rests(first)
	first.stop()
	before := b.everything()
	audited := len(c.sent(t))
	// The statistics of a session are counted when it has ended.
	sessions := func() (n int) {
		b.Helper()
		_, err := fmt.Sscan(b.rows("SELECT sessions::text FROM pg_stat_database WHERE datname = 'platform'")[0], &n)
		require.NoError(b, err)
		return n
	}
	opened := sessions()
	l := &life{}
	second := c.run(t, l, 0)
	b.eventually("each is looked at", func() bool {
		looked := 0
		for _, s := range l.calls() {
			if s.to == "keycloak" && strings.Contains(s.text, "/clients?") {
				looked++
			}
		}
		return looked >= many
	})
	b.rests(second)
	logins := sessions() - opened - 1 // the session of the query itself
	var writes []string
	for _, s := range l.calls() {
		if s.writes {
			writes = append(writes, s.String())
		}
	}
	require.Empty(t, writes)
	for _, r := range second.net.Writes() {
		require.Equal(t, "leases", r.Resource, r.String())
	}
	gets, read := 0, map[string]int{}
	for _, r := range c.sent(t)[audited:] {
		require.Contains(t, []string{"get", "list", "watch"}, r.Verb, r.String())
		if r.Verb == "get" {
			gets++
			read[r.Resource]++
		}
	}
	// The readiness of a Deployment is in its status, that of all other children in
	// metadata or of no interest. The passwords are in Secrets.
	require.LessOrEqual(t, read["deployments"], many)
	delete(read, "deployments")
	delete(read, "secrets")
	delete(read, "namespaces") // the identity of the cluster
	require.LessOrEqual(t, read["leases"], 2)
	delete(read, "leases")
	require.Empty(t, read)
	require.Empty(t, cmp.Diff(before, b.everything()))
	for n := range many { // D3: nothing was written, and the password works
		conn, err := b.login(fmt.Sprint("app-", n))
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
	}
	per := func(n int) float64 { return float64(n) / float64(many) }
	fmt.Printf("figure application_writes_at_restart 0 (%d applications)\n", many)
	for _, to := range []string{"sql", "s3", "keycloak"} {
		reads, _ := l.count(to)
		fmt.Printf("figure application_reads_per_app_%s %.1f\n", to, per(reads))
	}
	fmt.Printf("figure application_logins_per_app_sql %.1f\n", per(logins))
	fmt.Printf("figure application_reads_per_app_kubernetes %.1f\n", per(gets))
}
