package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/proxytest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// plane is a real control plane in virtual time, reached without a network.
type plane struct {
	t       *testing.T
	handler http.Handler
	store   *controlplanetest.Clusters
	token   string // file

	mu       sync.Mutex
	away     bool
	proxy    int               // what answers in the place of Starbase, as a status; 0: nothing does
	answer   *proxytest.Answer // the same
	requests int
	taken    int // capacity reports
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	database := controlplanetest.Open(t, filepath.Join(t.TempDir(), "trueup.db"))
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	p := &plane{t: t, store: &controlplanetest.Clusters{Database: database}, token: filepath.Join(t.TempDir(), "token")}
	token, _, err := p.store.RegisterCluster(t.Context(), clusterID, "nyc3")
	require.NoError(t, err)
	writeToken(t, p.token, token)
	p.handler = controlplanetest.ClusterAPI(t, p.store)
	return p
}

// RoundTrip implements http.RoundTripper.
func (p *plane) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	away, proxy, answer := p.away, p.proxy, p.answer
	p.requests++
	if !away && proxy == 0 && answer == nil && strings.HasSuffix(r.URL.Path, "/capacity") {
		p.taken++
	}
	p.mu.Unlock()
	if answer != nil {
		return answer.To(r)
	}
	recorder := httptest.NewRecorder()
	switch {
	case away:
		recorder.WriteHeader(http.StatusServiceUnavailable)
	case proxy != 0:
		recorder.Header().Set("Content-Type", "text/html")
		recorder.WriteHeader(proxy)
		_, _ = recorder.WriteString("<html>what is this?</html>")
	default:
		p.handler.ServeHTTP(recorder, r)
	}
	return recorder.Result(), nil
}

func (p *plane) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *plane) setProxy(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy = status
}

func (p *plane) setAnswer(answer *proxytest.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// rows returns how many records are stored of each pod and instant.
func (p *plane) rows() map[string]int {
	p.t.Helper()
	rows := map[string]int{}
	require.NoError(p.t, p.store.Database.Read(p.t.Context(), func(tx *controlplanetest.Tx) error {
		found, err := tx.QueryContext(p.t.Context(), `SELECT pod_id, taken_at FROM snapshots`)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var pod string
			var at int64
			if err := found.Scan(&pod, &at); err != nil {
				return err
			}
			rows[pod+" "+time.UnixMilli(at).UTC().Format("15:04:05")]++
		}
		return found.Err()
	}))
	return rows
}

// requireMinutes requires one row for each pod and minute from 12:00 on.
func (p *plane) requireMinutes(minutes int, pods ...string) {
	p.t.Helper()
	rows := p.rows()
	for n := range minutes {
		for _, pod := range pods {
			require.Equal(p.t, 1, rows[fmt.Sprintf("%s 12:%02d:00", pod, n)], "%s, minute %d: %v", pod, n, rows)
		}
	}
	require.Len(p.t, rows, minutes*len(pods))
}

func (p *plane) config(spool string) *shuttle.Config {
	p.t.Helper()
	env := environment(p.t)
	env["STARFORM_AUTH_TOKEN_FILE"], env["STARFORM_SNAPSHOT_WAL_DIR"] = p.token, spool
	config, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	require.NoError(p.t, err)
	return &config
}

// agent runs the units of one agent from one time after noon to another, over pods that
// are listed at its start; a bookmark comes each minute until quiet, 0 for never.
func (p *plane) agent(spool string, from, to, quiet time.Duration, pods ...*unstructured.Unstructured) (units *shuttle.Units, run func()) {
	units = shuttle.NewUnits(p.config(spool), nil, p, slog.New(slog.DiscardHandler))
	return units, func() {
		sleepUntil(from)
		ctx, cancel := context.WithDeadline(p.t.Context(), noon().Add(to))
		defer cancel()
		bookmarks := reconcile.StarterFunc(func(ctx context.Context) error {
			time.Sleep(2 * time.Second) // the first list takes a while
			if err := units.List(pods...); err != nil {
				return err
			}
			for tick := time.NewTicker(time.Minute); ; {
				select {
				case <-ctx.Done():
					return nil
				case <-tick.C:
					if quiet == 0 || time.Now().Before(noon().Add(quiet)) {
						units.Bookmark()
					}
				}
			}
		})
		group := reconcile.Group{Members: []reconcile.Member{
			{Name: "bookmarks", Starter: bookmarks}, {Name: "snapshots", Starter: units.Snapshots}, {Name: "capacity", Starter: units.Capacity},
		}}
		if err := group.Start(ctx); err != nil {
			p.t.Error(err)
		}
	}
}

// noon returns noon of the first day of virtual time.
func noon() time.Time { return time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC) }

func sleepUntil(past time.Duration) { time.Sleep(time.Until(noon().Add(past))) }

// billedPod is a customer pod.
func billedPod(t *testing.T, uid, more string) *unstructured.Unstructured {
	t.Helper()
	pod := &unstructured.Unstructured{}
	require.NoError(
		t,
		pod.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"proj-shop","uid":%q,
		"creationTimestamp":"2000-01-01T11:00:00Z","labels":{"starform.io/managed-by":"shuttle","starform.io/cluster-id":%q,
		"starform.io/workspace-id":"11111111-1111-4111-8111-111111111111","starform.io/project-id":"22222222222242228222222222222222",
		"starform.io/service-id":"33333333333343338333333333333333","starform.io/environment":"production","starform.io/tier":"nova"}},
		"spec":{"containers":[{"name":"main","image":"x"}]},"status":{"phase":"Running"}}`, uid, uid, clusterID)),
	)
	if more != "" {
		spec := &unstructured.Unstructured{}
		require.NoError(t, spec.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Pod","spec":`+more+`}`)))
		pod.Object["spec"] = spec.Object["spec"]
	}
	return pod
}

// TestC15SnapshotsPerMinute runs an agent for ten minutes, and two that overlap with a
// restart in mid-minute: one row for each pod and minute, without a gap.
func TestC15SnapshotsPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		a, b := billedPod(t, "pod-a", ""), billedPod(t, "pod-b", "")
		var agents sync.WaitGroup
		for _, times := range [][2]time.Duration{
			{10 * time.Second, 9*time.Minute + 50*time.Second},
			{4*time.Minute + 33*time.Second, 6*time.Minute + 59*time.Second},
			{7*time.Minute + 20*time.Second, 9*time.Minute + 30*time.Second},
		} {
			_, run := p.agent("", times[0], times[1], 0, a, b)
			agents.Go(run)
		}
		agents.Wait()
		p.requireMinutes(10, "pod-a", "pod-b")
	})
}

// TestC15APodIsNotBilledForATimeBeforeIt: the record of a minute may be made late, because
// the agent was restarted.
func TestC15APodIsNotBilledForATimeBeforeIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		young := billedPod(t, "young", "")
		young.SetCreationTimestamp(metav1Time(noon().Add(30 * time.Second)))
		_, run := p.agent("", 40*time.Second, 90*time.Second, 0, billedPod(t, "old", ""), young)
		run()
		require.Equal(t, map[string]int{"old 12:00:00": 1, "old 12:01:00": 1, "young 12:01:00": 1}, p.rows())
	})
}

// TestC16CountedLoss has Starbase away for ten minutes: without the folder each record is
// counted, with it each one arrives.
func TestC16CountedLoss(t *testing.T) {
	t.Parallel()
	for _, spool := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlane(t)
			dir := ""
			if spool {
				dir = filepath.Join(t.TempDir(), "wal")
			}
			time.AfterFunc(time.Until(noon().Add(2*time.Minute+30*time.Second)), func() { p.setAway(true) })
			time.AfterFunc(time.Until(noon().Add(12*time.Minute+30*time.Second)), func() { p.setAway(false) })
			first, run := p.agent(dir, 0, 6*time.Minute+30*time.Second, 0, billedPod(t, "pod-a", ""), billedPod(t, "pod-b", ""))
			run()
			second, run := p.agent(
				dir,
				6*time.Minute+40*time.Second,
				15*time.Minute-time.Second,
				0,
				billedPod(t, "pod-a", ""),
				billedPod(t, "pod-b", ""),
			)
			run()
			failed := first.Metric("starform_snapshots_failed_total") + second.Metric("starform_snapshots_failed_total")
			if spool {
				p.requireMinutes(15, "pod-a", "pod-b")
				require.Zero(t, failed)
				require.Zero(t, second.Metric("starform_snapshots_spooled"))
				return
			}
			require.Len(t, p.rows(), 2*5, "minutes 0 to 2, 13 and 14")
			require.EqualValues(t, 2*(10+1), failed, "ten minutes, and minute 6 once more after the restart")
		})
	}
}

// TestHostileProxiesEndNoRecord has something between answer for ten minutes in the place of
// Starbase: each record arrives.
func TestHostileProxiesEndNoRecord(t *testing.T) {
	t.Parallel()
	begin := map[string]func(*plane){}
	for _, status := range []int{200, 204, 302, 400, 403, 404, 413, 415, 422, 502} {
		begin[strconv.Itoa(status)+" with a page"] = func(p *plane) { p.setProxy(status) }
	}
	for _, answer := range proxytest.Answers() {
		begin[answer.Name] = func(p *plane) { p.setAnswer(&answer) }
	}
	for name, begin := range begin {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				time.AfterFunc(time.Until(noon().Add(2*time.Minute+30*time.Second)), func() { begin(p) })
				time.AfterFunc(time.Until(noon().Add(12*time.Minute+30*time.Second)), func() { p.setProxy(0); p.setAnswer(nil) })
				units, run := p.agent(
					filepath.Join(t.TempDir(), "wal"),
					0,
					15*time.Minute-time.Second,
					0,
					billedPod(t, "pod-a", ""),
					billedPod(t, "pod-b", ""),
				)
				run()
				p.requireMinutes(15, "pod-a", "pod-b")
				require.Zero(t, units.Metric("starform_snapshots_failed_total"))
				require.Zero(t, units.Metric("starform_snapshots_spooled"))
				require.EqualValues(t, p.taken, units.Metric("starform_capacity_reports_sent_total"))
				require.Greater(t, p.taken, 3, "also after the outage")
			})
		})
	}
}

// TestC17StaleCacheBillsNothing: a watch that is dead stops the records within two
// intervals; one that is quiet does not.
func TestC17StaleCacheBillsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		units, run := p.agent("", 0, 10*time.Minute-time.Second, 0, billedPod(t, "pod-a", ""))
		run()
		p.requireMinutes(10, "pod-a")
		require.LessOrEqual(t, units.Metric("starform_snapshots_skipped_total"), 1.0, "before the first list")
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		units, run := p.agent("", 0, 10*time.Minute-time.Second, 3*time.Minute+30*time.Second, billedPod(t, "pod-a", ""))
		run()
		p.requireMinutes(6, "pod-a") // the last bookmark came at 12:03:02
		require.EqualValues(t, 1+4, units.Metric("starform_snapshots_skipped_total"), "one before the first list, then from 12:06 on")
		require.LessOrEqual(t, units.Metric("starform_capacity_reports_sent_total"), 8.0, "nor are pods counted")
	})
}

// TestC18PriceBasis: a record has what the pod requests, as the scheduler sums it up.
func TestC18PriceBasis(t *testing.T) {
	t.Parallel()
	requests := func(cpu, memory string) string {
		return fmt.Sprintf(`"resources":{"requests":{"cpu":%q,"memory":%q}}`, cpu, memory)
	}
	for name, test := range map[string]struct {
		spec        string
		cpu, memory int64
	}{
		"none":             {`{"containers":[{"name":"a"}]}`, 0, 0},
		"one container":    {`{"containers":[{"name":"a",` + requests("0.25", "64Mi") + `}]}`, 250, 64 << 20},
		"two containers":   {`{"containers":[{"name":"a",` + requests("250m", "64Mi") + `},{"name":"b",` + requests("1", "1Gi") + `}]}`, 1250, 1088 << 20},
		"a large init":     {`{"initContainers":[{"name":"i",` + requests("2", "1Mi") + `}],"containers":[{"name":"a",` + requests("1", "64Mi") + `}]}`, 2000, 64 << 20},
		"a sidecar":        {`{"initContainers":[{"name":"i","restartPolicy":"Always",` + requests("100m", "1Mi") + `}],"containers":[{"name":"a",` + requests("1", "64Mi") + `}]}`, 1100, 65 << 20},
		"overhead":         {`{"overhead":{"cpu":"50m","memory":"1Mi"},"containers":[{"name":"a",` + requests("1", "64Mi") + `}]}`, 1050, 65 << 20},
		"less than a unit": {`{"containers":[{"name":"a",` + requests("1u", "100m") + `}]}`, 1, 1},
	} {
		units := shuttle.NewUnits(newConfig(t), nil, nil, slog.New(slog.DiscardHandler))
		s := units.Billed(billedPod(t, "pod-a", test.spec))
		require.Equal(t, test.cpu, s.CPUMillis, name)
		require.Equal(t, test.memory, s.MemoryBytes, name)
		require.Equal(t, "nova", s.Tier)
		require.Equal(t, "Running", s.Phase)
		require.Equal(t, "22222222-2222-4222-8222-222222222222", s.ProjectID)
		require.Equal(t, "33333333-3333-4333-8333-333333333333", s.ServiceID)
		require.Equal(t, "11111111-1111-4111-8111-111111111111", s.WorkspaceID)
		require.Equal(t, s.ID(), s.SnapshotID)
	}
}

func TestAPodThatIsNotUnderstoodIsBilledWithoutRequests(t *testing.T) {
	t.Parallel()
	units := shuttle.NewUnits(newConfig(t), nil, nil, slog.New(slog.DiscardHandler))
	record := units.Billed(billedPod(t, "pod-a", `{"containers":7}`))
	require.Equal(t, "Running", record.Phase)
	require.Equal(t, "pod-a", record.PodID)
	require.Zero(t, record.CPUMillis)
	require.NotZero(t, units.Metric("starform_informer_watch_errors_total"))
}

func TestCapacityIsReportedWithTheSoftLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		failed := billedPod(t, "pod-b", "")
		require.NoError(t, unstructured.SetNestedField(failed.Object, "Failed", "status", "phase"))
		units, run := p.agent("", 0, 5*time.Minute, 0, billedPod(t, "pod-a", ""), failed)
		run()
		require.GreaterOrEqual(t, units.Metric("starform_capacity_reports_sent_total"), 4.0)
		list, err := p.store.Overview(t.Context(), noon().Add(-time.Hour))
		require.NoError(t, err)
		require.NotNil(t, list[0].Latest)
		require.EqualValues(t, 2, list[0].Latest.Pods, "in whatever phase")
		require.EqualValues(t, 1000, list[0].Latest.SoftLimit)
	})
}

// TestARejectedRecordIsCountedAndNamed: a pod whose labels a person has changed is not billed.
func TestARejectedRecordIsCountedAndNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		wrong := billedPod(t, "pod-b", "")
		wrong.SetLabels(map[string]string{"starform.io/project-id": "mine"})
		units, run := p.agent("", 0, 30*time.Second, 0, billedPod(t, "pod-a", ""), wrong)
		run()
		require.EqualValues(t, 1, units.Metric("starform_snapshots_sent_total"))
		require.EqualValues(t, 1, units.Metric("starform_snapshots_failed_total"))
		p.requireMinutes(1, "pod-a")
	})
}

// TestC19ASlowStarbaseDelaysNoSnapshot: answers take 25 s.
func TestC19ASlowStarbaseDelaysNoSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		next := p.handler
		p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(25 * time.Second)
			next.ServeHTTP(w, r)
		})
		units, run := p.agent("", 0, 5*time.Minute-time.Second, 0, billedPod(t, "pod-a", ""))
		run()
		p.requireMinutes(5, "pod-a")
		require.Zero(t, units.Metric("starform_snapshots_failed_total"))
	})
}

func writeToken(t *testing.T, path, token string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
}

func metav1Time(at time.Time) metav1.Time { return metav1.NewTime(at) }

func newConfig(t *testing.T) *shuttle.Config {
	t.Helper()
	env := environment(t)
	config, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	require.NoError(t, err)
	return &config
}

// TestPodsThatAreNotListedYetAreNoError has a capacity unit before the first list.
func TestPodsThatAreNotListedYetAreNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		var log bytes.Buffer
		units := shuttle.NewUnits(p.config(""), nil, p, slog.New(slog.NewJSONHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		time.AfterFunc(30*time.Second, func() { _ = units.List() })
		require.NoError(t, units.Capacity.Start(ctx))
		require.Empty(t, log.String())
		require.GreaterOrEqual(t, units.Metric("starform_capacity_reports_sent_total"), 1.0)
	})
}
