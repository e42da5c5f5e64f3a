package simtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// elected is a copier that holds a Lease, or so it says.
func elected(ctx context.Context, net http.RoundTripper) error {
	const lease = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
	for {
		a, err := send(ctx, net, http.MethodPost, lease, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"it"}}`)
		if err == nil && (a["kind"] == "Lease" || a["reason"] == "AlreadyExists") || !pause.For(ctx, time.Second) {
			break
		}
	}
	return copier{}.run(ctx, net)
}

// habitual is a scenario in which each habit can show.
func habitual() simtest.Scenario {
	s := short(copier{})
	s.Program, s.Edits = elected, 20
	s.Kinds = append(
		slices.Clone(s.Kinds),
		simtest.Kind{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true},
		simtest.Kind{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		simtest.Kind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"},
	)
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		for i := range 2 {
			if err := w.Create(machine(fmt.Sprint("n", i), false)); err != nil {
				panic(err)
			}
		}
	}
	s.Actors = []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act}
	return s
}

// evicting is a scenario whose program evicts all pods.
func evicting() simtest.Scenario {
	s := habitual()
	s.Edit = func(w *simtest.World) {
		_ = w.Create(simtest.Object{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": "p"}})
	}
	s.Converged, s.State = nil, func(*simtest.World) string { return "" }
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		for pause.For(ctx, 5*time.Second) {
			const eviction = `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p","namespace":"shop"}}`
			_, _ = send(ctx, net, http.MethodPost, "/api/v1/namespaces/shop/pods/p/eviction", eviction)
		}
		return nil
	}
	return s
}

// TestTheClockOfTheServerIsApart has times of objects that are made at once.
func TestTheClockOfTheServerIsApart(t *testing.T) {
	t.Parallel()
	seen := map[bool]bool{}
	for seed := range uint64(12) {
		var apart time.Duration
		s := habitual()
		s.Disturbances, s.Rest = []applytest.Disturbance{simtest.SkewClock}, time.Minute
		s.Check = func(_ *simtest.World, c simtest.Change) error {
			if c.Before == nil {
				made, err := time.Parse(time.RFC3339, c.After.Field("metadata", "creationTimestamp").(string))
				apart = max(apart, time.Until(made).Abs()) // the world to compare with has one clock
				return err
			}
			return nil
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed).Wrong)
		require.Less(t, apart, 10*time.Minute+time.Second)
		seen[apart > 2*time.Second] = true
	}
	require.Len(t, seen, 2, "in some histories, and not in others")
}

// TestEachHabitShows simulates histories with one habit alone, until its effect is in
// the trace.
func TestEachHabitShows(t *testing.T) {
	t.Parallel()
	shows := map[applytest.Disturbance]string{
		applytest.KillBefore:    `kill before .*\n(.*\n)*.*life 2: starts`,
		applytest.KillAfter:     `kill after .*\n(.*\n)*.*life 2: starts`,
		applytest.LoseRequest:   `: lose (.*)\n.*: applytest: connection lost`,
		applytest.LoseAnswer:    `: lose the answer of (.*)\n.*: applytest: connection lost`,
		applytest.ServerError:   `answer 500 to .*\n.*: 500 `,
		applytest.Throttle:      `answer 429 to .*\n.*: 429 `,
		applytest.CutWatches:    `cut the watches at`,
		applytest.ExpireWatches: `expire the watches at .*\n(.*\n)*.*life \d+: list .*\n`,
		simtest.Touch:           `touch the object of (delete|update|patch) (.*)\n.* another client: update `,
		simtest.LabelObject:     `label the object of (delete|update|patch) (.*)\n.* another client: update `,
		simtest.HoldObject:      `hold the object of (delete|update|patch) (.*)\n.* another client: update (.*\n)*.* another client: update `,
		simtest.AddField:        `add a field of another to the object of .*\n.* another client: update configmaps shop/`,
		simtest.DeleteDependent: `delete the dependent of (.*)\n.* another client: delete parts`,
		simtest.LoseRights:      `take the right for (.*)\n.*: 403 .* is forbidden`,
		simtest.ExpireToken:     `expire the token at (.*)\n.*: 401 Unauthorized\n.*: 401 Unauthorized\n`,
		simtest.StopServer:      `stop the server at (.*)\n.*: applytest: connection lost\n.*: applytest: connection lost\n`,
		simtest.ProxyPage:       `answer as a proxy to (.*)\n.*\(a page\): 502\n`,
		simtest.ProxyRefusal:    `refuse as a proxy (.*)\n.*\(a page\): 400\n`,
		simtest.LoginPage:       `show a login page to (.*)\n.*\(a page\): 200\n`,
		simtest.CutAnswer:       `cut the answer of (.*)\n`,
		simtest.FailWebhook:     `fail the webhook of (.*)\n.*: 500 Internal error occurred: failed calling webhook`,
		simtest.FillQuota:       `fill the quota of (.*)\n(.*\n)*.*: 403 .* is forbidden: exceeded quota`,
		simtest.HideKind:        `make unavailable the kind of (.*)\n.*: 503 service unavailable\n`,
		simtest.ChangeLeader:    `change the leader of etcd at create configmaps .*\n.*: 500 etcdserver: leader changed\n(.*\n)*.*: 409 .*already exists`,
		simtest.TimeOut:         `time out (.*)\n.*: 504 Timeout: `,
		simtest.ThrottleAll:     `throttle all from (.*)\n.*: 429 .*\n.*: 429 `,
		simtest.SlowDown:        `slow down from `,
		simtest.SilenceWatches:  `silence the watches at `,
		simtest.AddReplica:      `another replica starts\n(.*\n)*.*life 2: starts\n(.*\n)*.*life 1: `,
		simtest.FlapNode:        `flap a node at (.*)\n.*node controller: update nodes n\d: 200\n(.*\n)*.*node controller: update nodes n\d: 200\n`,
		simtest.CordonNode:      `cordon a node at (.*)\n.*administrator: update nodes n\d: 200\n(.*\n)*.*administrator: update nodes n\d: 200\n`,
		simtest.DeleteNode:      `delete a node at (.*)\n.*cloud-controller-manager: delete nodes n\d: 200\n`,
		simtest.LateEvents:      ``,
		simtest.RepeatEvents:    `watch \d+: \S+ \S+ .* again\n`,
		simtest.EndWatches:      ``,
		simtest.StaleReads:      ``,
		simtest.FillDisk:        `fill the disk of etcd at (.*)\n(.*\n)*.*: 500 etcdserver: mvcc: database space exceeded`,
		simtest.BlockEvictions:  `block evictions from (.*)\n(.*\n)*.*create pods/eviction shop/\S+: 429 Cannot evict pod`,
		simtest.RecreateKind:    `delete the definition of (.*)\n(.*\n)*.*definition: delete \S+ shop/\S+: 200\n(.*\n)*.*: 404 the server could not find the requested resource`,
		simtest.RestoreStore:    `restore a backup at (.*)\n.*backup: [1-9]\d* objects restored\n`,
		simtest.RunOlder:        `start an older version at (.*)\n.*an older version starts\n`,
		simtest.SkewClock:       ``,
	}
	for _, h := range simtest.Habits() {
		t.Run(string(h.Name), func(t *testing.T) {
			t.Parallel()
			want, ok := shows[h.Name]
			require.True(t, ok, "%s has no effect that is known", h.Name)
			effect := regexp.MustCompile(want)
			for seed := uint64(1); ; seed++ {
				require.Less(t, seed, uint64(200), "it does not show")
				s := habitual()
				if h.Name == simtest.DeleteDependent || h.Name == simtest.RepeatEvents {
					s = scenario(controller{})
				}
				if h.Name == simtest.RestoreStore {
					s.Check = nil // what was decided before is no longer so
				}
				if h.Name == simtest.BlockEvictions {
					s = evicting()
				}
				older, program := false, s.Program
				s.Older = func(ctx context.Context, net http.RoundTripper) error {
					older = true
					return program(ctx, net)
				}
				s.Disturbances, s.Rest = []applytest.Disturbance{h.Name}, time.Minute
				r := simtest.Simulate(t, always(s), seed)
				require.Empty(t, r.Wrong, "a sound program gets over %s, seed %d", h.Name, seed)
				if effect.MatchString(r.Trace) {
					require.Equal(t, h.Name == simtest.RunOlder, older)
					break
				}
			}
		})
	}
	require.Len(t, simtest.Habits(), len(shows))
	fmt.Printf("figure sim_habits %d count\n", len(shows))
}

// TestWatchesEndWithTheirState: a program watches again after a definition or a backup. Actors see
// what a backup changes.
func TestWatchesEndWithTheirState(t *testing.T) {
	t.Parallel()
	restored := 0
	for habit, line := range map[applytest.Disturbance]string{
		simtest.RecreateKind: `definition: delete widgets\.example\.com shop/\S+: 200\n`,
		simtest.RestoreStore: `backup: [1-9]\d* objects restored\n`,
	} {
		effect, seen := regexp.MustCompile(line), 0
		for seed := range uint64(20) {
			if testing.Short() && seen == 3 {
				break
			}
			s := scenario(controller{})
			s.Disturbances, s.Check, s.Rest = []applytest.Disturbance{habit}, nil, time.Minute
			s.Actors = []func(*simtest.World, simtest.Change){func(_ *simtest.World, c simtest.Change) {
				if c.By == "backup" {
					restored++
				}
			}}
			faults, _, _ := strings.Cut(simtest.Simulate(t, always(s), seed+1).Trace, "no more faults")
			if at := effect.FindStringIndex(faults); at != nil {
				seen++
				require.Regexp(t, `life \d+: watch widgets`, faults[at[0]:], "%s, seed %d", habit, seed+1)
			}
		}
		require.Positive(t, seen, habit)
	}
	require.Positive(t, restored)
}

// TestASilentWatchBringsNothing has events after it went silent.
func TestASilentWatchBringsNothing(t *testing.T) {
	t.Parallel()
	seen := false
	for seed := uint64(1); seed < 40 && !seen; seed++ {
		s := scenario(controller{})
		s.Disturbances, s.Rest = []applytest.Disturbance{simtest.SilenceWatches}, time.Minute
		r := simtest.Simulate(t, always(s), seed)
		before, after, ok := strings.Cut(r.Trace, "silence the watches at")
		if !ok {
			continue
		}
		delivered := regexp.MustCompile(`watch (\d+): (ADDED|MODIFIED|DELETED) `)
		open := map[string]bool{}
		for _, m := range delivered.FindAllStringSubmatch(before, -1) {
			open[m[1]] = !strings.Contains(before, "watch "+m[1]+": ends")
		}
		for _, m := range delivered.FindAllStringSubmatch(after, -1) {
			require.False(t, open[m[1]], "seed %d: watch %s was silent: %s", seed, m[1], m[0])
		}
		seen = seen || strings.Contains(after, "user: update")
	}
	require.True(t, seen)
}

// TestThePageOfHabitsIsThatOfTheCode reads docs/testing.md.
func TestThePageOfHabitsIsThatOfTheCode(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	for _, h := range simtest.Habits() {
		require.Contains(t, string(data), fmt.Sprintf("\n| %s | %s | %s |\n", h.Name, strings.TrimSuffix(h.Does, "."), h.Source))
	}
}

// freeing takes the finalizers out of all that a program writes.
type freeing struct{ http.RoundTripper }

func (f freeing) RoundTrip(r *http.Request) (*http.Response, error) {
	var object map[string]any
	if r.Body == nil {
		return f.RoundTripper.RoundTrip(r)
	}
	if body, err := io.ReadAll(r.Body); err == nil && json.Unmarshal(body, &object) == nil {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			metadata["finalizers"] = nil
			body, _ = json.Marshal(object)
		}
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return f.RoundTripper.RoundTrip(r)
}

func TestWhoTakesAwayAFinalizerOfAnotherIsBlamed(t *testing.T) {
	t.Parallel()
	blamed := func(frees bool) bool {
		for seed := range uint64(20) {
			s := scenario(controller{})
			program := s.Program
			s.Program = func(ctx context.Context, net http.RoundTripper) error {
				if frees {
					net = freeing{net}
				}
				return program(ctx, net)
			}
			s.Disturbances, s.Rest = []applytest.Disturbance{simtest.HoldObject}, time.Minute
			r := simtest.Simulate(t, always(s), seed+1)
			if strings.Contains(strings.Join(r.Wrong, "\n"), "it has taken away the finalizer of another client") {
				return true
			}
		}
		return false
	}
	require.False(t, blamed(false))
	require.True(t, blamed(true))
}
