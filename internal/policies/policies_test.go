package policies_test

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// peer is a pod, or an address outside of the cluster.
type peer struct {
	namespace       string
	namespaceLabels map[string]string
	labels          map[string]string
	address         string
}

// world is a cluster with the objects of a golden file. Each pod has an address in 10.244.0.0/16.
type world struct {
	t        *testing.T
	objects  []*unstructured.Unstructured
	policies *matcher.Policy
	peers    map[string]peer
}

// newWorld has a pod for each workload of the file, by its kind.
func newWorld(t *testing.T, file string) *world {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "cmd", file))
	require.NoError(t, err)
	w := &world{t: t, peers: map[string]peer{}}
	var policies []*networkingv1.NetworkPolicy
	for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		object := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		if len(object) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: object}
		w.objects = append(w.objects, o)
		switch o.GetKind() {
		case "NetworkPolicy":
			var policy networkingv1.NetworkPolicy
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object, &policy))
			policies = append(policies, &policy)
		case "Deployment", "Job":
			w.pod(o.GetKind(), o.GetNamespace(), w.labels(o, "spec", "template", "metadata", "labels"))
		case "CronJob":
			w.pod(o.GetKind(), o.GetNamespace(), w.labels(o, "spec", "jobTemplate", "spec", "template", "metadata", "labels"))
		}
	}
	require.NotEmpty(t, policies)
	w.policies = matcher.BuildNetworkPolicies(false, policies)
	return w
}

func (w *world) labels(o *unstructured.Unstructured, path ...string) map[string]string {
	w.t.Helper()
	found, ok, err := unstructured.NestedStringMap(o.Object, path...)
	require.True(w.t, ok && err == nil, "%s of %s: %v", strings.Join(path, "."), o.GetName(), err)
	return found
}

// pod adds a pod. Its namespace has the label that the API server gives each, and more.
func (w *world) pod(name, namespace string, podLabels map[string]string, more ...string) {
	w.t.Helper()
	require.NotContains(w.t, w.peers, name, "another pod would take its place")
	all := map[string]string{"kubernetes.io/metadata.name": namespace}
	for _, label := range more {
		key, value, _ := strings.Cut(label, "=")
		all[key] = value
	}
	w.peers[name] = peer{namespace, all, podLabels, "10.244.0." + strconv.Itoa(len(w.peers)+1)}
}

// peer returns a pod by its name, or an address.
func (w *world) peer(name string) *matcher.TrafficPeer {
	w.t.Helper()
	if _, err := netip.ParseAddr(name); err == nil {
		return &matcher.TrafficPeer{IP: name}
	}
	p, ok := w.peers[name]
	require.True(w.t, ok, "there is no %s among %v", name, w.peers)
	return &matcher.TrafficPeer{IP: p.address, Internal: &matcher.InternalPeer{
		PodLabels: p.labels, NamespaceLabels: p.namespaceLabels, Namespace: p.namespace,
	}}
}

// reaches asks the evaluator. A port is written as TCP/443.
func (w *world) reaches(from, to, port string) bool {
	w.t.Helper()
	protocol, text, _ := strings.Cut(port, "/")
	number, err := strconv.Atoi(text)
	require.NoError(w.t, err)
	return w.policies.IsTrafficAllowed(&matcher.Traffic{
		Source: w.peer(from), Destination: w.peer(to), ResolvedPort: number, Protocol: corev1.Protocol(protocol),
	}).IsAllowed()
}

// check compares each row, "from -> to port port ...", with what is wanted of it.
func (w *world) check(want bool, rows ...string) {
	w.t.Helper()
	require.Empty(w.t, w.others(want, rows...), "want %t", want)
}

// others returns the connections of rows that are not as wanted.
func (w *world) others(want bool, rows ...string) (found []string) {
	w.t.Helper()
	for _, row := range rows {
		from, rest, ok := strings.Cut(row, " -> ")
		require.True(w.t, ok, row)
		fields := strings.Fields(rest)
		require.Greater(w.t, len(fields), 1, "%s: has no port", row)
		for _, port := range fields[1:] {
			if w.reaches(from, fields[0], port) != want {
				found = append(found, from+" -> "+fields[0]+" "+port)
			}
		}
	}
	return found
}

func TestAnEnvironmentOfShuttleIsIsolated(t *testing.T) {
	w := newWorld(t, "shuttle/agent/testdata/everything.yaml")
	web := w.peers["Deployment"]
	with := func(key, value string) map[string]string {
		changed := maps.Clone(web.labels)
		changed[key] = value
		return changed
	}
	w.pod("sibling", web.namespace, with("starform.io/service-id", "00000000000040008000000000000003"))
	w.pod("staging", web.namespace, with("starform.io/environment", "staging"))
	w.pod("bare", web.namespace, nil)
	w.pod("other", "proj-other", with("starform.io/project-id", "00000000000040008000000000000009"))
	w.pod("impostor", "proj-evil", web.labels)
	w.pod("gateway", "starform-gateway", map[string]string{"app": "gateway"}, "starform.io/namespace-role=gateway")
	w.pod("lookalike", "starform-gateway-2", map[string]string{"app": "gateway"})
	w.pod("dns", "kube-system", map[string]string{"k8s-app": "kube-dns"})
	w.pod("dns-elsewhere", "proj-evil", map[string]string{"k8s-app": "kube-dns"})
	w.pod("metrics", "kube-system", map[string]string{"k8s-app": "metrics-server"})

	w.check(true,
		"gateway -> Deployment TCP/8080", "sibling -> Deployment TCP/8080 UDP/8080", "Deployment -> sibling TCP/5432",
		"Deployment -> dns UDP/53 TCP/53", "Deployment -> 198.51.100.7 TCP/443", "Deployment -> 2001:db8::7 TCP/443",
		"Deployment -> 203.0.113.9 TCP/5432", // as the service states
	)
	w.check(
		false,
		"staging -> Deployment TCP/8080",
		"bare -> Deployment TCP/8080",
		"other -> Deployment TCP/8080",
		"impostor -> Deployment TCP/8080",
		"lookalike -> Deployment TCP/8080",
		"metrics -> Deployment TCP/8080",
		"198.51.100.7 -> Deployment TCP/8080",
		"10.0.0.1 -> Deployment TCP/8080",
		"Deployment -> staging TCP/8080",
		"Deployment -> other TCP/8080 TCP/443",
		"Deployment -> impostor TCP/8080 TCP/443",
		"Deployment -> gateway TCP/443",
		"Deployment -> bare TCP/443",
		"Deployment -> metrics TCP/443 TCP/53 UDP/53",
		"Deployment -> dns-elsewhere UDP/53 TCP/53",
		"Deployment -> dns TCP/443 TCP/9153",
		"Deployment -> 198.51.100.7 TCP/80 TCP/22 TCP/25 UDP/443 TCP/5432",
		"Deployment -> 10.0.0.1 TCP/443 TCP/6443",
		"Deployment -> 172.20.0.1 TCP/443",
		"Deployment -> 192.168.1.1 TCP/443", // API server, nodes
		"Deployment -> 100.64.0.1 TCP/443",
		"Deployment -> 127.0.0.1 TCP/443",
		"Deployment -> 169.254.169.254 TCP/80 TCP/443",
		"Deployment -> 169.254.170.2 TCP/443",
		"Deployment -> fd00:ec2::254 TCP/80 TCP/443",
		"Deployment -> fe80::1 TCP/443",
		"Deployment -> ::1 TCP/443",
	)
}

// TestAConnectionThatIsNotAsWantedIsFound: each port of each row is asked for.
func TestAConnectionThatIsNotAsWantedIsFound(t *testing.T) {
	w := newWorld(t, "shuttle/agent/testdata/everything.yaml")
	w.pod("bare", w.peers["Deployment"].namespace, nil)
	const open, closed = "Deployment -> 198.51.100.7 TCP/443", "bare -> Deployment TCP/8080"
	require.Equal(t, []string{closed}, w.others(true, closed, open))
	require.Equal(t, []string{open}, w.others(false, closed, open))
	require.Equal(t, []string{open}, w.others(false, open+" TCP/80"))
	require.Equal(t, []string{"Deployment -> 198.51.100.7 TCP/80"}, w.others(true, open+" TCP/80"))
}

// TestARouteOfShuttleReachesItsPods follows the HTTPRoute: from the Gateway that it names to the Service,
// the pods that this selects, and their port, which the policy must let the Gateway reach.
func TestARouteOfShuttleReachesItsPods(t *testing.T) {
	w := newWorld(t, "shuttle/agent/testdata/everything.yaml")
	find := func(kind, name string) *unstructured.Unstructured {
		t.Helper()
		at := slices.IndexFunc(w.objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == kind && (name == "" || o.GetName() == name)
		})
		require.GreaterOrEqual(t, at, 0, "%s %s", kind, name)
		return w.objects[at]
	}
	list := func(o map[string]any, path ...string) []any {
		t.Helper()
		all, ok, err := unstructured.NestedSlice(o, path...)
		require.True(t, ok && err == nil && len(all) > 0, "%v: %v", path, err)
		return all
	}
	route := find("HTTPRoute", "")
	parent := list(route.Object, "spec", "parentRefs")[0].(map[string]any)
	w.pod("gateway", parent["namespace"].(string), nil, "starform.io/namespace-role=gateway") // the agent labels this namespace
	backend := list(list(route.Object, "spec", "rules")[0].(map[string]any), "backendRefs")[0].(map[string]any)
	service := find("Service", backend["name"].(string))
	require.Equal(t, route.GetNamespace(), service.GetNamespace())
	pod := w.peers["Deployment"]
	require.Equal(t, service.GetNamespace(), pod.namespace)
	require.True(t, labels.SelectorFromSet(w.labels(service, "spec", "selector")).Matches(labels.Set(pod.labels)))
	reached := 0
	for _, item := range list(service.Object, "spec", "ports") {
		port := item.(map[string]any)
		if port["port"] != backend["port"] || port["protocol"] != "TCP" {
			continue
		}
		target, ok := port["targetPort"]
		if !ok {
			target = port["port"]
		}
		w.check(true, "gateway -> Deployment TCP/"+strconv.FormatFloat(target.(float64), 'f', -1, 64))
		reached++
	}
	require.Equal(t, 1, reached, "the route's port is one of the Service")
}

func TestNoPodReachesARun(t *testing.T) {
	once := newWorld(t, "agentjob/operator/testdata/render/once.yaml")
	run := once.peers["Job"]
	once.pod("neighbour", run.namespace, nil)
	once.pod("other-run", run.namespace, map[string]string{"thurkube.thurbeen.eu/owner-uid": "other"})
	once.pod("elsewhere", "other", run.labels)
	once.check(false, "neighbour -> Job TCP/8080", "other-run -> Job TCP/8080", "elsewhere -> Job TCP/8080", "198.51.100.7 -> Job TCP/22")
	once.check(true, "Job -> 198.51.100.7 TCP/443 TCP/80", "Job -> neighbour TCP/8080", "neighbour -> other-run TCP/8080")

	scheduled := newWorld(t, "agentjob/operator/testdata/render/scheduled.yaml")
	scheduled.pod("neighbour", run.namespace, nil)
	scheduled.check(true, "CronJob -> 203.0.113.5 TCP/443")
	scheduled.check(false, "neighbour -> CronJob TCP/8080", "CronJob -> neighbour TCP/443", "CronJob -> 198.51.100.7 TCP/443",
		"CronJob -> 203.0.113.5 TCP/80 UDP/443", "CronJob -> 169.254.169.254 TCP/80")
}

func TestAnApplicationAdmitsTheIngressControllerAndWhatItNames(t *testing.T) {
	for file, test := range map[string]struct {
		home  string
		names bool // it names another application and the monitoring
	}{"whole.yaml": {"team", true}, "small.yaml": {"team", false}, "preview.yaml": {"preview-shop-pr-7-57b525fd0372", true}} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t, "application/operator/testdata/render/"+file)
			require.Equal(t, test.home, w.peers["Deployment"].namespace)
			w.pod("ingress", "ingress-nginx", map[string]string{"app": "controller"})
			w.pod("lookalike", "ingress-nginx-2", map[string]string{"app": "controller"})
			w.pod("admin", "team", map[string]string{"platform.internal/app": "admin"})
			w.pod("admin-elsewhere", "evil", map[string]string{"platform.internal/app": "admin"})
			w.pod("blog", "team", map[string]string{"platform.internal/app": "blog"})
			w.pod("prometheus", "monitoring", nil)
			w.check(true, "ingress -> Deployment TCP/3000", "Deployment -> blog TCP/3000", "Deployment -> 198.51.100.7 TCP/443")
			w.check(test.names, "ingress -> Deployment TCP/3001", "admin -> Deployment TCP/3000", "prometheus -> Deployment TCP/3000")
			w.check(false, "ingress -> Deployment TCP/9229 UDP/3000", "lookalike -> Deployment TCP/3000", "admin-elsewhere -> Deployment TCP/3000",
				"blog -> Deployment TCP/3000 TCP/3001", "198.51.100.7 -> Deployment TCP/3000", "admin -> Deployment TCP/22")
		})
	}
}
