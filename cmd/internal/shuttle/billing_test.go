package shuttle_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase/server"
)

// billing is the part of Starbase that takes records, as it is.
type billing struct {
	store *server.Store

	mu       sync.Mutex
	handler  http.Handler
	away     bool
	instants map[string]bool // that were sent while it was away
}

// bill gives the bench a real intake in place of none, and its token to the agent.
func (b *bench) bill(t *testing.T) *billing {
	t.Helper()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	store := &server.Store{Database: database}
	token, _, err := store.RegisterCluster(t.Context(), b.id, "nyc3")
	require.NoError(t, err)
	writeToken(t, b.token, token)
	handler, err := server.New(server.Config{Store: store, AdminToken: adminToken})
	require.NoError(t, err)
	s := &billing{store: store, handler: handler, instants: map[string]bool{}}
	b.starbase.mu.Lock()
	defer b.starbase.mu.Unlock()
	b.starbase.billing = s
	return s
}

func (s *billing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if !away {
		s.handler.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		s.mu.Lock()
		for part := range strings.SplitSeq(string(body), `"snapshot_timestamp":"`) {
			if instant, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(instant, "20") {
				s.instants[instant] = true
			}
		}
		s.mu.Unlock()
	}
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(http.StatusServiceUnavailable)
}

func (s *billing) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *billing) refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.instants)
}

// instants returns for each pod the times of its records, ascending.
func (s *billing) rows(t *testing.T) map[string][]time.Time {
	t.Helper()
	rows := map[string][]time.Time{}
	require.NoError(t, s.store.Database.Read(t.Context(), func(tx *db.Tx) error {
		found, err := tx.QueryContext(t.Context(), `SELECT pod_id, taken_at FROM snapshots ORDER BY taken_at`)
		if err != nil {
			return err
		}
		type row struct {
			pod string
			at  int64
		}
		list, err := db.Collect(found, nil, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.pod, &r.at) })
		for _, r := range list {
			rows[r.pod] = append(rows[r.pod], time.UnixMilli(r.at).UTC())
		}
		return err
	}))
	return rows
}

// newest is the time of the newest record, zero for none.
func (s *billing) newest(t *testing.T) (at time.Time) {
	t.Helper()
	for _, times := range s.rows(t) {
		if last := times[len(times)-1]; last.After(at) {
			at = last
		}
	}
	return at
}

// gaps counts the instants between the first and the last record of a pod that have none.
func gaps(times []time.Time, interval time.Duration) (n int) {
	for i := 1; i < len(times); i++ {
		n += int(times[i].Sub(times[i-1])/interval) - 1
	}
	return n
}

const billingInterval = 4 * time.Second

// countsWhatIsDropped is D22 without the folder: what five snapshots had is counted, and
// is missing.
func countsWhatIsDropped(t *testing.T, b *bench) {
	s := b.bill(t)
	b.starbase.serve(t, b.one(t, 1))
	a := b.start(t, "STARFORM_SNAPSHOT_INTERVAL="+billingInterval.String(), "STARFORM_CAPACITY_INTERVAL=2s", "STARFORM_SOFT_LIMIT=77")
	b.healthy(t, 3)
	eventually(t, "all pods are billed", func() bool { return len(s.rows(t)) == 6 })
	s.setAway(true)
	eventually(t, "five snapshots have failed", func() bool { return metric(t, a, "starform_snapshots_failed_total") >= 5*6 })
	s.setAway(false)
	last := s.newest(t)
	eventually(t, "it goes on", func() bool { return s.newest(t).After(last.Add(6 * billingInterval)) })
	for pod, times := range s.rows(t) {
		require.GreaterOrEqual(t, gaps(times, billingInterval), 4, pod)
	}
	require.NotZero(t, metric(t, a, "starform_snapshots_sent_total"))

	for _, resource := range []string{"pods", "deployments", "networkpolicies"} {
		require.NotZero(t, metric(t, a, `starform_informer_last_event_timestamp_seconds{resource="`+resource+`"}`), resource)
	}

	require.NotZero(t, metric(t, a, "starform_capacity_reports_sent_total"))
	eventually(t, "the pods are counted", func() bool {
		list, err := s.store.Overview(t.Context(), time.Now().Add(-time.Hour), time.Minute)
		require.NoError(t, err)
		return list[0].Latest != nil && list[0].Latest.Pods == 6 && list[0].Latest.SoftLimit == 77
	})
}

// keepsWhatCannotBeSent is D22 with the folder, and a restart in the outage: every record
// arrives with its own time.
func keepsWhatCannotBeSent(t *testing.T, b *bench) {
	s := b.bill(t)
	b.starbase.serve(t, b.one(t, 1))
	settings := []string{"STARFORM_SNAPSHOT_INTERVAL=" + billingInterval.String(), "STARFORM_SNAPSHOT_WAL_DIR=" + filepath.Join(t.TempDir(), "wal")}
	a := b.start(t, settings...)
	b.healthy(t, 3)
	eventually(t, "all pods are billed", func() bool { return len(s.rows(t)) == 6 })
	s.setAway(true)
	eventually(t, "three snapshots wait", func() bool { return metric(t, a, "starform_snapshots_spooled") >= 3*6 })
	skipped, failed := metric(t, a, `starform_snapshots_skipped_total{reason="missed"}`), metric(t, a, "starform_snapshots_failed_total")
	a.stop()
	a = b.start(t, settings...)
	eventually(t, "five snapshots wait", func() bool { return metric(t, a, "starform_snapshots_spooled") >= 5*6 })
	require.NotZero(t, s.refused())
	s.setAway(false)
	eventually(t, "all have arrived", func() bool { return metric(t, a, "starform_snapshots_spooled") == 0 })
	require.Zero(t, failed+metric(t, a, "starform_snapshots_failed_total"))
	skipped += metric(t, a, `starform_snapshots_skipped_total{reason="missed"}`)
	for pod, times := range s.rows(t) {
		require.GreaterOrEqual(t, len(times), 6)
		require.LessOrEqual(t, gaps(times, billingInterval), int(skipped), "%s: %v", pod, times)
	}
}

// billsOnceWithTwoAgents is the part of C27 and D20 about records.
func billsOnceWithTwoAgents(t *testing.T, b *bench) {
	s := b.bill(t)
	b.starbase.serve(t, b.one(t, 1))
	agents := []*agent{b.start(t, "STARFORM_SNAPSHOT_INTERVAL=2s"), b.start(t, "STARFORM_SNAPSHOT_INTERVAL=2s")}
	b.healthy(t, 3)
	eventually(t, "both have sent some", func() bool {
		return metric(t, agents[0], "starform_snapshots_sent_total") >= 30 && metric(t, agents[1], "starform_snapshots_sent_total") >= 30
	})
	for pod, times := range s.rows(t) {
		require.Len(t, slices.Compact(slices.Clone(times)), len(times), pod)
	}
	require.Len(t, s.rows(t), 6)
}

// hole black-holes the watches of pods, without closing them.
type hole struct {
	mu   sync.Mutex
	open bool
}

func (h *hole) set(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = open
}

func (h *hole) swallows() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Wrap wraps a transport.
func (h *hole) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/pods") || !r.URL.Query().Has("watch") {
			return next.RoundTrip(r)
		}
		if h.swallows() {
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

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type swallowed struct {
	io.ReadCloser
	hole    *hole
	request *http.Request
}

func (s *swallowed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.hole.swallows() {
		<-s.request.Context().Done()
		return 0, s.request.Context().Err()
	}
	return n, err
}

// stopsWithADeadWatch is D23: the records stop within two intervals, the gauge ages, and
// with a watch that works they go on. What is quiet and alive is billed all the time.
func stopsWithADeadWatch(t *testing.T, b *bench) {
	s := b.bill(t)
	h := &hole{}
	b.config = rest.CopyConfig(b.config)
	b.config.Wrap(h.Wrap)
	b.starbase.serve(t, b.one(t, 1))
	a := b.start(t, "STARFORM_SNAPSHOT_INTERVAL="+billingInterval.String(), "STARFORM_CAPACITY_INTERVAL="+billingInterval.String())
	b.healthy(t, 3)
	eventually(t, "all pods are billed", func() bool { return len(s.rows(t)) == 6 })
	stale := func() float64 { return metric(t, a, `starform_snapshots_skipped_total{reason="stale"}`) }
	quiet, before := s.newest(t), stale()
	eventually(t, "a quiet cluster is billed", func() bool { return s.newest(t).After(quiet.Add(4 * billingInterval)) })
	require.Equal(t, before, stale())

	dead := time.Now()
	h.set(true)
	eventually(t, "it stops, and says so", func() bool { return stale() >= before+3 })
	last := s.newest(t)
	require.Less(t, last.Sub(dead), 2*billingInterval)
	require.Less(t, metric(t, a, `starform_informer_last_event_timestamp_seconds{resource="pods"}`), float64(dead.Add(time.Second).Unix()))
	require.NotZero(t, metric(t, a, `starform_informer_watch_errors_total{resource="pods"}`))

	h.set(false)
	eventually(t, "it goes on", func() bool { return s.newest(t).After(last.Add(3 * billingInterval)) })
	require.Greater(t, metric(t, a, `starform_informer_last_event_timestamp_seconds{resource="pods"}`), float64(dead.Unix()), fmt.Sprint(dead))
}

// stopsWhileStarbaseIsSlow is the end of D24: no answer comes, and the agent stops all
// the same. That it does within 20 s is required by the bench.
func stopsWhileStarbaseIsSlow(t *testing.T, b *bench) {
	asked := make(chan string, 100)
	never := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// The end of the connection is only seen once the body was read.
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case asked <- r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]:
		default:
		}
		<-r.Context().Done()
	})
	b.starbase.set(never)
	b.starbase.mu.Lock()
	b.starbase.billing = never
	b.starbase.mu.Unlock()
	a := b.start(t, "STARFORM_RECONCILE_INTERVAL=30s", "STARFORM_SNAPSHOT_WAL_DIR="+filepath.Join(t.TempDir(), "wal"))
	for waiting := map[string]bool{"desired-state": true, "capacity": true}; len(waiting) > 0; {
		select {
		case path := <-asked:
			delete(waiting, path)
		case <-time.After(3 * time.Minute):
			require.Empty(t, waiting, "not asked")
		}
	}
	a.stop()
}
