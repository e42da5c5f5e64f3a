package simtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

func TestAProgramMayAskForItsRights(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{
		Kinds: []simtest.Kind{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}},
		Allow: func(r applytest.Request) error {
			if r.Verb == "delete" && r.Resource == "configmaps" && r.Namespace == "shop" {
				return errors.New("no right")
			}
			return nil
		},
	}}
	const path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for verb, allowed := range map[string]bool{"create": true, "delete": false} {
		code, o := c.do(path, `{"spec":{"resourceAttributes":{"verb":"`+verb+`","resource":"configmaps","namespace":"shop"}}}`)
		require.Equal(t, http.StatusCreated, code)
		require.Equal(t, allowed, o.Field("status", "allowed"), verb)
		require.Equal(t, verb, o.Field("spec", "resourceAttributes", "verb"))
	}
	code, _ := c.do(path, `{"spec":`)
	require.Equal(t, http.StatusBadRequest, code)
	code, _ = c.do("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", `{}`)
	require.Equal(t, http.StatusNotFound, code)
	require.False(t, applytest.Request{Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}.Writes())
}

// TestAReviewKnowsOfAHabit has a program that asks for a right when it is refused.
func TestAReviewKnowsOfAHabit(t *testing.T) {
	t.Parallel()
	answers := map[any]int{}
	s := asking(simtest.LoseRights, func(ctx context.Context, net http.RoundTripper) {
		o, err := send(ctx, net, http.MethodGet, "/apis/example.com/v1/widgets", "")
		if err != nil || o["code"] != float64(http.StatusForbidden) {
			return
		}
		o, err = send(ctx, net, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"spec":{"resourceAttributes":{"verb":"list","group":"example.com","resource":"widgets"}}}`)
		if err == nil {
			answers[o.Field("status", "allowed")]++
		}
	})
	for seed := range uint64(10) {
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong)
	}
	require.NotZero(t, answers[false])
	require.Zero(t, answers[true])
}

// TestARequestBeyondTheRoleIsWrong: it is forbidden, and a program that goes on without it is found.
func TestARequestBeyondTheRoleIsWrong(t *testing.T) {
	t.Parallel()
	named, lost := false, 0
	for _, lacks := range []bool{false, true} {
		s := short(copier{})
		s.Program = beside(http.MethodGet, "/api/v1/configmaps?fieldSelector=metadata.name%3Done", "", "")
		s.Actors = append(s.Actors, func(_ *simtest.World, c simtest.Change) {
			if lacks && c.By == "program" && c.After == nil {
				lost++
			}
		})
		s.Rights = func(r applytest.Request) error {
			if lacks && r.Verb == "delete" {
				return errors.New("may not delete")
			}
			named = named || r.Verb == "list" && r.Name == "one"
			return nil
		}
		s.Converged, s.Edits, s.State = nil, 20, func(*simtest.World) string { return "" }
		if r := simtest.Simulate(t, always(s), 1); lacks {
			require.Contains(t, r.Wrong, "the program's role: may not delete")
		} else {
			require.Empty(t, r.Wrong)
		}
	}
	require.True(t, named, "a list of one object has its name")
	require.Zero(t, lost)
}

// TestAReviewKnowsOfTheRole, and to ask is no request beyond it. A deletion of a collection has no name.
func TestAReviewKnowsOfTheRole(t *testing.T) {
	t.Parallel()
	answers, deleted := map[any]int{}, false
	s := asking(simtest.LoseRights, func(ctx context.Context, net http.RoundTripper) {
		for _, verb := range []string{"get", "delete"} {
			o, err := send(ctx, net, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				`{"spec":{"resourceAttributes":{"verb":"`+verb+`","resource":"configmaps"}}}`)
			if err == nil {
				answers[fmt.Sprint(verb, " ", o.Field("status", "allowed"))]++
			}
		}
		if !deleted {
			_, err := send(ctx, net, http.MethodDelete, "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Done", "")
			deleted = err == nil
		}
	})
	s.Disturbances = []applytest.Disturbance{}
	s.Rights = func(r applytest.Request) error {
		if r.Verb == "delete" || r.Name != "" {
			return fmt.Errorf("may not: %s", r)
		}
		return nil
	}
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.NotZero(t, answers["get true"])
	require.NotZero(t, answers["delete false"])
	require.Len(t, answers, 2)
	require.True(t, deleted)
}
