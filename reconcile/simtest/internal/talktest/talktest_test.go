package talktest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/internal/talktest"
)

// side is a server in memory with the namespaces of a conversation.
func side(t *testing.T, admit func(*simtest.Admission) error) talktest.Side {
	t.Helper()
	server := &simtest.Server{Kinds: talktest.Kinds(), Admit: admit}
	for _, name := range []string{"talk", "talk-b"} {
		body := strings.NewReader(fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://simtest/api/v1/namespaces", body)
		require.NoError(t, err)
		answer, err := server.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusCreated, answer.StatusCode)
	}
	return talktest.Side{Client: &http.Client{Transport: server}, Host: "http://simtest"}
}

func talk(t *testing.T, admit func(*simtest.Admission) error, known ...talktest.Known) talktest.Result {
	t.Helper()
	c := talktest.Conversation{
		Real: side(t, talktest.Admit), Simulated: side(t, admit), Seed: 1, Steps: 2000, Namespace: "talk", Known: known, Script: true,
	}
	r, err := c.Hold(t.Context())
	require.NoError(t, err)
	return r
}

func TestAServerAgreesWithItself(t *testing.T) {
	t.Parallel()
	r := talk(t, talktest.Admit)
	require.Empty(t, r.Difference)
	require.Equal(t, 2000, r.Steps)
	for _, code := range []int{200, 201, 400, 403, 404, 405, 409, 415, 422} {
		require.NotZero(t, r.Codes[code], "no answer with code %d: %v", code, r.Codes)
	}
}

// forgetful loses an annotation once it has the value y.
func forgetful(a *simtest.Admission) error {
	if a.Object.Field("metadata", "annotations", "example.com/note") == "y" {
		a.Object.Set("z", "metadata", "annotations", "example.com/note")
	}
	return talktest.Admit(a)
}

func TestADifferenceEndsAConversation(t *testing.T) {
	t.Parallel()
	r := talk(t, forgetful)
	require.Contains(t, r.Difference, "example.com/note: y and z")
	require.Contains(t, r.Difference, fmt.Sprintf("seed 1, step %d: PATCH ", r.Steps))
	require.Less(t, r.Steps, 2000)
}

func TestAKnownDifferenceDoesNot(t *testing.T) {
	t.Parallel()
	known := talktest.Known{Reason: "it is forgetful", Fits: func(_ talktest.Request, genuine, simulated talktest.Answer) bool {
		return strings.ReplaceAll(simulated.String(), `"example.com/note":"z"`, `"example.com/note":"y"`) == genuine.String()
	}}
	r := talk(t, forgetful, known)
	require.NotZero(t, r.Met[known.Reason])
}
