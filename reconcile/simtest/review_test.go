package simtest_test

import (
	"errors"
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
