package simtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// asking is a scenario of one disturbance, whose program asks once a second.
func asking(what applytest.Disturbance, ask func(context.Context, http.RoundTripper)) simtest.Scenario {
	s := short(copier{})
	s.Converged, s.ReadOnly, s.Rest = nil, true, time.Minute
	s.Edits, s.Disturbances = 8, []applytest.Disturbance{what}
	s.State = func(*simtest.World) string { return "" }
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		for pause.For(ctx, time.Second) {
			ask(ctx, net)
		}
		return nil
	}
	return s
}

func get(ctx context.Context, net http.RoundTripper) {
	_, _ = send(ctx, net, http.MethodGet, "/apis/example.com/v1/widgets", "")
}

// when is the time of a line of a trace.
func when(t *testing.T, line string) time.Duration {
	t.Helper()
	first, _, _ := strings.Cut(line, " ")
	d, err := time.ParseDuration(first)
	require.NoError(t, err, line)
	return d
}

// TestASpellEnds has the server away for a while, not beyond the longest while, and not
// once there are no more faults.
func TestASpellEnds(t *testing.T) {
	t.Parallel()
	again, cut := 0, 0
	for seed := range uint64(20) {
		s := asking(simtest.StopServer, get)
		s.Edits = 40
		r := simtest.Simulate(t, always(s), seed+1)
		require.Empty(t, r.Wrong)
		began, away, calm := time.Duration(0), false, false
		for line := range strings.Lines(r.Trace) {
			switch {
			case strings.Contains(line, "stop the server at"):
				began = when(t, line)
			case strings.Contains(line, "no more faults"):
				calm = true
				if away && when(t, line)-began < time.Minute {
					cut++
				}
			case strings.Contains(line, "connection lost"):
				away = true
				require.False(t, calm, "seed %d, without faults: %s", seed+1, line)
				require.LessOrEqual(t, when(t, line)-began, 2*time.Minute, "seed %d: %s", seed+1, line)
			case strings.Contains(line, "list widgets"):
				if away && !calm {
					again++
				}
				away = false
			}
		}
	}
	require.Positive(t, again, "the server comes back")
	require.Positive(t, cut, "it would still be away")
}

func TestAnswersAreSlowForAWhile(t *testing.T) {
	t.Parallel()
	slowest := map[string]time.Duration{}
	for seed := range uint64(20) {
		var start time.Time
		took := map[time.Duration]time.Duration{}
		s := asking(simtest.SlowDown, func(ctx context.Context, net http.RoundTripper) {
			asked := time.Now()
			get(ctx, net)
			took[asked.Sub(start)] = time.Since(asked)
		})
		edit := s.Start
		s.Start = func(w *simtest.World) { start = time.Now(); edit(w) }
		r := simtest.Simulate(t, always(s), seed+1)
		require.Empty(t, r.Wrong)
		calm := when(t, regexp.MustCompile(`\S+ no more faults`).FindString(r.Trace))
		for asked, d := range took {
			phase := "faulty"
			if asked > calm {
				phase = "calm"
			}
			slowest[phase] = max(slowest[phase], d)
		}
	}
	require.Greater(t, slowest["faulty"], 10*time.Second)
	require.LessOrEqual(t, slowest["calm"], 10*time.Millisecond)
}

// TestASpellRefusesWhatItIsFor has a program that reads and writes two kinds.
func TestASpellRefusesWhatItIsFor(t *testing.T) {
	t.Parallel()
	writes := func(verb string) bool { return verb == "create" || verb == "update" }
	for _, test := range []struct {
		what    applytest.Disturbance
		refused string
		meets   func(began, verb string) bool // of one kind
	}{
		{simtest.LoseRights, `: 403 `, func(began, verb string) bool { return verb == began }},
		{simtest.FailWebhook, `: 500 .*failed calling webhook`, func(began, verb string) bool { return writes(began) && writes(verb) }},
		{simtest.FillQuota, `: 403 .*exceeded quota`, func(began, verb string) bool { return writes(began) && verb == "create" }},
		{simtest.HideKind, `: 503 `, func(string, string) bool { return true }},
	} {
		t.Run(string(test.what), func(t *testing.T) {
			t.Parallel()
			seen := 0
			for seed := range uint64(12) {
				r := simtest.Simulate(t, always(asking(test.what, func(ctx context.Context, net http.RoundTripper) {
					get(ctx, net)
					for _, each := range [][2]string{
						{"/api/v1/namespaces/shop/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`},
						{"/apis/example.com/v1/namespaces/shop/parts", `{"apiVersion":"example.com/v1","kind":"Part","metadata":{"name":"x"}}`},
					} {
						path, body := each[0], each[1]
						_, _ = send(ctx, net, http.MethodGet, path, "")
						_, _ = send(ctx, net, http.MethodPost, path, body)
						_, _ = send(ctx, net, http.MethodPut, path+"/x", body)
					}
				})), seed+1)
				began := regexp.MustCompile(`life \d+: ` + string(test.what) + ` (\w+) (\S+)`)
				refused := regexp.MustCompile(`life \d+: (\w+) (\S+) .*` + test.refused)
				var all [][]string
				for line := range strings.Lines(r.Trace) {
					if m := began.FindStringSubmatch(line); m != nil {
						all = append(all, m)
					}
					if m := refused.FindStringSubmatch(line); m != nil {
						met := false
						for _, each := range all {
							met = met || each[2] == m[2] && test.meets(each[1], m[1])
						}
						require.True(t, met, "seed %d: %s", seed+1, line)
						seen++
					}
				}
			}
			require.Greater(t, seen, 3)
		})
	}
}

// follower is a watch of a program.
type follower struct {
	opened, ended time.Duration
	bookmarks     []time.Duration
	err           error
}

// watching is a scenario whose program has a watch beside its other requests.
func watching(what applytest.Disturbance, all *[]*follower) simtest.Scenario {
	s := asking(what, get)
	s.Edits, s.Rest = 12, 10*time.Minute
	var start time.Time
	edit, program := s.Start, s.Program
	s.Start = func(w *simtest.World) { start = time.Now(); edit(w) }
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for pause.For(ctx, time.Second) {
				r, err := http.NewRequestWithContext(
					ctx, http.MethodGet, "http://simtest/apis/example.com/v1/widgets?watch=true&allowWatchBookmarks=true", http.NoBody,
				)
				if err != nil {
					return
				}
				answer, err := net.RoundTrip(r)
				if err != nil {
					continue
				}
				one := &follower{opened: time.Since(start)}
				*all = append(*all, one)
				var e struct{ Type string }
				for events := json.NewDecoder(answer.Body); one.err == nil; {
					if one.err = events.Decode(&e); one.err == nil && e.Type == "BOOKMARK" {
						one.bookmarks = append(one.bookmarks, time.Since(start))
					}
				}
				one.ended = time.Since(start)
				_ = answer.Body.Close() // it has no error
			}
		}()
		err := program(ctx, net)
		<-ended
		return err
	}
	return s
}

// TestAServerThatStopsEndsWatches has no other reason for a lost connection.
func TestAServerThatStopsEndsWatches(t *testing.T) {
	t.Parallel()
	lost := 0
	for seed := range uint64(12) {
		var all []*follower
		r := simtest.Simulate(t, always(watching(simtest.StopServer, &all)), seed+1)
		require.Empty(t, r.Wrong)
		for _, each := range all {
			if errors.Is(each.err, applytest.ErrLost) {
				lost++
			} else if !errors.Is(each.err, context.Canceled) {
				require.ErrorIs(t, each.err, io.EOF)
			}
		}
	}
	require.Positive(t, lost)
}

// TestASilentWatchBringsNoBookmark has watches of several minutes.
func TestASilentWatchBringsNoBookmark(t *testing.T) {
	t.Parallel()
	bookmarks, silent := 0, 0
	for seed := range uint64(20) {
		var all []*follower
		r := simtest.Simulate(t, always(watching(simtest.SilenceWatches, &all)), seed+1)
		require.Empty(t, r.Wrong)
		for _, each := range all {
			bookmarks += len(each.bookmarks)
		}
		for line := range strings.Lines(r.Trace) {
			if !strings.Contains(line, "silence the watches at") {
				continue
			}
			for _, each := range all {
				if each.opened >= when(t, line) || each.ended <= when(t, line) {
					continue
				}
				if each.ended > when(t, line)+2*time.Minute {
					silent++
				}
				for _, b := range each.bookmarks {
					require.LessOrEqual(t, b, when(t, line), "seed %d", seed+1)
				}
			}
		}
	}
	require.Positive(t, bookmarks)
	require.Positive(t, silent, "for long enough to show")
}

// TestAReplicaIsWaitedFor has one that ends minutes after all others.
func TestAReplicaIsWaitedFor(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); ; seed++ {
		require.Less(t, seed, uint64(30), "no replica starts")
		lives, converged, ended := 0, false, time.Time{}
		s := habitual()
		s.Disturbances, s.Rest = []applytest.Disturbance{simtest.AddReplica}, time.Minute
		s.Converged = func(*simtest.World) error { converged = true; return nil }
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			lives++
			life := lives
			err := elected(ctx, net)
			if life != 2 && converged {
				ended = time.Now()
			}
			for life == 2 && (ended.IsZero() || time.Since(ended) < 3*time.Minute) {
				pause.For(context.WithoutCancel(ctx), time.Second)
			}
			return err
		}
		if r := simtest.Simulate(t, always(s), seed); strings.Contains(r.Trace, "another replica starts") {
			require.Equal(t, []string{"the program did not return within 1m0s after its context had ended"}, r.Wrong)
			break
		}
	}
}

// TestOneReplicaRunsBesideTheFirst has one that goes on after it was stopped.
func TestOneReplicaRunsBesideTheFirst(t *testing.T) {
	t.Parallel()
	beside := 0
	for seed := range uint64(12) {
		run, most := 0, 0
		s := habitual()
		s.Disturbances, s.Rest = []applytest.Disturbance{simtest.AddReplica}, time.Minute
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			run++
			most = max(most, run)
			defer func() { run-- }()
			const leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
			for pause.For(ctx, 100*time.Millisecond) {
				_, _ = send(ctx, net, http.MethodPost, leases, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"it"}}`)
			}
			if run > 1 {
				pause.For(context.WithoutCancel(ctx), 50*time.Second)
			}
			return nil
		}
		simtest.Simulate(t, always(s), seed)
		require.LessOrEqual(t, most, 2, "seed %d", seed)
		beside += most - 1
	}
	require.Positive(t, beside)
}

func TestAProgramWithoutALeaseHasNoReplica(t *testing.T) {
	t.Parallel()
	var traces strings.Builder
	for seed := range uint64(12) {
		traces.WriteString(simtest.Simulate(t, always(asking(simtest.AddReplica, get)), seed+1).Trace)
	}
	require.Positive(t, strings.Count(traces.String(), "start another replica at"))
	require.Zero(t, strings.Count(traces.String(), "another replica starts"))
}

// TestTheHolderOfALeaseDecidesNothing has another one in each simulation.
func TestTheHolderOfALeaseDecidesNothing(t *testing.T) {
	t.Parallel()
	lives := 0
	s := habitual()
	s.Edits, s.Settle, s.Rest = 2, time.Minute, time.Minute
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		lives++
		const path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
		_, _ = send(ctx, net, http.MethodPost, path, fmt.Sprintf(
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"it"},"spec":{"holderIdentity":"%d"}}`, lives,
		))
		return copier{}.run(ctx, net)
	}
	found := simtest.Survey(t, always(s), 1)
	require.Empty(t, found.Symptoms)
	require.Empty(t, found.Chance)
}

// TestTheMarksOfAnotherClientAreNoDifference has them on an object of the program.
func TestTheMarksOfAnotherClientAreNoDifference(t *testing.T) {
	t.Parallel()
	for _, what := range []applytest.Disturbance{simtest.Touch, simtest.LabelObject} {
		marked := 0
		for seed := range uint64(6) {
			s := short(copier{})
			s.Disturbances = []applytest.Disturbance{what}
			s.Program = func(ctx context.Context, net http.RoundTripper) error {
				const path = "/api/v1/namespaces/shop/configmaps"
				for n := 0; pause.For(ctx, time.Second); {
					_, _ = send(ctx, net, http.MethodPost, path, `{"metadata":{"name":"first"}}`)
					first, _ := send(ctx, net, http.MethodGet, path+"/first", "")
					_, _ = fmt.Sscan(fmt.Sprint(first.Field("data", "n")), &n) // it may have none
					if n == 20 {
						break
					}
					_ = patch(ctx, net, path+"/first", fmt.Sprintf(`{"data":{"n":"%d"}}`, n+1))
				}
				return copier{}.run(ctx, net)
			}
			r := simtest.Simulate(t, always(s), seed+1)
			require.Empty(t, r.Wrong, "seed %d", seed+1)
			marked += strings.Count(r.Trace, string(what)+" patch configmaps shop/first")
		}
		require.Positive(t, marked, what)
	}
}

func patch(ctx context.Context, net http.RoundTripper, path, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://simtest"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := net.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// TestALeaseMayBeWrittenAtRest has one that is renewed.
func TestALeaseMayBeWrittenAtRest(t *testing.T) {
	t.Parallel()
	s := short(copier{})
	s.Kinds = habitual().Kinds
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		const path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; pause.For(ctx, 10*time.Second); i++ {
				_, _ = send(ctx, net, http.MethodPost, path, `{"metadata":{"name":"it"}}`)
				_ = patch(ctx, net, path+"/it", fmt.Sprintf(`{"spec":{"leaseTransitions":%d}}`, i))
			}
		}()
		err := copier{}.run(ctx, net)
		<-ended
		return err
	}
	r := simtest.Simulate(t, always(s), 1)
	require.Empty(t, r.Wrong)
	require.Zero(t, r.RestWrites)
	_, rest, ok := strings.Cut(r.Trace, " rest\n")
	require.True(t, ok)
	require.Contains(t, rest, "patch leases.coordination.k8s.io shop/it: 200")
}
