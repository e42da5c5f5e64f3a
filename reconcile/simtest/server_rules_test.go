package simtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// caller sends requests to a server.
type caller struct {
	t      *testing.T
	server *simtest.Server
}

// do sends a request, such as "POST /api/v1/namespaces/shop/configmaps", with a form
// for a patch and a body.
func (c caller) do(request, body string, header ...string) (int, simtest.Object) {
	c.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://simtest"+path, strings.NewReader(body))
	require.NoError(c.t, err)
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := c.server.RoundTrip(r)
	require.NoError(c.t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	var o simtest.Object
	if json.Unmarshal(data, &o) != nil {
		o = simtest.Object{"text": string(data)}
	}
	return answer.StatusCode, o
}

// must sends a request that must succeed.
func (c caller) must(request, body string) simtest.Object {
	c.t.Helper()
	code, o := c.do(request, body)
	require.Less(c.t, code, 300, "%s: %v", request, o["message"])
	return o
}

func (c caller) exists(path string) bool {
	c.t.Helper()
	code, _ := c.do("GET "+path, "")
	return code == http.StatusOK
}

func builtins() []simtest.Kind {
	return []simtest.Kind{
		{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
		{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}},
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
	}
}

const cms = "/api/v1/namespaces/default/configmaps"

func configMap(name string, owners ...string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[%s]}}`, name, strings.Join(owners, ","))
}

// reference is to an owner.
func reference(o simtest.Object, block bool) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":%v}`, o.Name(), o.UID(), block)
}

func TestTheCollectorKeepsWhatHasAnOwnerLeft(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins()}}
	a, b := c.must("POST "+cms, configMap("a")), c.must("POST "+cms, configMap("b"))
	c.must("POST "+cms, configMap("both", reference(a, false), reference(b, false)))
	c.must("POST "+cms, configMap("one", reference(a, false)))
	c.must("POST "+cms, configMap("foreign", `{"apiVersion":"other.example.com/v1","kind":"Thing","name":"x","uid":"x"}`))
	c.must("POST "+cms, configMap("renamed", strings.Replace(reference(b, false), `"name":"b"`, `"name":"c"`, 1)))
	c.must("DELETE "+cms+"/a", "")
	c.collect()
	require.True(t, c.exists(cms+"/both"))
	_, both := c.do("GET "+cms+"/both", "")
	require.Len(t, both.Field("metadata", "ownerReferences"), 1, "the reference to the owner that is gone was removed")
	require.False(t, c.exists(cms+"/one"))
	require.True(t, c.exists(cms+"/foreign"), "nobody knows whether the owner exists")
	require.False(t, c.exists(cms+"/renamed"), "the owner is looked up by its name")
}

// collect lets the garbage collector run until it has nothing to do.
func (c caller) collect() {
	for c.server.Collect() > 0 {
	}
}

func TestOrphansLoseTheReferenceToTheirOwner(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins()}}
	a := c.must("POST "+cms, configMap("a"))
	c.must("POST "+cms, configMap("child", reference(a, true)))
	require.Equal(t, []any{"orphan"}, c.must("DELETE "+cms+"/a", `{"propagationPolicy":"Orphan"}`).Field("metadata", "finalizers"))
	c.collect()
	require.False(t, c.exists(cms+"/a"))
	require.Nil(t, c.must("GET "+cms+"/child", "").Field("metadata", "ownerReferences"))
}

func TestForegroundDeletionGoesFromTheLeavesToTheRoot(t *testing.T) {
	t.Parallel()
	var deleted []string
	server := &simtest.Server{Kinds: builtins()}
	server.OnChange(func(change simtest.Change) {
		if change.After == nil {
			deleted = append(deleted, change.Before.Name())
		}
	})
	c := caller{t, server}
	a := c.must("POST "+cms, configMap("a"))
	b := c.must("POST "+cms, configMap("b", reference(a, true)))
	c.must("POST "+cms, configMap("c", reference(b, true)))
	held := c.must("POST "+cms, `{"metadata":{"name":"held","finalizers":["example.com/a"],"ownerReferences":[`+reference(a, true)+`]}}`)
	other := c.must("POST "+cms, configMap("other"))
	c.must("POST "+cms, configMap("shared", reference(a, true), reference(other, false)))
	c.must("POST "+cms, configMap("early", reference(a, false)))
	require.Equal(t, []any{"foregroundDeletion"}, c.must("DELETE "+cms+"/a?propagationPolicy=Foreground", "").Field("metadata", "finalizers"))
	c.collect()
	require.Equal(t, []string{"early", "c", "b"}, deleted, "what does not block the owner does not wait for it, either")
	require.True(t, c.exists(cms+"/a"), "held blocks it")
	require.Len(t, c.must("GET "+cms+"/shared", "").Field("metadata", "ownerReferences"), 1)
	c.must("PATCH "+cms+"/held", `{"metadata":{"finalizers":null}}`)
	c.collect()
	require.Equal(t, []string{"early", "c", "b", held.Name(), "a"}, deleted)
}

func TestANamespaceGoesWithAllThatIsInIt(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins()}}
	require.True(t, c.exists("/api/v1/namespaces/kube-system"))
	c.must("POST /api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	inside := "/api/v1/namespaces/shop/configmaps"
	c.must("POST "+inside, `{"metadata":{"name":"a","finalizers":["example.com/a"]}}`)
	c.must("POST "+inside, `{"metadata":{"name":"b"}}`)
	c.must("DELETE /api/v1/namespaces/shop", "")
	c.collect()
	require.False(t, c.exists(inside+"/b"))
	require.True(t, c.exists("/api/v1/namespaces/shop"))
	code, _ := c.do("POST "+inside, `{"metadata":{"name":"c"}}`)
	require.Equal(t, http.StatusForbidden, code)
	c.must("PATCH "+inside+"/a", `{"metadata":{"finalizers":null}}`)
	c.collect()
	require.False(t, c.exists("/api/v1/namespaces/shop"))
	code, _ = c.do("POST "+inside, `{"metadata":{"name":"c"}}`)
	require.Equal(t, http.StatusNotFound, code)
}

func TestAContinueTokenIsRefusedOnceTheHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins()}}
	for i := range 3 {
		c.must("POST "+cms, configMap(fmt.Sprint("m", i)))
	}
	first := c.must("GET "+cms+"?limit=1", "")
	require.EqualValues(t, 2, first.Field("metadata", "remainingItemCount"))
	token, _ := first.Field("metadata", "continue").(string)
	c.must("DELETE "+cms+"/m1", "")
	require.Len(t, c.must("GET "+cms+"?limit=2&continue="+token, "")["items"], 2, "as it was")
	require.Len(t, c.must("GET "+cms+"?limit=1&resourceVersion=0", "")["items"], 2, "a cache has no pages")
	c.must("POST "+cms, configMap("m3"))
	c.server.Expire()
	code, gone := c.do("GET "+cms+"?limit=2&continue="+token, "")
	require.Equal(t, http.StatusGone, code)
	require.Equal(t, "Expired", gone["reason"])
	token, _ = gone.Field("metadata", "continue").(string)
	require.Len(t, c.must("GET "+cms+"?continue="+token, "")["items"], 2, "the rest of what there is now: m2 and m3")
}

func TestAdmissionSeesEachWriteBeforeItHappens(t *testing.T) {
	t.Parallel()
	var seen []string
	c := caller{t, &simtest.Server{Kinds: builtins(), Admit: func(a *simtest.Admission) error {
		seen = append(seen, fmt.Sprint(a.Verb, " ", a.Subresource, " ", a.By, " ", a.Before != nil, " ", a.Object != nil))
		switch {
		case a.Verb == "delete" && a.Before.Label("keep") == "yes":
			return errors.New("it is to be kept")
		case a.Verb == "create":
			a.Object.Set("set", "metadata", "labels", "default")
		}
		return nil
	}}}
	require.Equal(t, "set", c.must("POST "+cms, configMap("a")).Label("default"))
	c.must("PATCH "+cms+"/a", `{"metadata":{"labels":{"keep":"yes"}}}`)
	code, refused := c.do("DELETE "+cms+"/a", "")
	require.Equal(t, http.StatusUnprocessableEntity, code)
	require.Contains(t, refused["message"], "it is to be kept")
	c.must("PATCH "+cms+"/a", `{"metadata":{"labels":null}}`)
	c.must("DELETE "+cms+"/a", "")
	c.must("POST /apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":`+webSpec+`}`)
	c.must("PATCH /apis/apps/v1/namespaces/default/deployments/d/status", `{"status":{"replicas":1}}`)
	require.Equal(t, []string{
		"create  program false true", "update  program true true", "delete  program true false", "update  program true true",
		"delete  program true false", "create  program false true", "update status program true true",
	}, seen)
}

func TestWhatIsNotAllowedIsForbidden(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins(), Allow: func(r applytest.Request) error {
		if r.Verb == "create" || r.Verb == "watch" {
			return fmt.Errorf("no right to %s %s", r.Verb, r.Resource)
		}
		return nil
	}}}
	code, refused := c.do("POST "+cms, configMap("a"))
	require.Equal(t, http.StatusForbidden, code)
	require.Equal(t, "no right to create configmaps", refused["message"])
	require.Equal(t, "Forbidden", refused["reason"])
	code, _ = c.do("GET "+cms+"?watch=true", "")
	require.Equal(t, http.StatusForbidden, code)
	require.Empty(t, c.must("GET "+cms, "")["items"])
	c.must("GET /apis", "")
}

func TestDiscoveryIsThatOfTheKinds(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: append(builtins(), simtest.Kind{
		Group: "example.com", Version: "v1", Resource: "boxes", Kind: "Box", Singular: "crate", Cluster: true,
	})}}
	names := func(path string) []string {
		var all []string
		for _, each := range c.must("GET "+path, "")["resources"].([]any) {
			r := simtest.Object(each.(map[string]any))
			all = append(all, fmt.Sprint(r["name"], " ", r["singularName"], " ", r["namespaced"], " ", r["shortNames"]))
		}
		return all
	}
	require.Equal(t, []string{"boxes crate false <nil>"}, names("/apis/example.com/v1"))
	require.Contains(t, names("/api/v1"), "configmaps configmap true [cm]")
	require.Contains(t, names("/api/v1"), "events event true [ev]", "every server has them")
	require.Contains(t, names("/apis/apps/v1"), "deployments/scale  true <nil>")
	require.Equal(t, "1", c.must("GET /version", "")["major"])
	_, ok := c.do("GET /readyz", "")
	require.Equal(t, "ok", ok["text"])
	code, _ := c.do("GET /apis/missing.example.com/v1", "")
	require.Equal(t, http.StatusNotFound, code)
}

func TestARequestThatNeedsCodeOfARealServerNamesTheCure(t *testing.T) {
	t.Parallel()
	server := &simtest.Server{Kinds: builtins()}
	var cures []string
	server.OnUnserved(func(cure string) { cures = append(cures, cure) })
	c := caller{t, server}
	c.must("POST "+cms, configMap("a"))
	for _, each := range []struct {
		request, header, value string
		code                   int
	}{
		{"PATCH " + cms + "/a?fieldManager=m", "Content-Type", "application/apply-patch+yaml", http.StatusUnsupportedMediaType},
		{"PATCH " + cms + "/a", "Content-Type", "application/json-patch+json", http.StatusUnsupportedMediaType},
		{"PATCH " + cms + "/a", "Content-Type", "application/strategic-merge-patch+json", http.StatusUnsupportedMediaType},
		{"POST " + cms, "Content-Type", "application/vnd.kubernetes.protobuf", http.StatusUnsupportedMediaType},
		{"GET " + cms, "Accept", "application/vnd.kubernetes.protobuf", http.StatusNotAcceptable},
		{"GET /api/v1/namespaces/default/secrets/a", "", "", http.StatusNotFound},
		{"GET /api/v1/namespaces/default/pods/a/log", "", "", http.StatusNotFound},
		{"GET /openapi/v3", "", "", http.StatusNotFound},
	} {
		before := len(cures)
		code, _ := c.do(each.request, "{}", each.header, each.value)
		require.Equal(t, each.code, code, each.request)
		require.Len(t, cures, before+1, each.request)
	}
	for _, request := range []string{ // a real server refuses them, too
		"GET " + cms + "/a/status", "PUT " + cms, "GET " + cms + "?fieldSelector=data.k%3Dv", "GET " + cms + "?labelSelector=a+in",
		"GET /apis/missing.example.com",
	} {
		code, _ := c.do(request, "{}")
		require.GreaterOrEqual(t, code, 400, request)
	}
	require.Len(t, cures, 8)
}

func TestGracefulDeletionOfAPod(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins()}}
	pods := "/api/v1/namespaces/default/pods"
	c.must("POST "+pods, `{"metadata":{"name":"a"},"spec":{"nodeName":"n","terminationGracePeriodSeconds":60}}`)
	require.EqualValues(t, 60, c.must("DELETE "+pods+"/a", "").Field("metadata", "deletionGracePeriodSeconds"))
	require.EqualValues(t, 60, c.must("DELETE "+pods+"/a?gracePeriodSeconds=90", "").Field("metadata", "deletionGracePeriodSeconds"))
	require.EqualValues(t, 20, c.must("DELETE "+pods+"/a", `{"gracePeriodSeconds":20}`).Field("metadata", "deletionGracePeriodSeconds"))
	c.must("DELETE "+pods+"/a?gracePeriodSeconds=0", "")
	require.False(t, c.exists(pods+"/a"))
	c.must("POST "+pods, `{"metadata":{"name":"b"},"spec":{"terminationGracePeriodSeconds":60}}`)
	c.must("DELETE "+pods+"/b", "")
	require.False(t, c.exists(pods+"/b"), "it has no node")
}

func TestADefaultThatIsUndoneMakesNoGeneration(t *testing.T) {
	t.Parallel()
	c := caller{t, &simtest.Server{Kinds: builtins(), Admit: func(a *simtest.Admission) error {
		a.Object.Set(1, "spec", "replicas")
		return nil
	}}}
	deployments := "/apis/apps/v1/namespaces/default/deployments"
	created := c.must("POST "+deployments, `{"metadata":{"name":"d"},"spec":`+webSpec+`}`)
	require.Equal(t, created, c.must("PUT "+deployments+"/d", `{"metadata":{"name":"d"},"spec":`+webSpec+`}`))
}

// webSpec is of a workload that a server takes.
const webSpec = `{"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}`
