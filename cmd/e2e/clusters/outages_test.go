package clusters_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// starbaseOutage is D16 and C7 without any replica: manually deleted objects come back,
// the agent deletes nothing and stays ready.
func starbaseOutage(b *bench, _ database) {
	b.put(nil, "web", "api")
	a := b.agent().start()
	b.healthy(2)
	a.quiet()
	during(b, a, b.kill)
	b.replica()
	b.put(spec{"image": "example.com/new"}, "web")
	await.Eventually(b.t, "it goes on", func() bool { return b.image("web") == "example.com/new" })
	b.healthy(2)
	require.Empty(b.t, a.deletes())
}

// during has an outage begin, and deletes the Deployment api in it.
func during(b *bench, a *agent, begin func()) {
	t := b.t
	t.Helper()
	writes, uids := len(a.writes()), b.uids("web")
	begin()
	a.deleteAndRepair("api")
	a.passes(10)
	status, text := a.ask("/readyz")
	require.Equal(t, http.StatusOK, status, text)
	require.Len(t, a.since(writes), 1, "nothing but the repair: %+v", a.writes()[writes:])
	require.Equal(t, uids, b.uids("web"))
}

// databaseOutage is D16 with a control plane that answers 503.
func databaseOutage(b *bench, _ database) {
	t := b.t
	own := pgtest.Start(t, pgtest.Options{})
	b.kill()
	require.NoError(t, b.desired().Database.Close())
	b.open(own.Database(t))
	b.replica()
	var registered struct{ Token string }
	b.admin(http.MethodPut, "clusters/"+b.id, spec{"region": "nyc3"}, &registered)
	b.useToken(registered.Token)
	b.project(mainProject, nil)
	b.put(nil, "web", "api")
	a := b.agent().start()
	b.healthy(2)
	a.quiet()
	asked := len(b.link.to("desired-state"))
	during(b, a, own.Kill)
	codes := map[int]int{}
	for _, e := range b.link.to("desired-state")[asked:] {
		codes[e.status]++
	}
	require.Positive(t, codes[http.StatusServiceUnavailable], "%v", codes)
	require.NoError(t, own.Start(t.Context()))
	b.put(spec{"image": "example.com/new"}, "web")
	await.Eventually(t, "it goes on", func() bool { return b.image("web") == "example.com/new" })
	b.healthy(2)
	require.Empty(t, a.deletes())
}

// restartInOutage is D17: an agent without a desired state changes nothing.
func restartInOutage(b *bench, _ database) {
	t := b.t
	b.put(nil, "web", "api")
	a := b.agent().start()
	b.healthy(2)
	a.quiet()
	a.stop()
	b.kill()
	api := b.deleteByHand("api")
	kept := b.uids("web")
	a.start()
	await.Eventually(t, "it has asked in vain", func() bool { return a.metric("starbase_request_duration_seconds_count") >= 3 })
	status, text := a.ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "starbase: not ready: no answer yet")
	status, _ = a.ask("/healthz")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, a.writes(), "nothing is known, so nothing is changed")
	b.replica()
	await.Eventually(t, "it converges", func() bool { return b.isBack("api", api) })
	b.healthy(2)
	a.quiet()
	require.Len(t, a.writes(), 1, "one object was missing, one is written: %v", a.since(0))
	require.Equal(t, kept, b.uids("web"))
	status, _ = a.ask("/readyz")
	require.Equal(t, http.StatusOK, status)
}

// TestD18AnOutageOfTheServerDeletesNothing stops the API server of a Kubernetes of its own:
// passes go on failing, and the first one afterwards deletes nothing that is wanted.
func TestD18AnOutageOfTheServerDeletesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage of the API server")
	}
	t.Parallel()
	kube := startKubernetes(t)
	b := newBench(t, kube, "d18", t.TempDir()+"/trueup.db")
	b.put(nil, "web", "api", "old")
	a := b.agent().start()
	b.healthy(3)
	a.quiet()
	uids, version := b.uids("web", "api"), a.metric("applied_generation")
	kube.started.StopServer()
	began := time.Now()
	b.remove("old")
	b.put(spec{"image": "example.com/new"}, "web")
	failed := a.metric("reconcile_errors_total")
	await.Eventually(t, "passes fail", func() bool { return a.metric("reconcile_errors_total") >= failed+3 })
	for everything() && time.Since(began) < 2*time.Minute {
		a.passes(1)
	}
	require.Equal(t, version, a.metric("applied_generation")) //nolint:testifylint // a whole number
	status, _ := a.ask("/healthz")
	require.Equal(t, http.StatusOK, status)
	sent := len(a.deletes())
	require.NoError(t, kube.started.StartServer(t.Context()))
	await.Eventually(t, "it converges", func() bool { return b.image("web") == "example.com/new" && b.deployment("old") == nil })
	b.healthy(2)
	b.asWanted()
	require.Equal(t, uids, b.uids("web", "api"), "neither was deleted")
	for _, r := range a.deletes()[sent:] {
		require.Contains(t, r.Name, "old", r.String())
	}
	b.stop()
	require.Empty(t, b.misjudged())
}

// slowStarbase is D24 and C19: each answer takes five sixths of the agent's interval. The
// times are the contract's with TRUEUP_SCENARIOS=all, else a fifth.
func slowStarbase(b *bench, _ database) {
	t := b.t
	unit := time.Second
	if everything() {
		unit = 5 * time.Second
	}
	b.put(nil, "web")
	b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-time.After(5 * unit):
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	})
	interval := 12 * unit
	a := b.agent("STARFORM_RECONCILE_INTERVAL="+(6*unit).String(), "STARFORM_SNAPSHOT_INTERVAL="+interval.String(), "STARFORM_CAPACITY_INTERVAL="+interval.String()).
		start()
	await.Eventually(t, "it is billed", func() bool { return len(b.rows()) == 1 })
	first := b.newest()
	await.Eventually(t, "it is billed at each instant", func() bool { return !b.newest().Before(first.Add(2 * interval)) })
	for pod, times := range b.rows() {
		require.Zero(t, gaps(times, interval), "%s: %v", pod, times)
	}
	require.Zero(t, a.metric("snapshots_failed_total"), "%s", b.link.times("snapshots"))
	for _, endpoint := range []string{"desired-state", "snapshots"} {
		require.Zero(t, b.link.overlaps(endpoint), "%s: one after the other: %s", endpoint, b.link.times(endpoint))
	}
	pulls := len(b.link.to("desired-state"))
	await.Eventually(t, "an answer is on its way", func() bool { return len(b.link.to("desired-state")) > pulls })
	a.stop() // within 20 s
}

// twoServers is D30: of two replicas one is killed while it answers a batch of records,
// before it has stored them, and then after. The other takes the repeated batch.
func twoServers(b *bench, _ database) {
	t := b.t
	interval := 4 * time.Second
	b.put(spec{"replicas": 2}, "web", "api")
	byAddress := func(r *http.Request) string { return fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)) }
	a := b.agent("STARFORM_SNAPSHOT_INTERVAL=" + interval.String()).start()
	b.healthy(2)
	await.Eventually(t, "all are billed", func() bool { return len(b.rows()) == 4 })
	for _, stored := range []bool{false, true} {
		b.replica()
		var chosen atomic.Bool
		var killed atomic.Pointer[string]
		b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if at := byAddress(r); endpointOf(r) == "snapshots" && chosen.CompareAndSwap(false, true) {
				if stored {
					next.ServeHTTP(discard{}, r)
				}
				b.balancer.Remove(at)
				killed.Store(&at) // not before it has stored them
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
		await.Eventually(t, "one is killed in a POST", func() bool { return killed.Load() != nil })
		for i, p := range b.replicas {
			if p.Address == *killed.Load() {
				p.Stop()
				b.replicas = slices.Delete(b.replicas, i, i+1)
				break
			}
		}
		require.Len(t, b.replicas, 1)
		answer := ""
		await.Eventually(t, "the other one answers", func() bool {
			second, ok := b.link.repeated("snapshots")
			answer = string(second.answer)
			return ok && second.status == http.StatusOK
		})
		if stored {
			require.Contains(t, answer, `"accepted":0,"duplicates":4`)
		} else {
			require.Contains(t, answer, `"accepted":4,"duplicates":0`)
		}
		b.link.set(nil)
	}
	last := b.newest()
	await.Eventually(t, "it goes on", func() bool { return b.newest().After(last.Add(interval)) })
	rows := b.rows()
	require.Zero(t, twice(rows))
	for pod, times := range rows {
		require.LessOrEqual(t, gaps(times, interval), int(a.metric("snapshots_skipped_total")), "%s: %v", pod, times)
	}
	require.Zero(t, a.metric("snapshots_failed_total"))
}

// discard is where the answer of a replica goes that is killed.
type discard struct{}

// Header implements http.ResponseWriter.
func (discard) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (discard) WriteHeader(int) {}
