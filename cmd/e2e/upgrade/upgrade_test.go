package upgrade_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// replicas start control planes on one database.
type replicas struct {
	t        *testing.T
	children *process.Group
	args     []string
	started  int
}

// replica is a control plane that runs.
type replica struct {
	*process.Process
	address string
}

func newReplicas(t *testing.T, database string) *replicas {
	t.Helper()
	dir := t.TempDir()
	children := process.NewGroup(dir)
	t.Cleanup(children.Close)
	return &replicas{t: t, children: children, args: []string{
		"--listen", "127.0.0.1:0", "--metrics-bind-address", "", "--database", database,
		"--admin-token-file", write(t, dir, "admin.token", controlplanetest.AdminToken),
	}}
}

// start starts the program at path, and returns once it is ready.
func (r *replicas) start(path string) replica {
	r.t.Helper()
	r.started++
	p, err := r.children.Run(fmt.Sprintf("%d-%s", r.started, filepath.Base(path)), path, nil, r.args...)
	require.NoError(r.t, err)
	one := replica{Process: p}
	await.Eventually(r.t, "it listens", func() bool {
		select {
		case <-p.Exited():
			r.t.Fatal(p.Tail())
		default:
		}
		for line := range strings.Lines(p.Tail()) {
			var said struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "listening" {
				one.address = said.Address
			}
		}
		return one.address != ""
	}, p.Tail)
	require.NoError(r.t, p.Answers(r.t.Context(), "http://"+one.address+"/readyz", http.StatusOK, await.Moment))
	return one
}

// agents are the ones of a cluster and of a region, which run.
type agents []*process.Process

// agents starts the ones beside the control plane at path.
func (r *replicas) agents(path, kubeconfig string, load *traffic) agents {
	r.t.Helper()
	dir, port := r.t.TempDir(), func() string {
		found, err := process.Port(r.t.Context())
		require.NoError(r.t, err)
		return strconv.Itoa(found)
	}
	var all agents
	for name, env := range map[string][]string{
		"shuttle": {
			"STARFORM_STARBASE_URL=" + load.url, "STARFORM_CLUSTER_ID=" + clusterID, "STARFORM_REGION=nyc3", "STARFORM_LEADER_ELECTION=false",
			"STARFORM_AUTH_TOKEN_FILE=" + write(r.t, dir, "token", load.clusterToken), "STARFORM_METRICS_ADDR=127.0.0.1:" + port(),
		},
		"krane": {
			"KRANE_INSTANCE_ID=krane-1", "KRANE_CLUSTER_REGION=eu-1", "KRANE_CONTROL_URL=" + load.url, "KRANE_CONTROL_TOKEN=" + load.regionToken,
			"KRANE_RPC_PORT=" + port(),
		},
	} {
		r.started++
		p, err := r.children.Run(fmt.Sprintf("%d-%s", r.started, name), filepath.Join(filepath.Dir(path), name), env, "--kubeconfig", kubeconfig)
		require.NoError(r.t, err)
		all = append(all, p)
	}
	return all
}

// run requires that none has ended.
func (a agents) run(t *testing.T) bool {
	t.Helper()
	for _, p := range a {
		select {
		case <-p.Exited():
			t.Fatal(p.Tail())
		default:
		}
	}
	return true
}

func (a agents) stop(t *testing.T) {
	t.Helper()
	for _, p := range a {
		require.NoError(t, p.Stop(time.Minute), p.Tail())
	}
}

func (a agents) tail() string { return a[0].Tail() + "\n" + a[1].Tail() }

// images has the images of all workloads, sorted.
func images(t *testing.T, kubernetes *kubetest.Cluster) []string {
	t.Helper()
	out, err := kubernetes.Kubectl(
		t.Context(),
		"get",
		"deployments,replicasets",
		"-A",
		"-o",
		"jsonpath={.items[*].spec.template.spec.containers[0].image}",
	)
	require.NoError(t, err)
	return slices.Sorted(slices.Values(strings.Fields(out)))
}

// log returns what all replicas have logged, and no agent.
func (r *replicas) log() string {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(r.args[len(r.args)-1]), "*-"+program+".log"))
	require.NoError(r.t, err)
	require.NotEmpty(r.t, files)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(r.t, err)
		all.Write(text)
	}
	return all.String()
}

func TestNothingIsLostInAnUpgradeAndItsRollback(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds the control plane of the last release")
	}
	t.Parallel()
	v := build(t)
	t.Run("side by side on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		sideBySide(t, v)
	})
	t.Run("one after the other on SQLite", func(t *testing.T) {
		t.Parallel()
		oneAfterTheOther(t, v)
	})
}

// sideBySide replaces one replica after the other, forth through three versions, back by two and forth,
// while an administrator writes, the agent of a cluster asks and reports, and a stream of a region is
// read. Both agents run beside them: first the newest, and after the replacement the agents of the last
// release.
func sideBySide(t *testing.T, v versions) {
	t.Helper()
	kubernetes := kubetest.Start(t, kubetest.Options{})
	_, err := kubernetes.Kubectl(t.Context(), "create", "namespace", "starform-system")
	require.NoError(t, err)
	// Any definition does: the agent of a region applies one policy for each namespace.
	require.NoError(t, kubernetes.Apply(t.Context(), `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ciliumnetworkpolicies.cilium.io
spec:
  group: cilium.io
  scope: Namespaced
  names: {kind: CiliumNetworkPolicy, plural: ciliumnetworkpolicies}
  versions:
  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`))
	_, err = kubernetes.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	r := newReplicas(t, pgtest.NewDatabase(t))
	balancer := controlplanetest.StartBalancer(t)
	var serving []replica
	add := func(path string) {
		t.Helper()
		one := r.start(path)
		balancer.Add(one.address)
		serving = append(serving, one)
	}
	add(v.old)
	add(v.old)
	load := newTraffic(t, "http://"+balancer.Address())
	load.start()
	agents := r.agents(v.now, kubernetes.Kubeconfig, load)
	await.Eventually(
		t,
		"the newer agents have made everything",
		func() bool { return agents.run(t) && len(images(t, kubernetes)) == 2*things },
		agents.tail,
	)
	for step, path := range []string{v.now, v.now, v.next, v.next, v.old, v.old, v.now} {
		load.goesOn(step)
		if step == 3 {
			agents.stop(t)
			agents = r.agents(v.old, kubernetes.Kubeconfig, load)
		}
		add(path)
		load.goesOn(step)
		// It ends as a rollout ends it; the requests that come meanwhile are refused.
		require.NoError(t, serving[0].Stop(time.Minute), serving[0].Tail())
		balancer.Remove(serving[0].address)
		serving = serving[1:]
	}
	load.goesOn(-1)
	load.finish()
	for _, one := range serving {
		load.whole("http://" + one.address)
	}
	wanted := slices.Sorted(maps.Values(load.services))
	wanted = append(wanted, slices.Sorted(maps.Values(load.deployments))...)
	slices.Sort(wanted)
	await.Eventually(
		t,
		"the older agents have made everything",
		func() bool { return agents.run(t) && slices.Equal(wanted, images(t, kubernetes)) },
		agents.tail,
	)
	agents.stop(t)
	require.NotContains(t, r.log(), `"level":"ERROR"`)
}

// oneAfterTheOther goes forth and back on a file, which one control plane has open at a time.
func oneAfterTheOther(t *testing.T, v versions) {
	t.Helper()
	r := newReplicas(t, filepath.Join(t.TempDir(), "trueup.db"))
	balancer := controlplanetest.StartBalancer(t)
	var load *traffic
	for step, path := range []string{v.old, v.now, v.next, v.old, v.next, v.now} {
		one := r.start(path)
		balancer.Add(one.address)
		if load == nil {
			load = newTraffic(t, "http://"+balancer.Address())
			load.start()
		}
		load.goesOn(step)
		if step == 5 {
			load.finish()
			load.whole("http://" + one.address)
		}
		require.NoError(t, one.Stop(time.Minute), one.Tail())
		balancer.Remove(one.address)
	}
	require.NotContains(t, r.log(), `"level":"ERROR"`)
}
