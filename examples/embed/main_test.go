package main_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// The operator runs as a program, with its own ServiceAccount, on a Kubernetes whose
// controllers run its pods on simulated nodes.
func TestAManagerKeepsTheChildrenOfItsWebApps(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	s := site{t, kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3})}
	for _, file := range []string{"../internal/webapp/crd.yaml", "rbac.yaml"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, s.cluster.Apply(t.Context(), string(data)))
	}
	s.kubectl("wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=300s")
	_, kubeconfig, err := s.cluster.ServiceAccount(t.Context(), "webapp-embed", "webapp-embed")
	require.NoError(t, err)
	path := programtest.Build(t)
	p, stop := programtest.Start(t, path, "--kubeconfig", kubeconfig)
	children := []string{
		"deployments,services,configmaps",
		"-l",
		"app.kubernetes.io/managed-by=webapp-embed",
		"-o",
		"jsonpath={.items[*].kind}",
	}
	ready := []string{"webapp", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`}

	// It is made, and ready when its pods are.
	nodes := strings.Fields(s.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	s.kubectl(append([]string{"cordon"}, nodes...)...)
	s.apply("web", "image: 'web:1', replicas: 2, config: {COLOR: blue}")
	s.becomes("Deployment Service ConfigMap", children...)
	s.becomes("Unschedulable", "webapp", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Reconciling")].reason}`)
	s.kubectl(append([]string{"uncordon"}, nodes...)...)
	s.becomes("True", ready...)

	// What another hand edits, unlabels or deletes comes back.
	s.kubectl("scale", "deployment", "web", "--replicas=7")
	s.becomes("2", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	s.kubectl("label", "service", "web", "example.com/webapp-", "app.kubernetes.io/managed-by-")
	s.becomes("Deployment Service ConfigMap", children...)
	s.kubectl("delete", "configmap/web-config", "deployment/web")
	s.becomes("Deployment Service ConfigMap", children...)

	// What is no longer wanted goes.
	s.kubectl("patch", "webapp", "web", "--type=merge", "-p", `{"spec":{"config":null}}`)
	s.becomes("Deployment Service", children...)

	// What the server refuses is named, and the rest is made.
	s.kubectl("patch", "webapp", "web", "--type=merge", "-p", `{"spec":{"config":{"A COLOR":"blue"},"image":"web:2"}}`)
	s.becomes("True", "webapp", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Stalled")].status}`)
	require.Contains(
		t,
		s.kubectl("get", "webapp", "-o", "jsonpath={.items[*].status.conditions[0].message}"),
		"a valid config key must consist of",
	)
	s.becomes("web:2", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.kubectl("patch", "webapp", "web", "--type=merge", "-p", `{"spec":{"config":null}}`)
	s.becomes("True", ready...)

	// Nothing is sent at rest, nor is anything written again after a restart.
	for i := range 20 {
		s.apply(fmt.Sprintf("web-%d", i), "image: 'web:1', config: {COLOR: blue}")
	}
	s.becomes("True"+strings.Repeat(" True", 20), ready...)
	before := s.quiet()
	require.NoError(t, stop(), p.Tail())
	p, stop = programtest.Start(t, path, "--kubeconfig", kubeconfig)
	// Readiness needs the status of each Deployment; the rest is known by its metadata.
	reads := func() int {
		return len(
			slices.DeleteFunc(s.requests()[len(before):], func(r kubetest.Request) bool { return r.Verb != "get" || r.Namespace != "default" }),
		)
	}
	await.Eventually(t, "it has looked at every Deployment", func() bool { return reads() >= 21 })
	after := s.quiet()[len(before):]
	require.Equal(t, 21, reads())
	require.Empty(
		t,
		slices.DeleteFunc(after, func(r kubetest.Request) bool { return slices.Contains([]string{"get", "list", "watch"}, r.Verb) }),
	)

	// A deleted parent goes when its children are gone.
	s.kubectl("delete", "webapps", "--all", "--timeout=2m")
	require.Empty(t, s.kubectl(append([]string{"get"}, children...)...))
	require.NoError(t, stop(), p.Tail())
}

type site struct {
	t       *testing.T
	cluster *kubetest.Cluster
}

func (s site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.cluster.Kubectl(s.t.Context(), args...)
	require.NoError(s.t, err)
	return out
}

func (s site) apply(name, spec string) {
	s.t.Helper()
	require.NoError(
		s.t,
		s.cluster.Apply(
			s.t.Context(),
			fmt.Sprintf("{apiVersion: example.com/v1, kind: WebApp, metadata: {name: %s, namespace: default}, spec: {%s}}", name, spec),
		),
	)
}

// becomes waits until kubectl get prints what is wanted.
func (s site) becomes(want string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var have string
	for have != want {
		out, err := s.cluster.Kubectl(ctx, append([]string{"get"}, args...)...)
		require.NoError(s.t, ctx.Err(), "get %v: %q, want %q", args, have, want)
		if have = out; err != nil {
			have = err.Error()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// requests are those of the operator without those for its election.
func (s site) requests() []kubetest.Request {
	s.t.Helper()
	all, err := s.cluster.Requests("system:serviceaccount:webapp-embed:webapp-embed")
	require.NoError(s.t, err)
	return slices.DeleteFunc(all, func(r kubetest.Request) bool { return r.Resource == "leases" || r.Resource == "events" })
}

// quiet waits until the operator has sent nothing for five seconds, and returns what it
// has sent until then.
func (s site) quiet() []kubetest.Request {
	s.t.Helper()
	sent := s.requests()
	for range 60 {
		time.Sleep(5 * time.Second)
		now := s.requests()
		if len(now) == len(sent) {
			return now
		}
		sent = now
	}
	require.FailNow(s.t, "it never rests")
	return nil
}
