package simtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// short is a scenario of few edits and little rest.
func short(c copier) simtest.Scenario {
	s := c.scenario()
	s.Edits, s.Settle, s.Rest = 2, time.Minute, 2*time.Hour
	return s
}

// beside sends one request at each start, beside a sound program.
func beside(method, path, mediaType, body string) func(context.Context, http.RoundTripper) error {
	return func(ctx context.Context, net http.RoundTripper) error {
		r, err := http.NewRequestWithContext(ctx, method, "http://simtest"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", mediaType)
		if answer, err := net.RoundTrip(r); err == nil {
			_ = answer.Body.Close() // it has no error
		}
		return copier{}.run(ctx, net)
	}
}

func TestWhatTheServerDoesNotServeFailsTheTest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ method, path, mediaType, body, want, request string }{
		{
			http.MethodPost, "/apis/example.com/v1/namespaces/shop/gears", "application/json", `{"metadata":{"name":"x"}}`,
			`create gears.example.com shop/: 404 the server could not find the requested resource; add the kind to Kinds`, "create gears",
		},
		{
			http.MethodPost, "/api/v1/namespaces/shop/configmaps", "application/vnd.kubernetes.protobuf", "k8s\x00\x01",
			`create configmaps shop/: 415 the body of the request is no JSON: application/vnd.kubernetes.protobuf; set Machinery, or ContentType`, "create conf",
		},
		{
			http.MethodPatch, "/api/v1/namespaces/shop/configmaps/first", "application/strategic-merge-patch+json", `{"data":{"a":"1"}}`,
			`patch configmaps shop/first: 415 `, "patch configmaps shop/f",
		},
	} {
		s := short(copier{})
		s.Program = beside(test.method, test.path, test.mediaType, test.body)
		r := simtest.Simulate(t, always(s), 1)
		require.NotEmpty(t, r.Wrong)
		require.Contains(t, r.Wrong[0], "the simulated server does not serve "+test.want)
		require.Contains(t, r.Wrong[0], fmt.Sprintf("Its body: %q", test.body))
		s.Unserved = []string{test.request[1:]}
		require.NotEmpty(t, simtest.Simulate(t, always(s), 1).Wrong, "no request begins so")
		s.Unserved = []string{test.request}
		require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong, "it is meant")
	}
}

// TestAProgramThatDidNothingDidNotPass has one that is wrong in every world alike.
func TestAProgramThatDidNothingDidNotPass(t *testing.T) {
	t.Parallel()
	s := short(copier{lazy: true})
	s.Converged = nil
	r := simtest.Simulate(t, always(s), 1)
	require.Len(t, r.Wrong, 1)
	require.Contains(t, r.Wrong[0], "the server accepted no write of the program")
	s.ReadOnly = true
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)

	// It tries, and is refused.
	s.ReadOnly = false
	s.Start, s.Edit = nil, func(*simtest.World) {}
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong, "there was nothing to do")
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		_, _ = send(ctx, net, http.MethodPost, "/api/v1/namespaces/shop/configmaps", `{"metadata":{}}`)
		<-ctx.Done()
		return nil
	}
	r = simtest.Simulate(t, always(s), 1)
	require.Len(t, r.Wrong, 1)
	require.Contains(t, r.Wrong[0], "the server accepted no write of the program")
}

// TestTheWorldToCompareWithIsJudged has a program that is wrong without an edit.
func TestTheWorldToCompareWithIsJudged(t *testing.T) {
	t.Parallel()
	s := short(copier{})
	worlds := 0
	fresh := func() simtest.Scenario {
		s := s
		worlds++
		edited := false
		edit := s.Edit
		s.Edit = func(w *simtest.World) { edited = true; edit(w) }
		s.Converged = func(*simtest.World) error {
			if !edited {
				return fmt.Errorf("there was no edit")
			}
			return nil
		}
		return s
	}
	r := simtest.Simulate(t, fresh, 1)
	require.Equal(t, []string{"without a history, of the same desired state: not converged: there was no edit"}, r.Wrong)
	require.Equal(t, 3, worlds, "one to validate, one for each world")

	s.Check = func(w *simtest.World, c simtest.Change) error {
		if !w.Faulty() && c.By == "program" && c.After != nil && c.Before == nil {
			return fmt.Errorf("created without faults")
		}
		return nil
	}
	s.Converged = nil
	r = simtest.Simulate(t, always(s), 1)
	require.Contains(t, r.Wrong[0], "without a history, of the same desired state: created without faults")
}

func TestAWriteThatChangesNothingIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	s := short(copier{restless: true})
	s.Disturbances = []applytest.Disturbance{}
	r := simtest.Simulate(t, always(s), 1)
	require.Contains(t, r.Wrong[0], "(it changed nothing)")
	require.Regexp(t, `writes at rest, the first of them: update configmaps shop/\S+ \(it changed nothing\)$`, r.Wrong[0])
	require.Regexp(t, `life \d+: create configmaps shop/: 201 first\n`, r.Trace, "the name is in the trace")
}

func TestDisturbancesAreLeftOutByName(t *testing.T) {
	t.Parallel()
	traces := func(without ...applytest.Disturbance) string {
		s := short(copier{})
		s.Rest, s.Without = time.Minute, without
		s.Disturbances = []applytest.Disturbance{applytest.LoseRequest, applytest.LoseAnswer} // of all, they are rare
		var all strings.Builder
		for seed := range uint64(60) {
			all.WriteString(simtest.Simulate(t, always(s), seed+1).Trace)
		}
		return all.String()
	}
	lines := regexp.MustCompile(`.*: lose .*`)
	const lost = ": lose the answer of "
	require.Contains(t, strings.Join(lines.FindAllString(traces(), -1), "\n"), lost)
	rest := lines.FindAllString(traces(applytest.LoseAnswer), -1)
	require.NotEmpty(t, rest)
	require.NotContains(t, strings.Join(rest, "\n"), lost)
}

func TestASurveyGroupsWhatIsWrong(t *testing.T) {
	t.Parallel()
	found := simtest.Survey(t, always(short(copier{})), 4)
	require.Empty(t, found.Symptoms)
	require.Equal(t, "0 of 4 histories are wrong", found.String())

	s := short(copier{lazy: true})
	found = simtest.Survey(t, always(s), 4)
	require.Len(t, found.Symptoms, 1, "%s", found)
	require.Equal(t, []uint64{1, 2, 3, 4}, found.Symptoms[0].Seeds)
	require.True(t, found.Symptoms[0].Repeats)
	require.Contains(t, found.String(), "4 of 4 histories are wrong\n    4: not converged: ")
	require.Empty(t, found.Chance)
}

// TestChanceIsNamed has a program that asks for something else in each of its lives.
func TestChanceIsNamed(t *testing.T) {
	t.Parallel()
	lives := 0
	s := short(copier{})
	s.Disturbances = []applytest.Disturbance{}
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		lives++
		_, _ = send(ctx, net, http.MethodGet, fmt.Sprint("/api/v1/namespaces/shop/configmaps/chance-", lives), "")
		return copier{}.run(ctx, net)
	}
	found := simtest.Survey(t, always(s), 1)
	require.Empty(t, found.Symptoms)
	require.Contains(t, found.Chance, "life 1: get configmaps shop/chance-")
	require.Contains(t, found.String(), "the program leaves something to chance:\nseed 1, line ")
}

// TestASymptomMayNotRepeat has something wrong in the first world only.
func TestASymptomMayNotRepeat(t *testing.T) {
	t.Parallel()
	judged := 0
	s := short(copier{})
	s.Converged = func(*simtest.World) error {
		if judged++; judged == 1 {
			return errors.New("only once")
		}
		return nil
	}
	found := simtest.Survey(t, always(s), 1)
	require.Len(t, found.Symptoms, 1)
	require.False(t, found.Symptoms[0].Repeats)
	require.Contains(t, found.String(), "1: not converged: only once\n       seeds 1 (did not repeat)\n")
	require.Contains(t, found.Chance, "WRONG: not converged: only once\n")
}

// TestSymptomsAreTheMostFrequentFirst has one in seed 1, which is simulated twice, and
// another with a number that differs in the seeds after it.
func TestSymptomsAreTheMostFrequentFirst(t *testing.T) {
	t.Parallel()
	judged := 0
	s := short(copier{})
	s.Converged = func(*simtest.World) error {
		if judged++; judged <= 2 {
			return errors.New("rare")
		}
		return fmt.Errorf("frequent, of part-%d after %ds", judged, judged)
	}
	found := simtest.Survey(t, always(s), 4)
	require.Len(t, found.Symptoms, 2, "%s", found)
	require.Equal(t, []uint64{2, 3, 4}, found.Symptoms[0].Seeds)
	require.Equal(t, "not converged: frequent, of part-3 after 3s", found.Symptoms[0].Wrong)
	require.True(t, found.Symptoms[0].Repeats)
	require.Equal(t, []uint64{1}, found.Symptoms[1].Seeds)
	require.True(t, found.Symptoms[1].Repeats)
}

// TestWhatAnActorMakesIsNotDesired has one that makes a Part for the first Widget.
func TestWhatAnActorMakesIsNotDesired(t *testing.T) {
	t.Parallel()
	made := 0
	s := short(copier{})
	s.State = func(*simtest.World) string { return "" }
	s.Actors = []func(*simtest.World, simtest.Change){func(w *simtest.World, c simtest.Change) {
		if c.Before == nil && c.After.Name() == "first" && c.After["kind"] == "Widget" && w.Faulty() {
			made++
			if err := w.As("an actor").Create(simtest.Object{
				"apiVersion": "example.com/v1", "kind": "Part", "metadata": map[string]any{"namespace": "shop", "name": "made"},
			}); err != nil {
				panic(err)
			}
		}
	}}
	s.Check = func(_ *simtest.World, c simtest.Change) error {
		if c.By == "user" && c.After["kind"] == "Part" {
			return errors.New("the user makes no Part")
		}
		return nil
	}
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.Equal(t, 1, made)
}

// TestTheEnvironmentLeavesOutDisturbances as well as the scenario.
func TestTheEnvironmentLeavesOutDisturbances(t *testing.T) {
	s := short(copier{})
	s.Disturbances, s.Edits = []applytest.Disturbance{applytest.LoseAnswer, applytest.LoseRequest}, 8
	traces := func() string {
		var all strings.Builder
		for seed := range uint64(10) {
			all.WriteString(simtest.Simulate(t, always(s), seed+1).Trace)
		}
		return all.String()
	}
	require.Contains(t, traces(), ": lose the answer of ")
	t.Setenv("SIMTEST_WITHOUT", " lose the answer of,")
	without := traces()
	require.NotContains(t, without, ": lose the answer of ")
	require.Regexp(t, ": lose (list|create|delete) ", without)
}
