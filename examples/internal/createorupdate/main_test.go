package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// contenders are the forms of one operator, by the name that its children carry.
var contenders = []struct{ manager, folder string }{
	{"webapp-operator", "../../operator"}, {"webapp-embed", "../../embed"}, {"webapp-embed", "."},
}

// Each of them does the same, on a Kubernetes whose controllers run its pods.
func TestTheSameOperatorInThreeForms(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own, and three programs")
	}
	t.Parallel()
	s := newSite(t)
	for _, c := range contenders {
		t.Run(c.folder, func(t *testing.T) {
			(&site{T: t, cluster: s.cluster, path: programtest.BuildOf(t, c.folder)}).works(c.manager)
		})
	}
}

// An operator in a Manager takes over the children that CreateOrUpdate has made, and the fields
// that only that one has set go.
func TestOneFormTakesOverFromAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own, and two programs")
	}
	t.Parallel()
	s := newSite(t)
	s.path = programtest.BuildOf(t, ".")
	p, stop := s.start()
	s.apply("web", "image: 'web:1', replicas: 2, config: {COLOR: blue}")
	s.ready()
	require.Equal(t, "createorupdate", s.kubectl("get", "configmap", "web-config", "-o", "jsonpath={.metadata.managedFields[*].manager}"))
	uids := []string{"get", "deployments,services,configmaps", "-l", managed("webapp-embed"), "-o", "jsonpath={.items[*].metadata.uid}"}
	before := s.kubectl(uids...)
	require.Len(t, strings.Fields(before), 3)
	require.NoError(t, stop(), p.Tail())

	s.path = programtest.BuildOf(t, "../../embed")
	p, stop = s.start()
	s.becomes("webapp-embed", "configmap", "web-config", "-o", "jsonpath={.metadata.managedFields[*].manager}")
	s.becomes("Ready", "webapp", "web", "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].reason}`)
	s.ready()
	require.Equal(s, before, s.kubectl(uids...), "they are the same")
	s.kubectl("patch", "webapp", "web", "--type=merge", "-p", `{"spec":{"config":null}}`)
	s.becomes("Deployment Service", children("webapp-embed")...)
	s.becomes("", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].envFrom}")
	s.kubectl("delete", "webapp", "web", "--timeout=2m")
	s.becomes("", children("webapp-embed")...)
	require.NoError(t, stop(), p.Tail())
}

// site is a cluster, and a form of the operator.
type site struct {
	*testing.T

	cluster *kubetest.Cluster
	path    string
	tail    func() string // of the log
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, cluster: kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3})}
	definition, err := os.ReadFile("../webapp/crd.yaml")
	require.NoError(t, err)
	require.NoError(t, s.cluster.Apply(t.Context(), string(definition)))
	s.kubectl("wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=300s")
	return s
}

// start runs the operator until the returned function is called.
func (s *site) start() (p *process.Process, stop func() error) {
	s.Helper()
	p, stop = programtest.Start(s.T, s.path, "--kubeconfig", s.cluster.Kubeconfig, "--namespace", "default")
	s.tail = p.Tail
	return p, stop
}

func managed(manager string) string { return "app.kubernetes.io/managed-by=" + manager }

func children(manager string) []string {
	return []string{"deployments,services,configmaps", "-l", managed(manager), "-o", "jsonpath={.items[*].kind}"}
}

func (s *site) kubectl(args ...string) string {
	s.Helper()
	out, err := s.cluster.Kubectl(s.Context(), args...)
	require.NoError(s, err)
	return out
}

func (s *site) apply(name, spec string) {
	s.Helper()
	require.NoError(s, s.cluster.Apply(s.Context(), fmt.Sprintf(
		"{apiVersion: example.com/v1, kind: WebApp, metadata: {name: %s, namespace: default}, spec: {%s}}", name, spec,
	)))
}

// becomes waits until kubectl get prints what is wanted.
func (s *site) becomes(want string, args ...string) {
	s.Helper()
	var have string
	await.Until(s, 2*await.Moment, fmt.Sprint(args, " is ", want), func() bool {
		out, err := s.cluster.Kubectl(s.Context(), append([]string{"get"}, args...)...)
		if have = out; err != nil {
			have = err.Error()
		}
		return have == want
	}, func() string { return have }, func() string { return s.kubectl("get", "webapps", "-o", "yaml") }, s.tail)
}

// ready waits until the status of this very generation of the WebApp is Ready.
func (s *site) ready() {
	s.Helper()
	s.becomes("True ", "webapps", "-o", `go-template={{range .items}}{{$g := .metadata.generation}}`+
		`{{if eq .status.observedGeneration $g}}{{range .status.conditions}}{{if eq .type "Ready"}}{{.status}} {{end}}{{end}}{{end}}{{end}}`)
}

func (s *site) works(manager string) {
	p, stop := s.start()
	children := children(manager)

	// Children are made, and repaired.
	s.apply("web", "image: 'web:1', replicas: 2, config: {COLOR: blue}")
	s.becomes("Deployment Service ConfigMap", children...)
	s.ready()
	s.kubectl("scale", "deployment", "web", "--replicas=7")
	s.becomes("2", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	s.kubectl("patch", "configmap", "web-config", "-p", `{"data":{"COLOR":"red"}}`)
	s.becomes("blue", "configmap", "web-config", "-o", "jsonpath={.data.COLOR}")
	s.kubectl("label", "service", "web", "app.kubernetes.io/managed-by-")
	s.becomes("Deployment Service ConfigMap", children...)
	s.kubectl("delete", "configmap/web-config", "deployment/web")
	s.becomes("Deployment Service ConfigMap", children...)
	s.ready()

	// What is no longer wanted goes; what the server refuses is named, and the rest is made.
	s.kubectl("patch", "webapp", "web", "--type=merge", "-p", `{"spec":{"config":null}}`)
	s.becomes("Deployment Service", children...)
	s.kubectl("patch", "webapp", "web", "--type=merge", "-p", `{"spec":{"config":{"A COLOR":"blue"},"image":"web:2"}}`)
	s.becomes("web:2", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	s.becomes("False", "webapp", "web", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	messages := []string{"get", "webapp", "web", "-o", "jsonpath={.status.conditions[*].message}"}
	await.Eventually(s, "the status names the key", func() bool {
		return strings.Contains(s.kubectl(messages...), "a valid config key must consist of")
	})
	s.kubectl("patch", "webapp", "web", "--type=json", "-p", `[{"op":"replace","path":"/spec/config","value":{"COLOR":"blue"}}]`)
	s.ready()

	// After a restart it sees to what has changed meanwhile.
	require.NoError(s, stop(), p.Tail())
	s.kubectl("delete", "service", "web")
	p, stop = s.start()
	s.becomes("Deployment Service ConfigMap", children...)

	// A deleted WebApp goes after its children.
	s.kubectl("patch", "configmap", "web-config", "-p", `{"metadata":{"finalizers":["example.com/backup"]}}`)
	s.kubectl("delete", "webapp", "web", "--wait=false")
	s.becomes("ConfigMap", children...)
	s.becomes(`["example.com/children"]`, "webapp", "web", "-o", "jsonpath={.metadata.finalizers}")
	s.kubectl("patch", "configmap", "web-config", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.becomes("", "webapps", "-o", "jsonpath={.items[*].metadata.name}")
	s.becomes("", children...)
	require.NoError(s, stop(), p.Tail())
}
