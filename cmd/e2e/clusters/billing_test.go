package clusters_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
)

const billingInterval = 4 * time.Second

// twoAgents is D20 and C27: two agents without a Lease come to rest, also after a change,
// nothing is deleted twice, and each record is stored once.
func twoAgents(b *bench, _ database) {
	t := b.t
	b.put(spec{"replicas": 2}, "web", "api", "job")
	agents := []*agent{b.agent("STARFORM_SNAPSHOT_INTERVAL=2s").start(), b.agent("STARFORM_SNAPSHOT_INTERVAL=2s").start()}
	atRest := func() {
		t.Helper()
		for _, a := range agents {
			a.applied()
		}
		for _, a := range agents {
			a.quiet()
		}
		versions := b.versions()
		for _, a := range agents {
			a.passes(10)
		}
		require.Equal(t, versions, b.versions(), "neither writes over the other")
	}
	b.healthy(3)
	atRest()
	uids := b.uids("web", "job")
	b.put(spec{"image": "example.com/new", "replicas": 2}, "web")
	b.remove("api")
	await.Eventually(t, "what is deleted goes", func() bool { return b.stands("api").Standing == "Deleted" })
	b.healthy(2)
	atRest()
	require.Equal(t, uids, b.uids("web", "job"))
	require.Equal(t, "example.com/new", b.image("web"))
	// The agent that has not fetched the tombstone yet may create an object again that the
	// other has deleted. No object is deleted twice.
	alive := map[string]int{}
	for _, a := range agents {
		for _, r := range a.writes() {
			switch {
			case r.Resource == "configmaps" && r.Namespace == shuttle.Namespace: // its memory
			case r.Verb == "delete":
				require.Contains(t, r.Name, "api", r.String())
				if r.Status == http.StatusOK {
					alive[r.Resource+" "+r.Name]--
				}
			case r.Status == http.StatusCreated:
				alive[r.Resource+" "+r.Name]++
			}
		}
	}
	for object, n := range alive {
		if strings.Contains(object, "api") {
			require.Zero(t, n, "%s is deleted as often as it is made", object)
			continue
		}
		require.Equal(t, 1, n, object)
	}
	await.Eventually(t, "both bill", func() bool {
		return agents[0].metric("snapshots_sent_total") >= 12 && agents[1].metric("snapshots_sent_total") >= 12
	})
	require.Zero(t, twice(b.rows()))
	b.asWanted()
}

// versions returns the resourceVersion of each object of the agents.
func (b *bench) versions() map[string]string {
	b.t.Helper()
	found := map[string]string{}
	for _, kind := range []string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "ConfigMap", "Service", "Deployment", "PodDisruptionBudget"} {
		for _, o := range b.list(kindOf(kind)) {
			found[kind+" "+o.GetName()] = o.GetResourceVersion()
		}
	}
	return found
}

// taken is the answer to a batch of records.
type taken struct{ Accepted, Duplicates int }

// snapshotReplay is D21: the answer to a batch is lost, so it is sent again, and is all
// duplicates.
func snapshotReplay(b *bench, _ database) {
	t := b.t
	b.put(spec{"replicas": 2}, "web", "api")
	a := b.agent("STARFORM_SNAPSHOT_INTERVAL=" + billingInterval.String()).start()
	b.healthy(2)
	await.Eventually(t, "all are billed", func() bool { return len(b.rows()) == 4 })
	var lost atomic.Bool
	b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if endpointOf(r) == "snapshots" && lost.CompareAndSwap(false, true) {
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			if answer.Code != http.StatusOK {
				t.Errorf("the first time: %d", answer.Code)
			}
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	var second exchange
	await.Eventually(t, "it is sent again", func() (ok bool) {
		second, ok = b.link.repeated("snapshots")
		return ok && lost.Load()
	})
	var answer taken
	require.NoError(t, json.Unmarshal(second.answer, &answer))
	require.Equal(t, taken{0, 4}, answer)
	rows := b.rows()
	require.Zero(t, twice(rows))
	for _, times := range rows {
		require.LessOrEqual(t, gaps(times, billingInterval), int(a.metric("snapshots_skipped_total")), "%v", times)
	}
	require.Zero(t, a.metric("snapshots_failed_total"))
}

// dropped is D22 without the folder: each of five batches is counted as failed.
func dropped(b *bench, _ database) {
	t := b.t
	b.put(spec{"replicas": 2}, "web")
	a := b.agent("STARFORM_SNAPSHOT_INTERVAL="+billingInterval.String(), "STARFORM_CAPACITY_INTERVAL=2s", "STARFORM_SOFT_LIMIT=77").start()
	b.healthy(1)
	await.Eventually(t, "all are billed", func() bool { return len(b.rows()) == 2 })
	b.link.set(unavailable("snapshots"))
	failed := a.metric("snapshots_failed_total")
	await.Eventually(t, "five batches have failed", func() bool { return a.metric("snapshots_failed_total") >= failed+5*2 })
	failed = a.metric("snapshots_failed_total")
	b.link.set(nil)
	last := b.newest()
	await.Eventually(t, "it goes on", func() bool { return b.newest().After(last.Add(6 * billingInterval)) })
	for pod, times := range b.rows() {
		require.GreaterOrEqual(t, gaps(times, billingInterval), 4, pod)
	}
	require.GreaterOrEqual(t, failed, 10.0)
	for _, resource := range []string{"pods", "deployments", "networkpolicies"} {
		require.NotZero(t, a.metric(`informer_last_event_timestamp_seconds{resource="`+resource+`"}`), resource)
	}
	await.Eventually(t, "the pods are counted", func() bool {
		list, err := b.desired().Overview(t.Context(), time.Now().Add(-time.Hour))
		require.NoError(t, err)
		return list[0].Latest != nil && list[0].Latest.Pods == 2 && list[0].Latest.SoftLimit == 77
	})
}

// kept is D22 with the folder, and a restart in the outage: every record arrives with its
// own time.
func kept(b *bench, _ database) {
	t := b.t
	b.put(spec{"replicas": 2}, "web")
	a := b.agent("STARFORM_SNAPSHOT_INTERVAL="+billingInterval.String(), "STARFORM_SNAPSHOT_WAL_DIR="+filepath.Join(t.TempDir(), "wal")).
		start()
	b.healthy(1)
	await.Eventually(t, "all are billed", func() bool { return len(b.rows()) == 2 })
	b.kill()
	const missed = "snapshots_skipped_total" // also while the view was not there yet
	await.Eventually(t, "three batches wait", func() bool { return a.metric("snapshots_spooled") >= 3*2 })
	skipped, failed := a.metric(missed), a.metric("snapshots_failed_total")
	a.start()
	// Six: the first may be stored already, its answer lost with the replica.
	await.Eventually(t, "six batches wait", func() bool { return a.metric("snapshots_spooled") >= 6*2 })
	b.replica()
	await.Eventually(t, "all have arrived", func() bool { return a.metric("snapshots_spooled") == 0 })
	require.Zero(t, failed+a.metric("snapshots_failed_total"))
	skipped += a.metric(missed)
	rows := b.rows()
	require.Len(t, rows, 2)
	require.Zero(t, twice(rows))
	for pod, times := range rows {
		require.GreaterOrEqual(t, len(times), 6)
		require.LessOrEqual(t, gaps(times, billingInterval), int(skipped), "%s: %v", pod, times)
	}
}

// hole black-holes the watches of pods, without closing them.
type hole struct{ open atomic.Bool }

// Wrap wraps a transport.
func (h *hole) Wrap(next http.RoundTripper) http.RoundTripper {
	return httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/pods") || !r.URL.Query().Has("watch") {
			return next.RoundTrip(r)
		}
		if h.open.Load() {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		response, err := next.RoundTrip(r)
		if err == nil {
			response.Body = &swallowed{response.Body, h, r}
		}
		return response, err
	})
}

// swallowed is the body of a watch.
type swallowed struct {
	io.ReadCloser
	hole    *hole
	request *http.Request
}

// Read implements io.Reader.
func (s *swallowed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.hole.open.Load() {
		<-s.request.Context().Done()
		return 0, s.request.Context().Err()
	}
	return n, err
}

// deadWatch is D23 and C17: the records stop within two intervals, the gauge ages, and
// with a watch that works they go on. What is quiet and alive is billed all the time.
func deadWatch(b *bench, _ database) {
	t := b.t
	// The view is listed again after 1.5 silent intervals, and too old after two.
	const billingInterval = 6 * time.Second
	h := &hole{}
	b.put(spec{"replicas": 2}, "web")
	a := b.agent("STARFORM_SNAPSHOT_INTERVAL="+billingInterval.String(), "STARFORM_CAPACITY_INTERVAL="+billingInterval.String())
	a.wrap = h.Wrap
	a.start()
	b.healthy(1)
	await.Eventually(t, "all are billed", func() bool { return len(b.rows()) == 2 })
	stale := func() float64 { return a.metric(`snapshots_skipped_total{reason="stale"}`) }
	quiet, before := b.newest(), stale()
	await.Eventually(t, "a quiet cluster is billed", func() bool { return b.newest().After(quiet.Add(3 * billingInterval)) })
	require.Equal(t, before, stale()) //nolint:testifylint // a whole number

	dead := time.Now()
	h.open.Store(true)
	await.Eventually(t, "it stops, and says so", func() bool { return stale() >= before+2 })
	last := b.newest()
	require.Less(t, last.Sub(dead), 2*billingInterval)
	const seen = `informer_last_event_timestamp_seconds{resource="pods"}`
	require.Less(t, a.metric(seen), float64(dead.Add(time.Second).Unix()))
	require.NotZero(t, a.metric(`informer_watch_errors_total{resource="pods"}`))

	h.open.Store(false)
	await.Eventually(t, "it goes on", func() bool { return b.newest().After(last.Add(2 * billingInterval)) })
	require.Greater(t, a.metric(seen), float64(dead.Unix()))
}

// tokenRotation is D25 and C20: the old token is revoked at once, and the file changes when
// it has been used once more.
func tokenRotation(b *bench, _ database) {
	t := b.t
	b.put(nil, "web")
	a := b.agent().start()
	b.healthy(1)
	old := b.link.to("desired-state")[0].token
	var rotated struct{ Token string }
	b.admin(http.MethodPost, "clusters/"+b.id+"/rotate-token", spec{"overlap_seconds": 3600}, &rotated)
	require.NotEqual(t, old, rotated.Token)
	b.pulls(2) // both are taken
	b.useToken(rotated.Token)
	b.pulls(2) // the first may have begun before
	list := b.link.to("desired-state")
	require.Equal(t, rotated.Token, list[len(list)-1].token, "a changed file is in use by the next request")

	old = rotated.Token
	b.admin(http.MethodPost, "clusters/"+b.id+"/rotate-token", spec{"overlap_seconds": 3600}, &rotated)
	var refused atomic.Bool
	b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.Header.Get("Authorization"), old) && refused.CompareAndSwap(false, true) {
			b.useToken(rotated.Token)
		}
		next.ServeHTTP(w, r)
	})
	b.byHand("UPDATE clusters SET previous_token_until = 0, previous_token_hash = ''")
	await.Eventually(t, "the new one is used", refused.Load)
	b.pulls(3)
	b.link.set(nil)
	b.put(spec{"image": "example.com/new"}, "web")
	await.Eventually(t, "it goes on", func() bool { return b.image("web") == "example.com/new" })
	b.healthy(1)
	failed := map[string]int{}
	for _, endpoint := range []string{"desired-state", "status", "snapshots", "capacity"} {
		for _, e := range b.link.to(endpoint) {
			if e.status == http.StatusUnauthorized {
				failed[endpoint]++
				require.Equal(t, old, e.token)
			}
		}
	}
	require.NotEmpty(t, failed)
	for endpoint, n := range failed { // two may have read the file at the same moment
		require.Equal(t, 1, n, endpoint)
	}
	require.NotContains(t, b.log.String(), old)
	require.NotContains(t, b.log.String(), rotated.Token)
	require.NotContains(t, a.log.String(), "answered 401", "the same call has succeeded")
}
