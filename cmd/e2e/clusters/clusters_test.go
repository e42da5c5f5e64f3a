// Package clusters_test runs the agent of a cluster against the control plane as it is,
// on SQLite and on PostgreSQL, on a real Kubernetes, with faults between them: the
// acceptance scenarios of the contract, each named after its number.
package clusters_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	_ "modernc.org/sqlite" // registers its driver

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// database is one kind that scenarios run on.
type database = controlplanetest.Database

// scenario is one run. It gets a bench with a cluster that is registered, a replica of the
// control plane and no agent.
type scenario struct {
	name string
	run  func(b *bench, kind database)
	// both: it runs on PostgreSQL on each change as well. The others run there with
	// TRUEUP_SCENARIOS=all.
	both bool
	// only is the kind of database that it needs; empty is any.
	only string
	// slow: it depends on how fast the machine is, and runs with TRUEUP_SCENARIOS=all only.
	// On each change the units are tested for it in virtual time.
	slow bool
	// waits: most of its time passes with a grace of a minute. Any number of these run at
	// once.
	waits bool
}

func scenarios() []scenario {
	return []scenario{
		{name: "D1 first build", run: firstBuild, both: true},
		{name: "C25 scaling", run: scaling},
		{name: "D2 drift", run: drift},
		{name: "D3 label strip", run: labelStrip},
		{name: "D4 rollout", run: rollout},
		{name: "D6 tombstone", run: tombstone},
		{name: "D7 absence", run: absence, waits: true},
		{name: "D8 cut body", run: cutBody},
		{name: "D9 empty database", run: empties("services", "projects"), waits: true, both: true},
		{name: "D9 no services", run: empties("services"), waits: true},
		{name: "D10 mass delete", run: massDelete},
		{name: "D11 wrong cluster", run: wrongCluster},
		{name: "D12 restore", run: restore, waits: true, both: true},
		{name: "D13 bad input", run: badInput, both: true},
		{name: "D16 starbase outage", run: starbaseOutage},
		{name: "D16 database outage", run: databaseOutage, only: "postgres"},
		{name: "D17 restart in outage", run: restartInOutage},
		{name: "D20 two agents", run: twoAgents, both: true},
		{name: "D21 snapshot replay", run: snapshotReplay, both: true},
		{name: "D22 dropped", run: dropped},
		{name: "D22 kept", run: kept},
		{name: "D23 dead watch", run: deadWatch, waits: true, slow: true},
		{name: "D24 slow starbase", run: slowStarbase, waits: true, slow: true},
		{name: "D25 token rotation", run: tokenRotation},
		{name: "D32 slow loss", run: slowLoss, waits: true},
		{name: "D30 two servers", run: twoServers, only: "postgres"},
	}
}

// everything reports whether everything runs, not only what runs on each change.
func everything() bool { return os.Getenv("TRUEUP_SCENARIOS") == "all" }

// workers is how many scenarios run at once, beside those that wait.
const workers = 3

func TestClusters(t *testing.T) {
	t.Parallel()
	kube := startKubernetes(t)
	server := pgtest.Shared(t)
	databases := controlplanetest.Databases(server)
	var mu sync.Mutex
	var wrong []string
	passed := map[string]int{}
	run := func(kind database, s scenario) {
		t.Run(kind.Name+"/"+s.name, func(t *testing.T) {
			if testing.Short() && s.name != "D1 first build" {
				t.Skip("long: one scenario of many")
			}
			// All of the name: two scenarios of one number run beside each other.
			b := newBench(t, kube, kind.Name[:2]+strings.ToLower(strings.ReplaceAll(s.name, " ", "-")), kind.Fresh(t))
			// Also after a scenario that fails.
			t.Cleanup(func() {
				found := b.misjudged()
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, found...)
				if len(found) > 0 {
					t.Errorf("deletions of what is wanted: %v", found)
				}
				if !t.Failed() {
					passed[kind.Name]++
				}
			})
			s.run(b, kind)
			b.rests()
			b.stop()
		})
	}
	var running sync.WaitGroup
	queue := make(chan func())
	for range workers {
		running.Go(func() {
			for next := range queue {
				next()
			}
		})
	}
	// Those that wait begin first. How many run at once does not depend on -parallel.
	for _, waits := range []bool{true, false} {
		for _, kind := range databases {
			for _, s := range scenarios() {
				if s.waits != waits || s.only != "" && s.only != kind.Name ||
					!everything() && (s.slow || kind.Name == "postgres" && s.only == "" && !s.both) {
					continue
				}
				if waits {
					running.Go(func() { run(kind, s) })
					continue
				}
				queue <- func() { run(kind, s) }
			}
		}
	}
	close(queue)
	running.Wait()
	figures := &benchfigures.Book{Out: os.Stdout}
	figures.Add("starfleet_scenarios_sqlite", float64(passed["sqlite"]), "scenarios")
	figures.Add("starfleet_scenarios_postgres", float64(passed["postgres"]), "scenarios")
	figures.Add("starfleet_wrong_deletions", float64(len(wrong)), "objects")
}

// cell is a Kubernetes that clusters of the control plane share.
type cell struct {
	started *kubetest.Cluster
	kube    *kubernetes.Clientset
	objects dynamic.Interface
	access  *rest.Config // of the agents' account
}

// startKubernetes starts a cluster, and returns access to it as an administrator and as
// the account that the agent's own manifests make.
func startKubernetes(tb testing.TB) cell {
	tb.Helper()
	stages, err := os.ReadFile(filepath.Join("testdata", "stages.yaml"))
	require.NoError(tb, err)
	started := kubetest.Start(tb, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 4, Stages: string(stages), GatewayAPI: true})
	install(tb, started)
	access, _, err := started.ServiceAccount(tb.Context(), "starform-system", "shuttle")
	require.NoError(tb, err)
	admin := rest.CopyConfig(started.Config)
	admin.QPS = -1
	kube, err := kubernetes.NewForConfig(admin)
	require.NoError(tb, err)
	objects, err := dynamic.NewForConfig(admin)
	require.NoError(tb, err)
	return cell{started, kube, objects, access}
}

// startBareKubernetes starts a cluster with an account for the agent in which nothing runs.
func startBareKubernetes(tb testing.TB) *kubetest.Cluster {
	tb.Helper()
	started := kubetest.Start(tb, kubetest.Options{})
	install(tb, started)
	return started
}

// install applies what "shuttle manifests" prints.
func install(tb testing.TB, in *kubetest.Cluster) {
	tb.Helper()
	manifests, err := shuttle.Manifests{Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: uuid("installed"), Region: "nyc3"}.YAML()
	require.NoError(tb, err)
	require.NoError(tb, in.Apply(tb.Context(), manifests))
}
