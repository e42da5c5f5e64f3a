// Package regions_test runs the agent of a region against the control plane as it is,
// on SQLite and on PostgreSQL, with faults between them.
package regions_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	_ "modernc.org/sqlite" // registers its driver

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// database is one kind that scenarios run on.
type database = controlplanetest.Database

// scenario is one run. It gets a bench with a region and no agent.
type scenario struct {
	name string
	// on are the databases that it runs on: every one, both with TRUEUP_SCENARIOS=all alone, one of them.
	on  string
	run func(b *bench, kind database)
}

// What a scenario says of its databases, beside the name of one that it needs.
const (
	both   = "both" // it is about what the database keeps, or how it orders commits
	either = "either"
)

// runs reports whether a scenario runs on a kind of database.
func (s scenario) runs(kind string) bool {
	switch s.on {
	case both:
		return true
	case either:
		return kind == "sqlite" || os.Getenv("TRUEUP_SCENARIOS") == "all"
	}
	return kind == s.on
}

func scenarios() []scenario {
	return []scenario{
		{"lifecycle", both, lifecycle},
		{"stubborn pod", either, stubborn},
		{"second cell", either, secondCell},
		{"agent restarted", either, restarted},
		{"link", either, links},
		{"token rotated", either, rotated},
		{"control plane killed", both, killed},
		{"one of two killed", "postgres", oneOfTwoKilled},
		{"database restored", both, restored},
		{"unknown region", both, unknownRegion},
		{"region created again", both, regionAgain},
		{"state emptied", both, emptied},
		{"cut list", either, cutList},
		{"change during list", both, changeDuringList},
		{"reversed commits", both, reversedCommits},
		{"below floor", either, belowFloor},
		{"orphans", either, orphans},
		{"orphans held", either, orphansHeld},
		{"kinds", either, kinds},
		{"refused object", either, refusedObject},
		{"two agents", either, twoAgents},
		{"pods change", either, podsChange},
		{"auth matrix", either, authMatrix},
		{"idle proxy", either, idleProxy},
		{"breaker", either, breakers},
		{"database outage", "postgres", databaseOutage},
		{"last one", both, last},
		{"instances lost", either, instancesLost},
	}
}

func TestRegions(t *testing.T) {
	t.Parallel()
	kube := startKubernetes(t)
	server := pgtest.Shared(t)
	databases := controlplanetest.Databases(server)
	var mu sync.Mutex
	var wrong []string
	passed := map[string]int{}
	t.Run("scenarios", func(t *testing.T) {
		for _, kind := range databases {
			for _, s := range scenarios() {
				if !s.runs(kind.Name) {
					continue
				}
				t.Run(kind.Name+"/"+s.name, func(t *testing.T) {
					if testing.Short() && s.name != "lifecycle" {
						t.Skip("long: one scenario of many")
					}
					t.Parallel()
					name := kind.Name + "-" + strings.ReplaceAll(s.name, " ", "-")
					b := newBench(t, kube, name, kind.Fresh(t))
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
		}
	})
	figures := &benchfigures.Book{Out: os.Stdout}
	figures.Add("fleet_scenarios_sqlite", float64(passed["sqlite"]), "scenarios")
	figures.Add("fleet_scenarios_postgres", float64(passed["postgres"]), "scenarios")
	figures.Add("fleet_wrong_deletions", float64(len(wrong)), "objects")
}

// startKubernetes starts a cluster, and returns access to it as an administrator and
// as the agents' account.
func startKubernetes(t *testing.T) cell {
	t.Helper()
	started := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})
	given, err := os.ReadFile(filepath.Join("..", "..", "krane", "render", "testdata", "cluster.yaml"))
	require.NoError(t, err)
	// The pods of all scenarios are on one node.
	require.NoError(t, started.Apply(t.Context(), strings.ReplaceAll(string(given), `pods: "110"`, `pods: "2000"`)))
	_, err = started.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "ciliumnetworkpolicies.cilium.io")
	require.NoError(t, err)
	rights, err := manifests.Manifests{Image: "krane", ControlURL: "https://control", Region: "eu"}.YAML()
	require.NoError(t, err)
	require.NoError(t, started.Apply(t.Context(), rights))
	access, _, err := started.ServiceAccount(t.Context(), manifests.Namespace, manifests.Account)
	require.NoError(t, err)
	kube, err := kubernetes.NewForConfig(started.Config)
	require.NoError(t, err)
	objects, err := dynamic.NewForConfig(started.Config)
	require.NoError(t, err)
	return cell{kube, objects, access}
}
