// Package fleet_test runs the agent of a region against the control plane as it is,
// on SQLite and on PostgreSQL, with faults between them.
package fleet_test

import (
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	_ "modernc.org/sqlite" // registers its driver

	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// database is one kind that every scenario runs on.
type database struct {
	name string
	// fresh returns the source of a new, empty one.
	fresh func(tb testing.TB) string
	// copied returns the source of a copy. No process may have it open.
	copied func(tb testing.TB, source string) string
}

// scenario is one run. It gets a bench with a region and no agent.
type scenario struct {
	name string
	// only is the kind of database that it needs; empty is any.
	only string
	run  func(b *bench, kind database)
}

func scenarios() []scenario {
	return []scenario{
		{"lifecycle", "", lifecycle},
		{"second cell", "", secondCell},
		{"agent restarted", "", restarted},
		{"link", "", links},
		{"token rotated", "", rotated},
		{"control plane killed", "", killed},
		{"one of two killed", "postgres", oneOfTwoKilled},
		{"database restored", "", restored},
		{"unknown region", "", unknownRegion},
		{"region made anew", "", regionAnew},
		{"state emptied", "", emptied},
		{"cut list", "", cutList},
		{"change during list", "", changeDuringList},
		{"reversed commits", "", reversedCommits},
		{"below floor", "", belowFloor},
		{"orphans", "", orphans},
		{"kinds", "", kinds},
		{"refused object", "", refusedObject},
		{"two agents", "", twoAgents},
		{"pods change", "", podsChange},
		{"auth matrix", "", authMatrix},
		{"idle proxy", "", idleProxy},
		{"breaker", "", breakers},
		{"database outage", "postgres", databaseOutage},
		{"last one", "", last},
		{"instances lost", "", instancesLost},
	}
}

func TestFleet(t *testing.T) {
	t.Parallel()
	kube := startKubernetes(t)
	server := pgtest.Start(t, pgtest.Options{Settings: []string{"max_connections=1000"}})
	databases := []database{
		{"sqlite", func(tb testing.TB) string { tb.Helper(); return filepath.Join(tb.TempDir(), "trueup.db") }, copyFile},
		{"postgres", func(tb testing.TB) string { tb.Helper(); return server.Database(tb) }, copyDatabase(server)},
	}
	var mu sync.Mutex
	var wrong []string
	passed := map[string]int{}
	t.Run("scenarios", func(t *testing.T) {
		for _, kind := range databases {
			for _, s := range scenarios() {
				if s.only != "" && s.only != kind.name {
					continue
				}
				t.Run(kind.name+"/"+s.name, func(t *testing.T) {
					t.Parallel()
					name := kind.name + "-" + strings.ReplaceAll(s.name, " ", "-")
					b := newBench(t, kube, name, kind.fresh(t))
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
							passed[kind.name]++
						}
					})
					s.run(b, kind)
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
	given, err := os.ReadFile(filepath.Join("..", "krane", "render", "testdata", "cluster.yaml"))
	require.NoError(t, err)
	// The pods of all scenarios are on one node.
	require.NoError(t, started.Apply(t.Context(), strings.ReplaceAll(string(given), `pods: "110"`, `pods: "2000"`)))
	_, err = started.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=120s", "crd", "ciliumnetworkpolicies.cilium.io")
	require.NoError(t, err)
	rights, err := manifests.Manifests{Image: "krane", ControlURL: "http://control", Region: "eu"}.YAML()
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

// copyFile leaves it to SQLite to find what is in the write-ahead log: requests that were
// cut off may have kept the file open.
func copyFile(tb testing.TB, source string) string {
	tb.Helper()
	target := filepath.Join(tb.TempDir(), "copy.db")
	file, err := sql.Open("sqlite", source)
	require.NoError(tb, err)
	_, err = file.ExecContext(tb.Context(), "VACUUM INTO ?", target)
	require.NoError(tb, errors.Join(err, file.Close()))
	return target
}

func copyDatabase(server *pgtest.Server) func(tb testing.TB, source string) string {
	return func(tb testing.TB, source string) string {
		tb.Helper()
		at, err := url.Parse(source)
		require.NoError(tb, err)
		from := strings.TrimPrefix(at.Path, "/")
		eventually(tb, "the database is copied", func() bool {
			// The sessions that were closed may end a little later.
			return server.SQL(tb.Context(), "postgres", "CREATE DATABASE "+from+"_copy TEMPLATE "+from+" OWNER trueup") == nil
		})
		return server.URL(from + "_copy")
	}
}
