package simtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
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

// copier keeps a ConfigMap of the name of each Widget, on net/http alone. It looks
// every ten seconds. The switches are what a scenario must notice.
type copier struct {
	lazy     bool // does nothing
	hoards   bool // deletes no copy
	restless bool // writes at each look
	hurried  bool // looks without a pause
	forgets  bool // makes copies in its first minute only
	slow     bool // takes two minutes to end
	wipes    bool // deletes all copies first
}

func (c copier) run(ctx context.Context, net http.RoundTripper) error {
	for start := time.Now(); !c.lazy; {
		if !c.forgets || time.Since(start) < time.Minute {
			_ = c.look(ctx, net) // it looks again
		}
		between := 10 * time.Second
		if c.hurried {
			between = time.Millisecond
		}
		if !pause.For(ctx, between) {
			break
		}
	}
	<-ctx.Done()
	if c.slow {
		pause.For(context.WithoutCancel(ctx), 2*time.Minute)
	}
	return nil
}

func (c copier) look(ctx context.Context, net http.RoundTripper) error {
	wanted, err := names(ctx, net, "/apis/example.com/v1/widgets")
	if err != nil {
		return err
	}
	copies, err := names(ctx, net, "/api/v1/configmaps")
	if err != nil {
		return err
	}
	if c.wipes && len(copies) > 1 {
		_, err := send(ctx, net, http.MethodDelete, "/api/v1/namespaces/shop/configmaps", "")
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if copies[name] && !c.restless {
			continue
		}
		method, path, body := http.MethodPost, "", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
		if copies[name] {
			method, path = http.MethodPut, "/"+name
		}
		if _, err := send(ctx, net, method, "/api/v1/namespaces/shop/configmaps"+path, body); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(copies)) {
		if !wanted[name] && !c.hoards {
			if _, err := send(ctx, net, http.MethodDelete, "/api/v1/namespaces/shop/configmaps/"+name, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

func send(ctx context.Context, net http.RoundTripper, method, path, body string) (o simtest.Object, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://simtest"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := net.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return o, errors.Join(json.NewDecoder(answer.Body).Decode(&o), answer.Body.Close())
}

func names(ctx context.Context, net http.RoundTripper, path string) (map[string]bool, error) {
	list, err := send(ctx, net, http.MethodGet, path, "")
	if err != nil {
		return nil, err
	}
	items, ok := list["items"].([]any)
	if !ok {
		return nil, fmt.Errorf("%v", list["message"])
	}
	all := map[string]bool{}
	for _, each := range items {
		all[simtest.Object(each.(map[string]any)).Name()] = true
	}
	return all, nil
}

func (c copier) scenario() simtest.Scenario {
	return simtest.Scenario{
		Kinds: kinds(), Program: c.run, Edits: 8, Settle: 5 * time.Minute,
		Start: func(w *simtest.World) { makeWidget(w, "first") },
		Edit: func(w *simtest.World) {
			if name := fmt.Sprint("w", w.Random.IntN(4)); w.Delete("widgets.example.com", "shop", name) != nil {
				makeWidget(w, name)
			}
		},
		Check: func(w *simtest.World, c simtest.Change) error {
			if c.By == "program" && c.After == nil && w.Object("widgets.example.com", "shop", c.Before.Name()) != nil &&
				len(w.Objects("configmaps")) == 0 {
				return fmt.Errorf("%s: a copy that is wanted", c.Request)
			}
			return nil
		},
		Converged: func(w *simtest.World) error {
			for _, each := range w.Objects("widgets.example.com") {
				if w.Object("configmaps", "shop", each.Name()) == nil {
					return fmt.Errorf("%s has no copy", each.Name())
				}
			}
			return nil
		},
	}
}

func makeWidget(w *simtest.World, name string) {
	if err := w.Create(
		simtest.Object{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "shop"}},
	); err != nil {
		panic(err)
	}
}

func TestAScenarioNoticesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program copier
		want    string
	}{
		"sound":            {copier{}, ""},
		"does nothing":     {copier{lazy: true}, "not converged: first has no copy"},
		"deletes nothing":  {copier{hoards: true}, "the end differs from the same desired state without a history:\ngot  "},
		"never rests":      {copier{restless: true}, "writes at rest, the first of them: update configmaps shop/"},
		"never pauses":     {copier{hurried: true}, "more than 1000 requests in a minute without faults"},
		"forgets":          {copier{forgets: true}, "not converged: "},
		"never ends":       {copier{slow: true}, "the program did not return within 1m0s after its context had ended"},
		"deletes too much": {copier{wipes: true}, "a copy that is wanted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wrong []string
			for seed := uint64(1); seed <= 5 && len(wrong) == 0; seed++ {
				wrong = simtest.Simulate(t, test.program.scenario, seed).Wrong
			}
			if test.want == "" {
				require.Empty(t, wrong)
				return
			}
			require.Contains(t, strings.Join(wrong, "\n"), test.want)
		})
	}
}

// TestWritesAtRestAreNoticed has a program that converges, and writes an hour after
// each of its starts.
func TestWritesAtRestAreNoticed(t *testing.T) {
	t.Parallel()
	s := copier{}.scenario()
	s.Disturbances = []applytest.Disturbance{} // it is never killed
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		go func() {
			if pause.For(ctx, time.Hour) {
				_, _ = send(
					ctx,
					net,
					http.MethodPost,
					"/apis/example.com/v1/namespaces/shop/parts",
					`{"apiVersion":"example.com/v1","kind":"Part","metadata":{"name":"late"}}`,
				)
			}
		}()
		return copier{}.run(ctx, net)
	}
	r := simtest.Simulate(t, always(s), 1)
	require.Equal(t, []string{"1 writes at rest, the first of them: create parts.example.com shop/"}, r.Wrong)
	require.Equal(t, 1, r.RestWrites)
	s.Rest = 30 * time.Minute
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong, "a shorter rest does not show it")
}

// TestRestIncludesAStart has a program that writes at its start only.
func TestRestIncludesAStart(t *testing.T) {
	t.Parallel()
	s := copier{}.scenario()
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		_, _ = send(ctx, net, http.MethodDelete, "/api/v1/namespaces/shop/configmaps/first", "")
		return copier{}.run(ctx, net)
	}
	require.Contains(t, strings.Join(simtest.Simulate(t, always(s), 1).Wrong, "\n"), "writes at rest")
}

func TestASweepReachesEachBoundaryOnce(t *testing.T) {
	t.Parallel()
	s := copier{}.scenario()
	s.Edits = 2
	c := simtest.Sweep(t, always(s), 1)
	require.Empty(t, c.Failed)
	require.Positive(t, c.Boundaries)
	require.Equal(t, c.Boundaries, c.Reached)

	s.Program = copier{lazy: true}.run
	c = simtest.Sweep(t, always(s), 1)
	require.Zero(t, c.Boundaries)
	require.Len(t, c.Failed, 1, "it is wrong without a cut")

	// It records that it is done before it is.
	s.Edit = func(*simtest.World) {}
	s.Program = hasty
	c = simtest.Sweep(t, always(s), 1)
	require.Equal(t, c.Boundaries, c.Reached)
	var cuts []string
	for _, r := range c.Failed {
		require.Contains(t, r.Wrong[0], "first has no copy")
		cuts = append(cuts, r.Cut.String())
	}
	require.Equal(
		t,
		[]string{"1 kill after", "2 kill before", "2 kill after", "3 kill before", "3 kill after", "4 kill before"},
		cuts,
		"create done, list, list, create first",
	)

	s.Converged = nil
	c = simtest.Sweep(t, always(s), 1)
	require.Len(t, c.Failed, len(cuts))
	for _, r := range c.Failed {
		require.Contains(t, r.Wrong[0], "the end differs from the same desired state without a history")
	}
}

// TestASweepTriesABoundaryAgain has a program of which every second life begins with
// a request of its own.
func TestASweepTriesABoundaryAgain(t *testing.T) {
	t.Parallel()
	s := copier{}.scenario()
	s.Edits = 2
	lives := 0
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		if lives++; lives%2 == 0 {
			_, _ = send(ctx, net, http.MethodGet, "/api/v1/namespaces/shop/configmaps/none", "")
		}
		return copier{}.run(ctx, net)
	}
	c := simtest.Sweep(t, always(s), 1)
	require.Empty(t, c.Failed)
	require.Equal(t, c.Boundaries, c.Reached)
}

// hasty records that it is done before it is.
func hasty(ctx context.Context, net http.RoundTripper) error {
	done, err := send(
		ctx,
		net,
		http.MethodPost,
		"/apis/example.com/v1/namespaces/shop/parts",
		`{"apiVersion":"example.com/v1","kind":"Part","metadata":{"name":"done"}}`,
	)
	return copier{lazy: err != nil || done["reason"] == "AlreadyExists"}.run(ctx, net)
}

// TestSubject is run in a process of its own.
func TestSubject(t *testing.T) {
	programs := map[string]func(context.Context, http.RoundTripper) error{
		"sound":  copier{}.run,
		"lazy":   copier{lazy: true}.run,
		"hasty":  hasty,
		"idle":   copier{lazy: true}.run,
		"spins":  spin,
		"locks":  lock,
		"panics": func(context.Context, http.RoundTripper) error { panic("no such page") },
		"fails":  func(context.Context, http.RoundTripper) error { return errors.New("no config") },
		"stays": func(ctx context.Context, net http.RoundTripper) error {
			go func() { select {} }()
			return copier{}.run(ctx, net)
		},
		"leads": func(ctx context.Context, net http.RoundTripper) error {
			const path, body = "/apis/coordination.k8s.io/v1/namespaces/shop/leases", `{"metadata":{"name":"me"},"spec":{"holderIdentity":"me"}}`
			_, err := send(ctx, net, http.MethodPost, path, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",`+body[1:])
			<-ctx.Done()
			return err
		},
		"judge": copier{}.run,
		"typo":  copier{}.run,
	}
	program, ok := programs[os.Getenv("SIMTEST_SUBJECT")]
	if !ok {
		t.Skip("run by TestAFailurePrintsTheLineThatRepeatsIt")
	}
	if subject := os.Getenv("SIMTEST_SUBJECT"); subject == "spins" || subject == "locks" {
		simtest.SpinAtMost(time.Second)
	}
	s := copier{}.scenario()
	s.Program, s.Edits = program, 4
	if os.Getenv("SIMTEST_SUBJECT") == "idle" {
		s.Start, s.Edit = nil, func(*simtest.World) {}
	}
	if os.Getenv("SIMTEST_SUBJECT") == "leads" {
		s.Converged = nil
	}
	if os.Getenv("SIMTEST_SUBJECT") == "judge" {
		s.Converged = func(*simtest.World) error { panic("no judge") }
	}
	if os.Getenv("SIMTEST_SUBJECT") == "typo" {
		s.Disturbances = []applytest.Disturbance{"kil before"}
	}
	if os.Getenv("SIMTEST_SUBJECT") == "hasty" {
		s.Edit, s.Disturbances = func(*simtest.World) {}, []applytest.Disturbance{}
	}
	if os.Getenv("SIMTEST_SUBJECT") == "hasty" {
		t.Run("it's (one)", func(t *testing.T) { simtest.Run(t, always(s)) })
		return
	}
	simtest.Run(t, always(s))
}

func TestAFailurePrintsTheLineThatRepeatsIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		subject, env string
		fails        bool
		want         string
	}{
		{"sound", "SIMTEST_HISTORIES=2", false, "2 histories of "},
		{"lazy", "SIMTEST_HISTORIES=2", true, "reproduce: SIMTEST_SEED=1 GODEBUG=randautoseed=0 go test -count=1 -v -run '^TestSubject$'"},
		{"idle", "SIMTEST_HISTORIES=2", true, "in all histories: the server accepted no write of the program"},
		{"lazy", "SIMTEST_SURVEY=3", true, "3 of 3 histories are wrong\n            3: not converged: "},
		{"lazy", "SIMTEST_SURVEY=none", true, `SIMTEST_SURVEY is "none"; want a number above 0`},
		{"lazy", "SIMTEST_SEED=1,SIMTEST_WITHOUT=hail", true, `Without: "hail" is no disturbance of this scenario; want one of ["kill before"`},
		{"lazy", "SIMTEST_HISTORIES=1,SIMTEST_WITHOUT=kill before", true, "SIMTEST_SEED=1 SIMTEST_WITHOUT='kill before' GODEBUG"},
		{
			"hasty", "SIMTEST_HISTORIES=1", true,
			"SIMTEST_SEED=1 SIMTEST_CUT='1 kill after' GODEBUG=randautoseed=0 go test -count=1 -v -run '^TestSubject$/^it'\\''s_\\(one\\)$'",
		},
		{"panics", "SIMTEST_HISTORIES=1", true, "the program panics: no such page\n"},
		{"panics", "SIMTEST_HISTORIES=1", true, "reproduce: SIMTEST_SEED=1 "},
		{"judge", "SIMTEST_HISTORIES=1", true, "no judge\n"},
		{"judge", "SIMTEST_HISTORIES=1", true, "reproduce: SIMTEST_SEED=1 "},
		{"stays", "SIMTEST_HISTORIES=1", true, "goroutines have not ended: the program must return, with all that it started, when its context ends\n"},
		{"stays", "SIMTEST_HISTORIES=1", true, "reproduce: SIMTEST_SEED=1 "},
		{"fails", "SIMTEST_HISTORIES=1", true, "times, the last time with: no config"},
		{"leads", "SIMTEST_HISTORIES=1", true, "the server accepted no write of the program"},
		{"typo", "SIMTEST_HISTORIES=1", true, `Scenario.Disturbances: "kil before" is no habit; want some of ["kill before"`},
		{"lazy", "SIMTEST_SEED=1", true, "life 1: starts"},
		{"sound", "SIMTEST_SEED=1", false, "rest"},
		{"sound", "SIMTEST_SEED=1,SIMTEST_CUT=3 kill after", false, "life 1: kill after"},
		{"sound", "SIMTEST_SEED=one", true, `SIMTEST_SEED is "one"; want a number`},
		{"sound", "SIMTEST_SEED=1,SIMTEST_CUT=2 foo", true, `SIMTEST_CUT is "2 foo"; want a number from 1 to `},
		{"sound", "SIMTEST_SEED=1,SIMTEST_CUT=9999 kill after", true, `and one of ["kill before" "kill after"]`},
		{"sound", "SIMTEST_SEED=1,SIMTEST_CUT=kill", true, `SIMTEST_CUT is "kill"; want a number and a disturbance`},
		{"sound", "SIMTEST_HISTORIES=0", true, `SIMTEST_HISTORIES is "0"; want a number above 0`},
	} {
		t.Run(test.subject+" "+test.env, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSubject$", "-test.v")
			program.Env = append(append(os.Environ(), "SIMTEST_SUBJECT="+test.subject), strings.Split(test.env, ",")...)
			out, err := program.CombinedOutput()
			require.Equal(t, test.fails, err != nil, "%s", out)
			require.Contains(t, string(out), test.want)
		})
	}
}

func TestWatchesOfAWorldLagRepeatAndEnd(t *testing.T) {
	t.Parallel()
	var traces strings.Builder
	for seed := range uint64(12) {
		s := scenario(controller{})
		s.Rest = time.Minute
		traces.WriteString(simtest.Simulate(t, always(s), seed).Trace)
	}
	for _, what := range []string{" again\n", ": ends\n", "touch the object of ", "expire the watches at ", "another client: update ", "garbage collector: delete parts.example.com ", " 409 ", " 429 ", " 500 "} {
		require.True(t, strings.Contains(traces.String(), what), what)
	}
}

// dated is a Widget whose spec holds when it was last edited.
func dated() simtest.Scenario {
	s := copier{}.scenario()
	s.Converged, s.Settle, s.Rest = nil, time.Minute, time.Minute
	s.Edit = func(w *simtest.World) {
		_ = w.Update("widgets.example.com", "shop", "first", func(o simtest.Object) { o.Set(time.Now().Format(time.RFC3339Nano), "spec", "at") })
	}
	return s
}

func TestWatchesLag(t *testing.T) {
	t.Parallel()
	oldest := time.Duration(0)
	s := dated()
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://simtest/apis/example.com/v1/widgets?watch=true", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := net.RoundTrip(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var e struct{ Object simtest.Object }
		for events, first := json.NewDecoder(answer.Body), true; events.Decode(&e) == nil; first = false {
			at, _ := e.Object.Field("spec", "at").(string)
			if then, err := time.Parse(time.RFC3339Nano, at); err == nil && !first { // it has the state
				oldest = max(oldest, time.Since(then))
			}
		}
		return nil
	}
	simtest.Sweep(t, always(s), 1)
	require.Positive(t, oldest)
	require.Less(t, oldest, 100*time.Millisecond, "without faults")
	for seed := range uint64(10) {
		simtest.Simulate(t, always(s), seed+1)
	}
	require.Greater(t, oldest, time.Second)
}

func TestReadsOfAnyStateAreOld(t *testing.T) {
	t.Parallel()
	older := 0
	s := dated()
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		for pause.For(ctx, time.Second) {
			const path = "/apis/example.com/v1/namespaces/shop/widgets/first"
			newest, err := send(ctx, net, http.MethodGet, path, "")
			old, failed := send(ctx, net, http.MethodGet, path+"?resourceVersion=0", "")
			if errors.Join(err, failed) == nil && newest["kind"] == "Widget" && old["kind"] == "Widget" &&
				fmt.Sprint(old["spec"]) < fmt.Sprint(newest["spec"]) {
				older++
			}
		}
		return nil
	}
	calm := s
	calm.Settle = 5 * time.Second // a boundary for each request
	require.NotZero(t, simtest.Sweep(t, always(calm), 1).Boundaries)
	require.Zero(t, older, "without faults")
	for seed := uint64(1); seed <= 10 && older == 0; seed++ {
		simtest.Simulate(t, always(s), seed)
	}
	require.Positive(t, older)
}

// TestACutIsAtItsRequest has a program that is wrong once it was killed, and counts the
// requests up to then.
func TestACutIsAtItsRequest(t *testing.T) {
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := short(copier{})
		lives := 0
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			lives++
			return copier{}.run(ctx, net)
		}
		s.Converged = func(*simtest.World) error {
			if lives > 1 {
				return errors.New("it was killed")
			}
			return nil
		}
		return s
	}, 1)
	require.Greater(t, len(c.Failed), c.Boundaries/2, "some are killed too late to start again")
	request := regexp.MustCompile(`life 1: (list|create|delete) `)
	for _, r := range c.Failed {
		before, _, ok := strings.Cut(r.Trace, fmt.Sprintf("life 1: %s ", r.Cut.What))
		require.True(t, ok, "%s", r.Cut)
		require.Len(t, request.FindAllString(before, -1), r.Cut.Request-1, "%s", r.Cut)
	}
}
