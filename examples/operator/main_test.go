package main_test

import (
	"context"
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

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// user is who the operator is for the API server.
const user = "system:serviceaccount:webapp-operator:webapp-operator"

// The operator runs as a program, with its own ServiceAccount, on a Kubernetes whose
// controllers run its pods on a simulated node.
func TestAnOperator(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start()
	for _, story := range []struct {
		name string
		tell func(*site)
	}{
		{"the definition refuses what is wrong", (*site).refused},
		{"children become ready, and the status says so", (*site).becomesReady},
		{"what another hand edits or deletes comes back", (*site).repaired},
		{"a child that is no longer wanted goes", (*site).pruned},
		{"a child that the server refuses is named in the status", (*site).named},
		{"what exists and is another's is left alone", (*site).foreign},
		{"a deleted parent goes when its children are gone", (*site).deleted},
		{"fifty at once, then silence, also after a restart", (*site).fifty},
		{"of two replicas one works", (*site).replicas},
	} {
		ok := t.Run(story.name, func(t *testing.T) {
			story.tell(&site{T: t, all: s.all, cluster: s.cluster, path: s.path, kubeconfig: s.kubeconfig, replica: s.replica})
		})
		require.True(t, ok)
	}
}

func TestItHasLessThan150Lines(t *testing.T) {
	t.Parallel()
	lines := 0
	for _, file := range []string{"main.go", "../internal/webapp/webapp.go"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		lines += strings.Count(string(data), "\n")
	}
	t.Logf("figure operator_lines %d lines", lines)
	require.Less(t, lines, 150)
}

// site is a cluster with the operator's definition and access, and the program.
type site struct {
	*testing.T

	all              *testing.T // the test of which T is a part
	cluster          *kubetest.Cluster
	path, kubeconfig string
	replica          *replica
}

// replica is a running program.
type replica struct {
	*process.Process

	stop func() error
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{
		T:       t,
		all:     t,
		cluster: kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3}),
		path:    programtest.Build(t),
		replica: &replica{},
	}
	for _, file := range []string{"../internal/webapp/crd.yaml", "rbac.yaml"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, s.cluster.Apply(t.Context(), string(data)))
	}
	s.kubectl("wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=300s")
	var err error
	_, s.kubeconfig, err = s.cluster.ServiceAccount(t.Context(), "webapp-operator", "webapp-operator")
	require.NoError(t, err)
	return s
}

// run starts one more replica, which ends with the whole test.
func (s *site) run() *replica {
	s.Helper()
	r := &replica{}
	r.Process, r.stop = programtest.Start(s.all, s.path, "--kubeconfig", s.kubeconfig, "--health-address", "127.0.0.1:0")
	return r
}

func (s *site) start() { *s.replica = *s.run() }

// answer returns what a replica answers at a path.
func (s *site) answer(r *replica, path string) string {
	s.Helper()
	address := regexp.MustCompile(`listening address=(\S+)`).FindStringSubmatch(r.Tail())
	require.NotNil(s, address, r.Tail())
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+address[1]+path, nil)
	require.NoError(s, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	return string(body)
}

func (s *site) kubectl(args ...string) string {
	s.Helper()
	out, err := s.cluster.Kubectl(s.Context(), args...)
	require.NoError(s, err)
	return out
}

// namespace creates one.
func (s *site) namespace(name string) string {
	s.Helper()
	s.kubectl("create", "namespace", name)
	return name
}

func app(namespace, name, spec string) string {
	return fmt.Sprintf(
		"{apiVersion: example.com/v1, kind: WebApp, metadata: {name: %s, namespace: %s}, spec: {%s}}\n---\n",
		name,
		namespace,
		spec,
	)
}

func (s *site) apply(namespace, name, spec string) {
	s.Helper()
	require.NoError(s, s.cluster.Apply(s.Context(), app(namespace, name, spec)))
}

// becomes waits until kubectl prints what is wanted.
func (s *site) becomes(want string, args ...string) {
	s.Helper()
	s.matches(func(have string) bool { return have == want }, want, args...)
}

func (s *site) contains(want string, args ...string) {
	s.Helper()
	s.matches(func(have string) bool { return strings.Contains(have, want) }, want, args...)
}

func (s *site) matches(holds func(string) bool, want string, args ...string) {
	s.Helper()
	var have string
	deadline, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	for deadline.Err() == nil {
		out, err := s.cluster.Kubectl(deadline, args...)
		if have = out; err != nil {
			have = err.Error()
		} else if holds(out) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.FailNow(s, "it never happened", "kubectl %s: %q, want %q\n%s", strings.Join(args, " "), have, want, s.replica.Tail())
}

// condition is how kubectl prints a field of one condition of the app web.
func condition(namespace, kind, field string) []string {
	return []string{
		"get",
		"webapp",
		"web",
		"-n",
		namespace,
		"-o",
		fmt.Sprintf(`jsonpath={.status.conditions[?(@.type=="%s")].%s}`, kind, field),
	}
}

// ready waits until the status of this very generation is Ready.
func (s *site) ready(namespace, name string) {
	s.Helper()
	s.becomes(
		"True",
		"get",
		"webapp",
		name,
		"-n",
		namespace,
		"-o",
		`go-template={{$g := .metadata.generation}}{{if eq .status.observedGeneration $g}}{{range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{end}}{{end}}{{end}}`,
	)
}

func children(namespace string) []string {
	return []string{
		"get",
		"deployments,services,configmaps",
		"-n",
		namespace,
		"-l",
		"app.kubernetes.io/managed-by=webapp-operator",
		"-o",
		"jsonpath={.items[*].kind}",
	}
}

// many is the namespace of many WebApps, which are looked at when they are at rest.
const many = "fifty"

// requests returns what the operator has sent, without the requests for its Lease, and without
// repetitions of an Event of the stories before, which it writes a minute after them.
func (s *site) requests() []kubetest.Request {
	s.Helper()
	all, err := s.cluster.Requests(user)
	require.NoError(s, err)
	return slices.DeleteFunc(all, func(r kubetest.Request) bool {
		return r.Resource == "leases" || r.Resource == "events" && r.Verb == "patch" && r.Namespace != many
	})
}

// quiet waits until the operator has sent nothing for three seconds, and returns what it
// has sent until then.
func (s *site) quiet() []kubetest.Request {
	s.Helper()
	sent := s.requests()
	for range 60 {
		time.Sleep(3 * time.Second)
		now := s.requests()
		if len(now) == len(sent) {
			return now
		}
		sent = now
	}
	require.FailNow(s, "it never rests", "%s", s.replica.Tail())
	return nil
}

// rests waits until the cluster is at rest, where nothing has changed for more than five seconds. The
// operator then has sent nothing. It returns what it sent before. An Event that was repeated on a slow
// machine is counted within a minute after that, once.
func (s *site) rests() []kubetest.Request {
	s.Helper()
	counted := map[string]bool{}
	for range 20 {
		seen, events := s.versions(), len(counted)
		sent := s.quiet()
		time.Sleep(5 * time.Second)
		if s.versions() != seen {
			continue
		}
		late := slices.DeleteFunc(s.requests()[len(sent):], func(r kubetest.Request) bool {
			first := r.Resource == "events" && r.Verb == "patch" && !counted[r.Name]
			counted[r.Name] = counted[r.Name] || first
			return first
		})
		require.Empty(s, late, "sent at rest")
		if len(counted) == events {
			return sent
		}
	}
	require.FailNow(s, "the cluster never rests", "%s", s.replica.Tail())
	return nil
}

// versions returns the resource versions of all that the operator looks at. A controller of the
// cluster may be late with a status, which the operator then reads.
func (s *site) versions() string {
	s.Helper()
	return s.kubectl(
		"get", "webapps,deployments,services,configmaps,pods", "-A", "-o", "jsonpath={.items[*].metadata.resourceVersion}",
	)
}

func writes(requests []kubetest.Request) []string {
	var found []string
	for _, r := range requests {
		if !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			found = append(found, r.String())
		}
	}
	return found
}

func (s *site) refused() {
	ns := s.namespace("refused")
	for spec, why := range map[string]string{
		"replicas: 1":                         "spec.image",
		"image: web, replicas: -1":            "spec.replicas",
		"image: 'web:latest', replicas: 2":    "image of a fixed version",
		"image: web, config: {DEBUG: [true]}": "spec.config.DEBUG",
	} {
		require.ErrorContains(s, s.cluster.Apply(s.Context(), app(ns, "web", spec)), why)
	}
	require.ErrorContains(s, s.cluster.Apply(s.Context(), app(ns, "web.site", "image: web")), "name of a Service")
}

func (s *site) becomesReady() {
	ns := s.namespace("readiness")
	nodes := strings.Fields(s.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	s.kubectl(append([]string{"cordon"}, nodes...)...)
	s.apply(ns, "web", "image: 'web:1', replicas: 2, config: {COLOR: blue}")
	s.becomes("Unschedulable", condition(ns, "Ready", "reason")...)
	s.contains("Deployment.apps/readiness/web: Pod web-", condition(ns, "Reconciling", "message")...)
	s.contains("3 node(s) were unschedulable", condition(ns, "Reconciling", "message")...)
	s.becomes("Deployment Service ConfigMap", children(ns)...)
	s.kubectl(append([]string{"uncordon"}, nodes...)...)
	s.ready(ns, "web")
	s.becomes("False", condition(ns, "Reconciling", "status")...)
	require.Regexp(s, `NAME +IMAGE +REPLICAS +READY +REASON +AGE\nweb +web:1 +2 +True +Ready`, s.kubectl("get", "webapps", "-n", ns))
	require.Equal(
		s,
		"WebApp web true",
		s.kubectl(
			"get",
			"service",
			"web",
			"-n",
			ns,
			"-o",
			"jsonpath={.metadata.ownerReferences[0].kind} {.metadata.ownerReferences[0].name} {.metadata.ownerReferences[0].controller}",
		),
	)
	require.Equal(s, s.kubectl("get", "webapp", "web", "-n", ns, "-o", "jsonpath={.metadata.uid}"),
		s.kubectl("get", "service", "web", "-n", ns, "-o", `jsonpath={.metadata.labels.example\.com/webapp}`))
}

func (s *site) repaired() {
	ns := s.namespace("drift")
	s.apply(ns, "web", "image: 'web:1', replicas: 2, config: {COLOR: blue}")
	s.ready(ns, "web")
	uid := s.kubectl("get", "configmap", "web-config", "-n", ns, "-o", "jsonpath={.metadata.uid}")
	s.kubectl("scale", "deployment", "web", "-n", ns, "--replicas=7")
	s.becomes("2", "get", "deployment", "web", "-n", ns, "-o", "jsonpath={.spec.replicas}")
	s.kubectl("patch", "configmap", "web-config", "-n", ns, "-p", `{"data":{"COLOR":"red"}}`)
	s.becomes("blue", "get", "configmap", "web-config", "-n", ns, "-o", "jsonpath={.data.COLOR}")
	s.kubectl("label", "service", "web", "-n", ns, "example.com/webapp-")
	s.contains("-", "get", "service", "web", "-n", ns, "-o", `jsonpath={.metadata.labels.example\.com/webapp}`)
	s.kubectl("delete", "configmap/web-config", "deployment/web", "-n", ns)
	s.becomes("Deployment Service ConfigMap", children(ns)...)
	require.NotEqual(s, uid, s.kubectl("get", "configmap", "web-config", "-n", ns, "-o", "jsonpath={.metadata.uid}"))
	s.ready(ns, "web")
}

func (s *site) pruned() {
	ns := s.namespace("prune")
	s.apply(ns, "web", "image: 'web:1', config: {COLOR: blue}")
	s.ready(ns, "web")
	s.kubectl("create", "configmap", "mine", "-n", ns)
	s.kubectl("patch", "webapp", "web", "-n", ns, "--type=merge", "-p", `{"spec":{"config":null}}`)
	s.becomes("Deployment Service", children(ns)...)
	s.ready(ns, "web")
	require.Empty(s, s.kubectl("get", "deployment", "web", "-n", ns, "-o", "jsonpath={.spec.template.spec.containers[0].envFrom}"))
	s.kubectl("get", "configmap", "mine", "-n", ns)
}

func (s *site) named() {
	ns := s.namespace("invalid")
	s.apply(ns, "web", "image: 'web:1', config: {'A COLOR': blue}")
	s.contains(`a valid config key must consist of`, condition(ns, "Stalled", "message")...)
	s.becomes("True", condition(ns, "Stalled", "status")...)
	s.becomes("Invalid", condition(ns, "Ready", "reason")...)
	s.contains("Warning Invalid", "get", "events.events.k8s.io", "-n", ns, "-o", `jsonpath={range .items[*]}{.type} {.reason};{end}`)
	s.becomes("Deployment Service", children(ns)...) // the others are there
	s.apply(ns, "other", "image: 'web:1'")
	s.ready(ns, "other")
	s.kubectl("patch", "webapp", "web", "-n", ns, "--type=json", "-p", `[{"op":"replace","path":"/spec/config","value":{"COLOR":"blue"}}]`)
	s.ready(ns, "web")
}

func (s *site) foreign() {
	ns := s.namespace("foreign")
	s.kubectl("create", "configmap", "web-config", "-n", ns, "--from-literal=mine=yes")
	s.apply(ns, "web", "image: 'web:1', config: {COLOR: blue}")
	s.contains("ConfigMap/foreign/web", condition(ns, "Stalled", "message")...)
	s.becomes("True", condition(ns, "Stalled", "status")...)
	s.becomes("NotOurs", condition(ns, "Ready", "reason")...)
	require.Equal(s, `{"mine":"yes"}`, s.kubectl("get", "configmap", "web-config", "-n", ns, "-o", "jsonpath={.data}"))
	s.kubectl("delete", "webapp", "web", "-n", ns, "--timeout=60s")
	require.Equal(s, `{"mine":"yes"}`, s.kubectl("get", "configmap", "web-config", "-n", ns, "-o", "jsonpath={.data}"))
}

func (s *site) deleted() {
	ns := s.namespace("deletion")
	s.apply(ns, "web", "image: 'web:1', config: {COLOR: blue}")
	s.apply(ns, "other", "image: 'web:1'")
	s.ready(ns, "web")
	s.ready(ns, "other")
	// A finalizer of another holds a child, and so the parent.
	s.kubectl("patch", "configmap", "web-config", "-n", ns, "-p", `{"metadata":{"finalizers":["example.com/backup"]}}`)
	s.kubectl("delete", "webapp", "web", "-n", ns, "--wait=false")
	s.becomes("other ", "get", "services", "-n", ns, "-o", "jsonpath={.items[*].metadata.name} ")
	require.Equal(s, `["example.com/children"]`, s.kubectl("get", "webapp", "web", "-n", ns, "-o", "jsonpath={.metadata.finalizers}"))
	s.kubectl("patch", "configmap", "web-config", "-n", ns, "-p", `{"metadata":{"finalizers":null}}`)
	s.becomes("other", "get", "webapps", "-n", ns, "-o", "jsonpath={.items[*].metadata.name}")
	require.Equal(s, "Deployment Service", s.kubectl(children(ns)...))
}

func (s *site) fifty() {
	const parents = 50
	ns := s.namespace(many)
	var all strings.Builder
	for i := range parents {
		all.WriteString(app(ns, fmt.Sprintf("web-%d", i), "image: 'web:1', config: {COLOR: blue}"))
	}
	require.NoError(s, s.cluster.Apply(s.Context(), all.String()))
	allReady := []string{"get", "webapps", "-n", ns, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`}
	s.becomes(strings.TrimSpace(strings.Repeat("True ", parents)), allReady...)
	before := s.rests()
	created := map[string]int{}
	for _, r := range before {
		if r.Namespace == ns && r.Code < 300 && r.Verb == "patch" && !strings.HasPrefix(r.Resource, "webapps") && r.Resource != "events" {
			created[r.Resource+" "+r.Name]++
		}
	}
	require.Len(s, created, 3*parents)
	for name, n := range created {
		require.Equal(s, 1, n, name)
	}
	// Nothing is written again after a restart.
	require.NoError(s, s.replica.stop(), s.replica.Tail())
	s.start()
	reads := func() (n int) {
		for _, r := range s.requests()[len(before):] {
			if r.Verb == "get" && r.Namespace == ns {
				n++
			}
		}
		return n
	}
	await.Eventually(s, "it has looked at every Deployment", func() bool { return reads() >= parents })
	after := s.quiet()[len(before):]
	require.Empty(s, writes(after))
	require.Equal(s, parents, reads(), "once each, for the status; the metadata of Services and ConfigMaps shows theirs")

	s.kubectl("delete", "webapps", "--all", "-n", ns, "--timeout=2m")
	require.Empty(s, s.kubectl(children(ns)...))
}

func (s *site) replicas() {
	ns := s.namespace("replicas")
	holder := func() string {
		return s.kubectl("get", "lease", "webapp-operator", "-n", "webapp-operator", "-o", "jsonpath={.spec.holderIdentity}")
	}
	s.apply(ns, "web", "image: 'web:1', replicas: 2")
	s.ready(ns, "web")
	first := holder()
	second := s.run()
	before := len(s.quiet())
	require.Equal(s, first, holder())
	require.Len(s, s.requests(), before, "one that waits asks for the Lease only")
	require.Equal(s, "watches: ok\n", s.answer(second, "/readyz"), "it is ready to take over")
	require.Contains(s, s.answer(s.replica, "/metrics"), `trueup_operator_objects{operator="webapp-operator",reason="Ready"}`)
	require.NotContains(s, s.answer(second, "/metrics"), "trueup_operator", "it shows nothing that is old")
	require.NoError(s, s.replica.stop())
	s.kubectl("scale", "deployment", "web", "-n", ns, "--replicas=7")
	s.becomes("2", "get", "deployment", "web", "-n", ns, "-o", "jsonpath={.spec.replicas}")
	require.NotEqual(s, first, holder())
	require.NoError(s, second.stop(), second.Tail())
}
