package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestSitesOnARealServer runs the program beside a service of names.
func TestSitesOnARealServer(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := cluster.Kubectl(t.Context(), args...)
		require.NoError(t, err)
		return out
	}
	definition, err := os.ReadFile("site.yaml")
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definition)))
	kubectl("wait", "--for=condition=Established", "crd/sites.example.com", "--timeout=300s")

	var service names
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "no place", http.StatusServiceUnavailable)
			return
		}
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	service.set("mail", &theirs)
	kubectl("create", "serviceaccount", "sites")
	_, kubeconfig, err := cluster.ServiceAccount(t.Context(), "default", "sites")
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: sites},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
 subjects: [{kind: ServiceAccount, name: sites, namespace: default}]}`))
	p, stop := programtest.Start(t, programtest.Build(t), "--kubeconfig", kubeconfig, "--names", server.URL)

	put := func(name, host string) {
		t.Helper()
		require.NoError(t, cluster.Apply(t.Context(), fmt.Sprintf(
			"{apiVersion: example.com/v1, kind: Site, metadata: {name: %s, namespace: default}, spec: {host: '%s', target: 192.0.2.9}}",
			name, host,
		)))
	}
	// is waits for the reason of Ready and what the ConfigMap shows, and returns the message.
	is := func(name, want string) string {
		t.Helper()
		var have string
		await.Eventually(t, name+" is "+want, func() bool {
			have = kubectl("get", "site", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`) + " " +
				kubectl("get", "configmap", name, "--ignore-not-found", "-o", "jsonpath={.data.host}")
			return have == want
		}, func() string { return have + "\n" + p.Tail() })
		return kubectl("get", "site", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
	}
	recordsAre := func(want ...string) {
		t.Helper()
		await.Eventually(t, "the records are", func() bool {
			all := service.all()
			for _, name := range want {
				if _, there := all[name]; !there {
					return false
				}
			}
			return len(all) == len(want)
		}, func() string { return fmt.Sprint(service.all()) })
	}

	put("blog", "blog")
	is("blog", "Ready blog")
	recordsAre("blog", "mail")
	require.JSONEq(t, `[{"kind":"Record","id":"blog","made":true}]`, kubectl("get", "site", "blog", "-o", "jsonpath={.status.outside}"))

	put("blog", "news") // it moves
	is("blog", "Ready news")
	recordsAre("news", "mail")

	put("blog", "mail") // it is another's: what was there stays
	require.Contains(t, is("blog", "NotOurs "), "record: record mail exists and has no mark of this operator: is owned by another")
	require.Equal(t, theirs, service.all()["mail"])
	require.Contains(t, service.all(), "news")
	put("blog", "news")
	is("blog", "Ready news")

	down.Store(true)
	put("shop", "shop")
	require.Equal(t, "record: get record shop: 503 Service Unavailable", is("shop", "RequestFailed "))
	down.Store(false)
	is("shop", "Ready shop")

	down.Store(true) // the site stays while its record cannot be removed
	kubectl("delete", "site", "shop", "--wait=false")
	await.Eventually(t, "the status says why", func() bool {
		return kubectl("get", "site", "shop", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`) ==
			"record: get record shop: 503 Service Unavailable"
	})
	require.Empty(t, kubectl("get", "configmap", "shop", "--ignore-not-found"), "its children went before")
	down.Store(false)
	kubectl("delete", "site", "shop", "blog", "--ignore-not-found", "--timeout=60s")
	recordsAre("mail")
	require.NoError(t, stop(), p.Tail())
}
