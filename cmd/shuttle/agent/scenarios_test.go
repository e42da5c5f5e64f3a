package agent_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const selected = "starform.io/cluster-id="

// one is a project with two services in production and one in staging.
func (b *bench) one(t *testing.T, generation int64) *starbase.DesiredState {
	t.Helper()
	web := service(1, 11, "production", "web")
	web.Hostname = "web." + b.slug + ".example.com"
	return state(t, generation, []starbase.Project{b.project()}, web, service(1, 12, "production", "api"), service(1, 11, "staging", "web"))
}

func (b *bench) deployment(t *testing.T, name, environment string) string {
	t.Helper()
	return b.kubectl(t, "get", "deployments", "-n", b.project().Namespace, "-o", "name",
		"-l", "starform.io/service-name="+name+",starform.io/environment="+environment)
}

func (b *bench) count(t *testing.T, resource string) int {
	t.Helper()
	return len(strings.Fields(b.kubectl(t, "get", resource, "-A", "-l", selected+b.id, "-o", "name")))
}

func refusesBadBodies(t *testing.T, b *bench) {
	a := b.start(t)
	b.starbase.serve(t, b.one(t, 1))
	b.healthy(t, 3)
	b.passes(t, 2)
	before := b.writes(t)
	s := b.one(t, 2)
	s.Services = s.Services[:1]
	s.Services[0].Image = "example.com/evil"
	whole := b.starbase.serve(t, s)
	other := b.one(t, 3)
	other.ClusterID = uuid(1)
	refused := 0.0
	for name, body := range map[string][]byte{
		"cut":            whole[:len(whole)/2],
		"empty":          {},
		"an error":       []byte(`{"error":{"code":"x"}}`),
		"not complete":   bytes.Replace(whole, []byte(`"complete":true`), []byte(`"complete":false`), 1),
		"other counts":   bytes.Replace(whole, []byte(`"services":1`), []byte(`"services":2`), 1),
		"other digest":   bytes.Replace(whole, []byte(`example.com/evil`), []byte(`example.com/ivel`), 1),
		"other cluster":  bytes.Replace(whole, []byte(b.id), []byte(uuid(1)), 1),
		"older":          b.starbase.serve(t, b.one(t, 0+1)),
		"other schema":   bytes.Replace(whole, []byte(`"schema":1`), []byte(`"schema":9`), 1),
		"basic no basis": []byte(`{}`),
	} {
		if name == "older" {
			continue // served with its own version below
		}
		require.NotEqual(t, string(whole), string(body), name)
		b.starbase.serveRaw(body)
		refused++
		await.Eventually(t, name, func() bool { return metric(t, a, "starform_desired_state_rejected_total") >= refused })
	}
	older := b.one(t, 1)
	older.Services = older.Services[:1]
	newer := b.one(t, 5)
	b.starbase.serve(t, newer)
	await.Eventually(t, "the newer is applied", func() bool { return metric(t, a, "starform_applied_generation") == 5 })
	count := metric(t, a, "starform_desired_state_rejected_total")
	b.starbase.serve(t, older)
	await.Eventually(t, "the older is refused", func() bool { return metric(t, a, "starform_desired_state_rejected_total") > count })
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError, 0} {
		b.starbase.fail(status)
		b.passes(t, 2)
	}
	require.Equal(t, before, b.writes(t), "nothing of it was applied, nothing was deleted")
	require.Contains(t, a.log.String(), "starbase answered 401")
}

func reportsNameTaken(t *testing.T, b *bench) {
	ns := b.project().Namespace
	b.kubectl(t, "create", "namespace", ns+"-x") // a bystander
	s := b.one(t, 1)
	b.starbase.serve(t, s)
	a := b.start(t)
	b.healthy(t, 3)
	a.stop()
	web := strings.TrimSpace(b.deployment(t, "web", "production"))
	name := strings.TrimPrefix(web, "deployment.apps/")
	b.kubectl(t, "delete", "-n", ns, "configmap", name)
	b.kubectl(t, "create", "-n", ns, "configmap", name, "--from-literal=theirs=1")
	before := b.kubectl(t, "get", "-n", ns, "configmap", name, "-o", "yaml")
	s = b.one(t, 2)
	s.Services[0].Image = "example.com/web:2"
	b.starbase.serve(t, s)
	b.start(t)
	await.Eventually(t, "NameTaken is reported", func() bool {
		status := b.starbase.status(s.Services[0].Identity())
		return status.Phase == starbase.PhaseRejected && status.ErrorClass == starbase.ClassNameTaken &&
			strings.Contains(status.Message, "held back: it depends on ConfigMap/")
	})
	b.passes(t, 3)
	require.Equal(
		t,
		"example.com/web:1",
		b.kubectl(t, "get", "-n", ns, web, "-o", "jsonpath={.spec.template.spec.containers[0].image}"),
		"it would read what is not ours",
	)
	require.Equal(t, before, b.kubectl(t, "get", "-n", ns, "configmap", name, "-o", "yaml"))
	require.Equal(t, 2, b.starbase.healthy(), "the others go on")
}

// unprovenObjects deletes a service of which an object is there that the agent has
// never applied: a copy with its labels.
func unprovenObjects(t *testing.T, b *bench) {
	b.start(t)
	s := b.one(t, 1)
	b.starbase.serve(t, s)
	b.healthy(t, 3)
	ns, id := b.project().Namespace, s.Services[1].Identity()
	b.kubectl(t, "create", "configmap", "-n", ns, "copy", "--from-literal=a=b")
	labels := b.kubectl(
		t,
		"get",
		"configmap",
		"-n",
		ns,
		strings.TrimPrefix(strings.TrimSpace(b.deployment(t, "api", "production")), "deployment.apps/"),
		"-o",
		"jsonpath={.metadata.labels}",
	)
	b.kubectl(t, "patch", "configmap", "-n", ns, "copy", "--type=merge", "-p", `{"metadata":{"labels":`+labels+`}}`)
	s = b.one(t, 2)
	s.Services[1].Deleted = true
	b.starbase.serve(t, s)
	await.Eventually(t, "what has no proof is reported", func() bool {
		status := b.starbase.status(id)
		return status.ErrorClass == starbase.ClassDeletionHeld &&
			strings.Contains(status.Message, "1 object is not deleted: the labels are the agent's")
	}, func() string {
		return fmt.Sprintf("%+v\n%s", b.starbase.status(id), b.kubectl(t, "get", "configmaps", "-n", ns, "--show-labels"))
	})
	await.Eventually(t, "what has a proof goes", func() bool { return b.count(t, "deployments") == 2 })
	// The report stays true for the others: another service deleted meanwhile is removed.
	await.Eventually(t, "the report is complete", func() bool { return b.starbase.complete(2) })
	s = b.one(t, 3)
	s.Services[1].Deleted, s.Services[0].Deleted = true, true
	b.starbase.serve(t, s)
	await.Eventually(t, "nothing is left of the other", func() bool {
		return b.starbase.complete(3) && b.starbase.status(s.Services[0].Identity()) == starbase.ServiceStatus{}
	})
	require.Equal(t, starbase.ClassDeletionHeld, b.starbase.status(id).ErrorClass)
	b.kubectl(t, "delete", "configmap", "-n", ns, "copy")
	await.Eventually(t, "nothing is left of it", func() bool { return b.starbase.status(id) == starbase.ServiceStatus{} })
	require.True(t, b.starbase.complete(3))
}

func isolatesFirst(t *testing.T, b *bench) {
	b.start(t)
	s := b.one(t, 1)
	s.Services = s.Services[2:] // staging
	b.starbase.serve(t, s)
	b.healthy(t, 1)
	ns := b.project().Namespace
	_, err := b.cluster.Kubectl(t.Context(), "create", "-f", b.foreignPolicy(t, "production"))
	require.NoError(t, err)
	s = b.one(t, 2)
	s.Services[2].Image = "example.com/web:2"
	b.starbase.serve(t, s)
	await.Eventually(t, "both services of the environment are held back, and their reports tell why", func() bool {
		for _, service := range s.Services[:2] {
			status := b.starbase.status(service.Identity())
			if status.ErrorClass != starbase.ClassNameTaken ||
				!strings.Contains(status.Message, "held back: it depends on NetworkPolicy.networking.k8s.io/"+ns+"/env-isolation-production") {
				return false
			}
		}
		return true
	})
	b.passes(t, 3)
	require.Equal(t, 1, b.count(t, "deployments"))
	b.healthy(t, 1)
	image := b.kubectl(
		t,
		"get",
		"-n",
		ns,
		strings.TrimSpace(b.deployment(t, "web", "staging")),
		"-o",
		"jsonpath={.spec.template.spec.containers[0].image}",
	)
	require.Equal(t, "example.com/web:2", image, "the other environment goes on")

	b.kubectl(t, "delete", "networkpolicy", "-n", ns, "env-isolation-production")
	b.healthy(t, 3)
}

// foreignPolicy writes a NetworkPolicy that has the name of an environment's.
func (b *bench) foreignPolicy(t *testing.T, environment string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": {"name": "env-isolation-`+environment+`", "namespace": "`+b.project().Namespace+`"}, "spec": {"podSelector": {}}}`), 0o600))
	return file
}

func handsReplicasOver(t *testing.T, b *bench) {
	a := b.start(t)
	s := b.one(t, 1)
	s.Services[1].Replicas = 4
	b.starbase.serve(t, s)
	b.healthy(t, 3)
	ns, api := b.project().Namespace, strings.TrimSpace(b.deployment(t, "api", "production"))
	replicas := func() string {
		return b.kubectl(t, "get", "-n", ns, api, "-o", "jsonpath={.spec.replicas}")
	}
	applied := func(generation float64) {
		t.Helper()
		await.Eventually(t, "it is applied", func() bool { return metric(t, a, "starform_applied_generation") == generation })
	}

	s = b.one(t, 2)
	s.Services[1].Autoscaling = starbase.Autoscaling{Min: 1, Max: 10, CPUPercent: 80}
	b.starbase.serve(t, s)
	applied(2)
	b.passes(t, 3)
	require.Equal(t, 1, b.count(t, "horizontalpodautoscalers"))
	require.Equal(t, "4", replicas(), "handing over keeps what runs")
	b.kubectl(t, "scale", "-n", ns, api, "--replicas=6") // as the autoscaler does
	before := b.writes(t)
	b.passes(t, 5)
	require.Equal(t, "6", replicas())
	require.Equal(t, before, b.writes(t), "replicas are the autoscaler's")

	s = b.one(t, 3)
	s.Services[1].Replicas = 3
	b.starbase.serve(t, s)
	applied(3)
	require.Zero(t, b.count(t, "horizontalpodautoscalers"), "it goes in the pass that states the replicas")
	require.Equal(t, "3", replicas())
	writes := b.writes(t)[len(before):]
	b.passes(t, 5)
	require.Equal(t, "3", replicas())
	require.Equal(t, writes, b.writes(t)[len(before):])
	first := func(verb string) int {
		return slices.IndexFunc(writes, func(w string) bool { return strings.Contains(w, verb) })
	}
	require.Less(t, first("delete"), first("patch"), "%v: the autoscaler goes first", writes)
}

func wokenByDrift(t *testing.T, b *bench) {
	b.starbase.serve(t, b.one(t, 1))
	b.start(t, "STARFORM_RECONCILE_INTERVAL=1h")
	b.healthy(t, 3)
	b.kubectl(t, "delete", "-n", b.project().Namespace, strings.TrimSpace(b.deployment(t, "api", "production")))
	await.Eventually(t, "it is back long before the ticker", func() bool { return b.count(t, "deployments") == 3 })
}

func standbyTakesOver(t *testing.T, b *bench) {
	b.starbase.serve(t, b.one(t, 1))
	first := b.start(t, "STARFORM_LEADER_ELECTION=true")
	b.healthy(t, 3)
	second := b.start(t, "STARFORM_LEADER_ELECTION=true")
	code, _ := second.get(t, "/readyz")
	require.Equal(t, http.StatusOK, code, "standing by is all that is asked of it")
	b.passes(t, 3)
	require.Zero(t, metric(t, second, "starform_passes_total"))
	first.stop()
	b.kubectl(t, "delete", "-n", b.project().Namespace, strings.TrimSpace(b.deployment(t, "api", "production")))
	await.Eventually(t, "the standby repairs it", func() bool { return b.count(t, "deployments") == 3 })
	require.NotZero(t, metric(t, second, "starform_passes_total"))
}

// metric reads a metric of the agent, the sum over its labels.
func metric(t *testing.T, a *agent, name string) float64 {
	t.Helper()
	_, text := a.get(t, "/metrics")
	sum := 0.0
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			var v float64
			_, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v)
			require.NoError(t, err)
			sum += v
		}
	}
	return sum
}

// TestAMissingKindDelaysNothing runs on a cluster without the Gateway API: its
// routes cannot be applied, and that holds up nothing else, until it is there.
func TestAMissingKindDelaysNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})
	b := &bench{cluster: cluster, id: uuid(999), slug: "plain", config: cluster.Config, user: "admin", starbase: newFakeStarbase(t, uuid(999))}
	b.token = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(b.token, []byte("token"), 0o600))
	a := b.start(t)
	s := b.one(t, 1)
	b.starbase.serve(t, s)
	b.healthy(t, 2)
	web := b.starbase.status(s.Services[0].Identity())
	require.Equal(t, starbase.PhaseApplying, web.Phase)
	require.Contains(t, web.Message, "the live state is not known")
	await.Eventually(t, "it is ready: a kind that the server does not have has no objects", func() bool {
		code, _ := a.get(t, "/readyz")
		return code == http.StatusOK
	})

	api := strings.TrimSpace(b.deployment(t, "api", "production"))
	b.kubectl(t, "delete", "-n", b.project().Namespace, api)
	await.Eventually(t, "it is back", func() bool { return b.count(t, "deployments") == 3 })
}

// sizesLoadBalancer is D27 and C11.
func sizesLoadBalancer(t *testing.T, b *bench) {
	ns := b.slug + "-gateway"
	b.kubectl(t, "create", "namespace", ns)
	b.kubectl(t, "create", "service", "loadbalancer", "-n", ns, "edge", "--tcp=443")
	b.kubectl(t, "annotate", "service", "-n", ns, "edge", "someone.example.com/note=theirs")
	units := func() string {
		return b.kubectl(
			t,
			"get",
			"service",
			"-n",
			ns,
			"edge",
			"-o",
			`jsonpath={.metadata.annotations.service\.beta\.kubernetes\.io/do-loadbalancer-size-unit}`,
		)
	}
	sized := func(generation int64, n int) *starbase.DesiredState {
		s := b.one(t, generation)
		s.ClusterConfig.LBSizeUnits = n
		require.NoError(t, s.Seal())
		return s
	}
	a := b.start(t, "STARFORM_GATEWAY_SERVICE="+ns+"/edge")
	b.starbase.serve(t, sized(1, 3))
	b.healthy(t, 3)
	await.Eventually(t, "the size is set", func() bool { return units() == "3" })
	require.Equal(t, "gateway", b.kubectl(t, "get", "namespace", ns, "-o", `jsonpath={.metadata.labels.starform\.io/namespace-role}`))

	before := b.writes(t)
	b.passes(t, 20)
	require.Equal(t, before, b.writes(t), "twenty passes with no change write nothing")
	b.starbase.serve(t, sized(2, 5))
	await.Eventually(t, "the size follows", func() bool { return units() == "5" })
	b.kubectl(t, "annotate", "service", "-n", ns, "edge", "service.beta.kubernetes.io/do-loadbalancer-size-unit-", "--overwrite")
	await.Eventually(t, "it is back", func() bool { return units() == "5" })

	for i, n := range []int{0, 201} {
		generation := int64(3 + i)
		s := sized(generation, n)
		s.Services[1].Replicas = int(generation)
		require.NoError(t, s.Seal())
		b.starbase.serve(t, s)
		await.Eventually(t, "services converge", func() bool {
			return b.starbase.status(s.Services[1].Identity()).Desired == int(generation) && b.starbase.healthy() == 3
		})
		b.passes(t, 3)
		require.Equal(t, "5", units())
		await.Eventually(t, "the refusal is reported", func() bool {
			class, message, _ := b.starbase.clusterProblem()
			return class == "Invalid" && strings.Contains(message, fmt.Sprintf("lb_size_units is %d", n))
		})
	}
	_, metrics := a.get(t, "/metrics")
	require.Contains(t, metrics, `starform_desired_state_rejected_total{reason="cluster_config"} 2`)
	require.Contains(t, a.log.String(), "lb_size_units is 201: want 1 to 200")
	require.Contains(t, b.kubectl(t, "get", "service", "-n", ns, "edge", "-o", "yaml"), "someone.example.com/note: theirs")

	// Another Service is the gateway now, in the same namespace, then in another one.
	b.kubectl(t, "create", "service", "loadbalancer", "-n", ns, "other", "--tcp=443")
	a.stop()
	a = b.start(t, "STARFORM_GATEWAY_SERVICE="+ns+"/other")
	await.Eventually(t, "the first is left", func() bool { return units() == "" })
	require.Equal(t, "gateway", b.kubectl(t, "get", "namespace", ns, "-o", `jsonpath={.metadata.labels.starform\.io/namespace-role}`))
	a.stop()
	b.kubectl(t, "create", "namespace", ns+"-2")
	b.kubectl(t, "create", "service", "loadbalancer", "-n", ns+"-2", "edge", "--tcp=443")
	b.start(t, "STARFORM_GATEWAY_SERVICE="+ns+"-2/edge")
	await.Eventually(t, "its namespace is left", func() bool {
		return b.kubectl(t, "get", "namespace", ns, "-o", `jsonpath={.metadata.labels.starform\.io/namespace-role}`) == ""
	})
	require.NotContains(t, b.kubectl(t, "get", "service", "-n", ns, "-o", "yaml"), "size-unit")
	require.Contains(t, b.kubectl(t, "get", "service", "-n", ns, "edge", "-o", "yaml"), "someone.example.com/note: theirs")
	await.Eventually(t, "the new one has it", func() bool {
		return b.kubectl(t, "get", "namespace", ns+"-2", "-o", `jsonpath={.metadata.labels.starform\.io/namespace-role}`) == "gateway"
	})
}

// missesGateway names a Service of the gateway that does not exist: that is reported, holds
// up nothing else, and is over once the Service is there.
func missesGateway(t *testing.T, b *bench) {
	ns := b.slug + "-gateway"
	a := b.start(t, "STARFORM_GATEWAY_SERVICE="+ns+"/edge")
	b.starbase.serve(t, b.one(t, 1))
	b.healthy(t, 3)
	await.Eventually(t, "it is reported", func() bool {
		class, _, _ := b.starbase.clusterProblem()
		return class == starbase.ClassGatewayMissing
	})
	_, message, _ := b.starbase.clusterProblem()
	require.Contains(t, message, `namespaces "`+ns+`" not found; `)
	require.Contains(t, message, `services "edge" not found`)
	require.InDelta(t, 1, metric(t, a, "starform_gateway_failing"), 0)
	b.passes(t, 3) // until the reports of the first build are over
	before := b.writes(t)
	_, _, reports := b.starbase.clusterProblem()
	b.passes(t, 20)
	require.Equal(t, before, b.writes(t), "it is looked for, and nothing is written")
	_, _, after := b.starbase.clusterProblem()
	require.Equal(t, reports, after, "it is reported once")

	b.kubectl(t, "create", "namespace", ns)
	b.kubectl(t, "create", "service", "loadbalancer", "-n", ns, "edge", "--tcp=443")
	await.Eventually(t, "it is over", func() bool {
		class, message, _ := b.starbase.clusterProblem()
		return class == "" && message == ""
	})
	require.Equal(
		t,
		strconv.Itoa(b.one(t, 1).ClusterConfig.LBSizeUnits),
		b.kubectl(
			t,
			"get",
			"service",
			"-n",
			ns,
			"edge",
			"-o",
			`jsonpath={.metadata.annotations.service\.beta\.kubernetes\.io/do-loadbalancer-size-unit}`,
		),
	)
	require.Zero(t, metric(t, a, "starform_gateway_failing"))

	b.kubectl(t, "delete", "service", "-n", ns, "edge")
	await.Eventually(t, "it is reported again", func() bool {
		class, message, _ := b.starbase.clusterProblem()
		return class == starbase.ClassGatewayMissing && !strings.Contains(message, "namespaces")
	})
	require.Equal(t, 3, b.starbase.healthy())
}

// namesWhoFights is C24: an edit is put right in one pass, from the sixth time on it is a
// fight, which is named and left alone for a while.
func namesWhoFights(t *testing.T, b *bench) {
	a := b.start(t)
	b.starbase.serve(t, b.one(t, 1))
	b.healthy(t, 3)
	ns, web := b.project().Namespace, strings.TrimSpace(b.deployment(t, "web", "production"))
	image := func() string {
		return b.kubectl(t, "get", "-n", ns, web, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	}
	edit := func() {
		b.kubectl(
			t,
			"patch",
			"-n",
			ns,
			web,
			"--field-manager=rival",
			"--type=json",
			"-p",
			`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/rival:1"}]`,
		)
	}
	for range 5 {
		edit()
		await.Eventually(t, "it is put right", func() bool { return image() == "example.com/web:1" })
	}
	require.Zero(t, metric(t, a, "starform_contested_objects"))
	edit()
	id := b.one(t, 1).Services[0].Identity()
	await.Eventually(t, "the fight is reported", func() bool {
		s := b.starbase.status(id)
		return s.ErrorClass == starbase.ClassContested && strings.Contains(s.Message, "rival") && strings.Contains(s.Message, "image")
	})
	require.Equal(t, "example.com/rival:1", image(), "it is left alone")
	require.InDelta(t, 1, metric(t, a, "starform_contested_objects"), 0)
	require.Equal(t, 2, b.starbase.healthy(), "no other service is held back")
	await.Eventually(t, "it is put right once more", func() bool { return image() == "example.com/web:1" })
	b.healthy(t, 3)
}

// leavesOthersAlone is D15: what carries the id of another cluster is neither changed nor
// deleted, also if it has the name of one of ours, or was ours before.
func leavesOthersAlone(t *testing.T, b *bench) {
	b.start(t)
	b.starbase.serve(t, b.one(t, 1))
	b.healthy(t, 3)
	ns, others := b.project().Namespace, "starform.io/cluster-id="+uuid(1)
	name := strings.TrimPrefix(strings.TrimSpace(b.deployment(t, "api", "production")), "deployment.apps/")
	b.kubectl(t, "create", "configmap", "-n", ns, "stranger", "--from-literal=A=1")
	b.kubectl(t, "label", "configmap", "-n", ns, "stranger", "starform.io/managed-by=shuttle", others)
	b.kubectl(t, "label", "--overwrite", "configmap", "-n", ns, name, others)
	b.kubectl(t, "patch", "configmap", "-n", ns, name, "--type=merge", "-p", `{"data":{"GREETING":"theirs"}}`)
	versions := func() string {
		return b.kubectl(
			t,
			"get",
			"configmaps",
			"-n",
			ns,
			"-l",
			others,
			"-o",
			"jsonpath={range .items[*]}{.metadata.name} {.metadata.resourceVersion} {.data} {end}",
		)
	}
	before := versions()
	require.Contains(t, before, "stranger")
	require.Contains(t, before, "theirs")
	id := b.one(t, 1).Services[1].Identity()
	await.Eventually(t, "its service says why", func() bool { return b.starbase.status(id).ErrorClass == starbase.ClassNameTaken })
	b.passes(t, 5)
	require.Equal(t, before, versions())
	require.Equal(t, 2, b.starbase.healthy(), "other services go on")

	s := b.one(t, 2)
	s.Services[1].Deleted = true
	require.NoError(t, s.Seal())
	b.starbase.serve(t, s)
	await.Eventually(t, "what is ours of it goes", func() bool { return b.count(t, "deployments") == 2 })
	b.passes(t, 5)
	require.Equal(t, before, versions())
}

// keepsNamespace has the project deleted while others have data and a schedule in its
// namespace, one of them with our labels.
func keepsNamespace(t *testing.T, b *bench) {
	b.start(t)
	b.starbase.serve(t, b.one(t, 1))
	b.healthy(t, 3)
	ns := b.project().Namespace
	require.NoError(t, b.cluster.Apply(t.Context(), fmt.Sprintf(`
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: %[1]s, labels: {starform.io/managed-by: shuttle, starform.io/cluster-id: %[2]s}}, spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: backup, namespace: %[1]s}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}
`, ns, b.id)))
	s := b.one(t, 2)
	s.Projects[0].Deleted = true
	for i := range s.Services {
		s.Services[i].Deleted = true
	}
	require.NoError(t, s.Seal())
	b.starbase.serve(t, s)
	await.Eventually(t, "its services go", func() bool { return b.count(t, "deployments") == 0 })
	left := func() string {
		return b.kubectl(t, "get", "namespace", ns, "--ignore-not-found", "-o", "jsonpath={.metadata.name}{.metadata.deletionTimestamp}")
	}
	b.passes(t, 5)
	require.Equal(t, ns, left())
	b.kubectl(t, "delete", "pvc", "data", "-n", ns, "--timeout=2m")
	b.passes(t, 5)
	require.Equal(t, ns, left(), "the schedule keeps it, too")
	b.kubectl(t, "delete", "cronjob", "backup", "-n", ns)
	await.Eventually(t, "the namespace goes when nothing of others is in it", func() bool { return left() != ns })
}
