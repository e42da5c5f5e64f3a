package regions_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// numbers is a table n with the numbers from 1 to many.
var numbers = fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) `, many)

// ago is that many days and a minute ago.
func ago(days int) int64 {
	return time.Now().Add(-time.Duration(days)*24*time.Hour - time.Minute).UnixMilli()
}

// since returns the column that the retention of a table counts from.
func since(table string) string {
	if table == "sentinels" {
		return "wanted_at"
	}
	return "updated_at"
}

func (w *world) count(table string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.database.Read(w.t.Context(), func(tx *db.Tx) error {
		return tx.QueryRowContext(w.t.Context(), `SELECT count(*) FROM `+table).Scan(&n)
	}))
	return n
}

// deployments inserts many rows in these states by turns, and their items.
func (w *world) deployments(states ...string) {
	w.t.Helper()
	w.sql(
		numbers + fmt.Sprintf(
			`INSERT INTO deployments (id, workspace_id, k8s_namespace, k8s_name, updated_at) SELECT 'm_' || i, 'ws_1', 'ws', 'm-' || i, %d FROM n`,
			ago(0),
		),
	)
	var changes []statesync.Change
	for n, state := range states {
		w.sql(numbers + fmt.Sprintf(`INSERT INTO deployment_topology (deployment_id, region_id, workspace_id, desired_state, spec, updated_at)
			SELECT 'm_' || i, 'reg_eu', 'ws_1', '%s', '{"k8s_name":"m"}', %d FROM n WHERE i %% %d = %d`, state, ago(0), len(states), n))
	}
	for n := range many {
		value := fmt.Sprintf(`{"state":%q,"apply":{"k8s_name":"m"}}`, states[(n+1)%len(states)])
		changes = append(
			changes,
			statesync.Change{Scope: "eu-1", Key: statesync.Key{Collection: "deployments", ID: fmt.Sprint("m_", n+1)}, Value: json.RawMessage(value)},
		)
	}
	// One commit has a time limit.
	for some := range slices.Chunk(changes, 500) {
		require.NoError(w.t, w.database.Log.Commit(w.t.Context(), some...))
	}
	require.Equal(w.t, many, len(w.items()))
}

// TestDormantDeploymentsAreKeptForAMonthAndNoLonger has as many deployments that are
// stopped, stopping or standby as a year of deploys leaves behind.
func TestDormantDeploymentsAreKeptForAMonthAndNoLonger(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.deployments("stopped", "stopping", "standby")
		registry := prometheus.NewRegistry()
		reconciler := w.reconciler()
		reconciler.Registerer = registry
		require.NoError(w.t, reconciler.Register())
		look := func(want int, why string) {
			w.t.Helper()
			require.NoError(w.t, reconciler.Pass(w.t.Context()))
			require.Equal(w.t, want, w.count("deployment_topology"), why)
			require.Equal(w.t, want, w.count("deployments"), why)
		}
		w.beat(1, w.head())
		look(many, "they are young")
		require.InDelta(w.t, many, testutil.ToFloat64(gauge(w.t, registry, "deployments", "dormant")), 0)
		w.sql(fmt.Sprintf(`UPDATE deployment_topology SET updated_at = %d`, ago(29)))
		look(many, "they may be wanted again")
		w.sql(fmt.Sprintf(`UPDATE deployment_topology SET updated_at = %d`, ago(30)))
		w.beat(2, 0)
		look(many, "the agent has not applied their removal")
		w.beat(3, w.head())
		w.sql(
			fmt.Sprintf(
				`INSERT INTO instances (k8s_name, region_id, deployment_id, address, cpu_millicores, memory_mib, status, reported_at) VALUES ('m-1-a', 'reg_eu', 'm_1', '', 1, 1, 'running', %d)`,
				ago(90),
			),
			`UPDATE deployment_topology SET desired_state = 'running' WHERE deployment_id = 'm_2'`,
		)
		look(2, "an instance of one runs, and one was started by hand")
		require.Equal(w.t, 2, len(w.items()))
		require.NoError(w.t, reconciler.Pass(w.t.Context()))
		require.InDelta(w.t, 1, testutil.ToFloat64(gauge(w.t, registry, "deployments", "dormant")), 0)
	})
}

// gauge returns the gauge of stored rows with these labels.
func gauge(t *testing.T, registry *prometheus.Registry, resource, state string) prometheus.Collector {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	found := prometheus.NewGauge(prometheus.GaugeOpts{Name: "found"})
	found.Set(-1)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "trueup_controlplane_rows" && m.GetLabel()[0].GetValue() == resource && m.GetLabel()[1].GetValue() == state {
				found.Set(m.GetGauge().GetValue())
			}
		}
	}
	return found
}

// TestInstancesWithoutADeploymentGo has rows that were removed by hand, and instances
// and names left of them.
func TestInstancesWithoutADeploymentGo(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.sql(
			numbers+fmt.Sprintf(
				`INSERT INTO deployments (id, workspace_id, k8s_namespace, k8s_name, updated_at) SELECT 'm_' || i, 'ws_1', 'ws', 'm-' || i, %d FROM n`,
				ago(6),
			),
			numbers+fmt.Sprintf(`INSERT INTO instances (k8s_name, region_id, deployment_id, address, cpu_millicores, memory_mib, status, reported_at)
				SELECT 'm-' || i || '-a', 'reg_eu', 'm_' || i, '', 1, 1, 'running', %d FROM n`, ago(8)),
		)
		w.put("d_1", "running", deployment("one", "one:1"))
		w.sql(
			`INSERT INTO instances (k8s_name, region_id, deployment_id, address, cpu_millicores, memory_mib, status, reported_at) VALUES ('one-a', 'reg_eu', 'd_1', '', 1, 1, 'running', 1)`,
		)
		registry := prometheus.NewRegistry()
		reconciler := w.reconciler()
		reconciler.Registerer = registry
		require.NoError(w.t, reconciler.Register())
		look := func(instances, names int, why string) {
			w.t.Helper()
			require.NoError(w.t, reconciler.Pass(w.t.Context()))
			require.Equal(w.t, instances, w.count("instances"), why)
			require.Equal(w.t, names, w.count("deployments"), why)
		}
		look(many+1, many+1, "the rows vanished less than 7 days ago")
		require.InDelta(w.t, many, testutil.ToFloat64(gauge(w.t, registry, "instances", "orphaned")), 0)

		// The row of one vanishes only now; nothing of it has been touched for long.
		w.sql(`DELETE FROM deployment_topology WHERE deployment_id = 'd_1'`, fmt.Sprintf(`UPDATE deployments SET updated_at = %d`, ago(7)))
		look(1, 1, "d_1 was withdrawn only now")
		require.Empty(w.t, w.items())
		w.beat(1, w.head())
		look(1, 1, "d_1 was withdrawn only now, and the agent has applied it")
		w.sql(fmt.Sprintf(`UPDATE deployments SET updated_at = %d`, ago(7)))
		w.beat(2, 1)
		look(1, 1, "the agent has not applied the withdrawal")
		w.beat(3, w.head())
		look(0, 0, "")
		require.NoError(w.t, reconciler.Pass(w.t.Context()))
		require.InDelta(w.t, 0, testutil.ToFloat64(gauge(w.t, registry, "instances", "orphaned")), 0)
	})
}

func TestNoNameIsPurgedWhileARegionCannotBeRead(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.sql(`INSERT INTO deployments (id, workspace_id, k8s_namespace, k8s_name, updated_at) VALUES ('d_1', 'ws_1', 'ws', 'one', 1)`,
			`UPDATE region_log SET region_id = 'another' WHERE scope = 'us-1'`)
		require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
		require.Equal(w.t, 1, w.count("deployments"), "us-1 may have it in its log")
		w.sql(`UPDATE region_log SET region_id = 'reg_us' WHERE scope = 'us-1'`)
		require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
		require.Zero(w.t, w.count("deployments"))
	})
}

// TestTheEndOfADeploymentWithoutARowIsTaken reports a deletion after the row was removed
// by hand.
func TestTheEndOfADeploymentWithoutARowIsTaken(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		report := func(m *ctrlv1.ReportDeploymentStatusRequest) connect.Code {
			_, err := w.agent().ReportDeploymentStatus(w.t.Context(), connect.NewRequest(m))
			if err == nil {
				return 0
			}
			return connect.CodeOf(err)
		}
		runs := &ctrlv1.ReportDeploymentStatusRequest{
			Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &ctrlv1.ReportDeploymentStatusRequest_Update{
				K8SName: "one", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{{K8SName: "one-a"}},
			}},
		}
		ended := &ctrlv1.ReportDeploymentStatusRequest{
			Change: &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: "one"}},
		}
		w.put("d_1", "running", deployment("one", "one:1"))
		require.Zero(w.t, report(runs))
		w.sql(`DELETE FROM deployment_topology`)
		require.Equal(w.t, connect.CodeNotFound, report(runs), "it is wanted no more")
		require.Equal(w.t, 1, w.count("instances"))
		_, err := w.client("Bearer "+w.tokens[us], "us-1").ReportDeploymentStatus(w.t.Context(), connect.NewRequest(ended))
		require.Equal(w.t, connect.CodeNotFound, connect.CodeOf(err), "it is none of that region")
		require.Equal(w.t, 1, w.count("instances"))
		require.Zero(w.t, report(ended))
		require.Zero(w.t, w.count("instances"))
		require.Equal(w.t, connect.CodeNotFound, report(ended), "none is left")
	})
}

// TestTheLastObjectOfACollectionIsWithdrawn has one object of each collection, which is
// deleted by the administration, or whose row vanishes alone.
func TestTheLastObjectOfACollectionIsWithdrawn(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct{ table, spec string }{
		"deployments": {"deployment_topology", string(deployment("one", "one:1"))},
		"sentinels": {
			"sentinels",
			`{"k8s_namespace":"ws","k8s_name":"gate","workspace_id":"ws_1","project_id":"p_1","app_id":"a_1","environment_id":"e_1","image":"g:1","cpu_millicores":"1","memory_mib":"1"}`,
		},
		"policies": {
			"cilium_network_policies",
			`{"k8s_namespace":"ws","k8s_name":"p","policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}`,
		},
	}
	each(t, func(w *world) {
		agent, ctx := w.agent(), w.t.Context()
		list := map[string]func() (applies, deletes int){
			"deployments": func() (int, int) {
				stream, err := agent.WatchDeployments(ctx, connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
				return orders(w.t, stream, err)
			},
			"sentinels": func() (int, int) {
				stream, err := agent.WatchSentinels(ctx, connect.NewRequest(&ctrlv1.WatchSentinelsRequest{Markers: true}))
				return orders(w.t, stream, err)
			},
			"policies": func() (int, int) {
				stream, err := agent.WatchCiliumNetworkPolicies(ctx, connect.NewRequest(&ctrlv1.WatchCiliumNetworkPoliciesRequest{Markers: true}))
				return orders(w.t, stream, err)
			},
		}
		becomes := func(collection string, applies, deletes int, why string) {
			w.t.Helper()
			await.Eventually(w.t, fmt.Sprintf("%s: %s", collection, why), func() bool { // a list may be a moment behind
				a, d := list[collection]()
				return a == applies && d == deletes
			})
		}
		api := w.admin()
		ask := func(method, path, body string) {
			w.t.Helper()
			r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			api.ServeHTTP(answer, r)
			require.Equal(w.t, http.StatusOK, answer.Code, answer.Body)
		}
		sequence := uint64(0)
		for collection, kind := range kinds {
			path := "/api/v1/admin/regions/reg_eu/" + collection + "/x_1"
			put := func() { ask("PUT", path, `{"desired_state":"running","spec":`+kind.spec+`}`) }
			put()
			becomes(collection, 1, 0, "it is wanted")
			ask("DELETE", path, "")
			becomes(collection, 0, 1, "the order to delete it")
			w.sql(fmt.Sprintf(`UPDATE %s SET %s = %d`, kind.table, since(kind.table), ago(7)))
			sequence++
			w.beat(sequence, w.head())
			require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
			becomes(collection, 0, 0, "it was purged")
			require.Zero(w.t, w.count(kind.table))

			put()
			becomes(collection, 1, 0, "it is wanted again")
			w.sql(`DELETE FROM ` + kind.table)
			require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
			becomes(collection, 0, 0, "its row has vanished")
			require.Empty(w.t, w.items())
		}
	})
}

// orders counts the orders of a stream up to its synced.
func orders[T any](t *testing.T, stream *connect.ServerStreamForClient[T], err error) (applies, deletes int) {
	t.Helper()
	require.NoError(t, err)
	defer stream.Close()
	for stream.Receive() {
		text := fmt.Sprint(stream.Msg())
		switch {
		case strings.HasPrefix(text, "apply:"):
			applies++
		case strings.HasPrefix(text, "delete:"):
			deletes++
		case strings.HasPrefix(text, "synced:"):
			return applies, deletes
		}
	}
	t.Errorf("the list has no end: %v", stream.Err())
	return 0, 0
}
