package regions_test

import (
	"database/sql"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestTheVersionsOfResourcesAreSeenInSQL compares each view with the change log.
func TestTheVersionsOfResourcesAreSeenInSQL(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "app:1"))
		w.put("d_2", "running", deployment("two", "app:1"))
		w.put("d_1", "archived", deployment("one", "app:1"))
		_, err := w.store.PutSentinel(t.Context(), eu, "s_1", regions.Wanted{State: "running", Spec: json.RawMessage(
			`{"k8s_namespace":"ws","k8s_name":"gate","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1",` +
				`"environment_id":"env_1","image":"gate:1","cpu_millicores":"100","memory_mib":"128"}`,
		)})
		require.NoError(t, err)
		for _, state := range []string{"running", "archived"} {
			_, err := w.store.PutPolicy(t.Context(), eu, "p_"+state, regions.Wanted{State: state, Spec: json.RawMessage(
				`{"k8s_namespace":"ws","k8s_name":"of-` + state + `","policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwi` +
					`a2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}`,
			)})
			require.NoError(t, err)
		}
		type row struct {
			region, id, state string
			version           sql.NullInt64
		}
		for collection, view := range map[string]string{
			"deployments": "deployment_topology_versions", "sentinels": "sentinel_versions", "policies": "cilium_network_policy_versions",
		} {
			want := map[string]map[string]string{
				"deployments": {"d_1": "archived", "d_2": "running"}, "sentinels": {"s_1": "running"},
				"policies": {"p_running": "running", "p_archived": "archived"},
			}[collection]
			read := func() (rows []row) {
				require.NoError(t, w.database.Read(t.Context(), func(tx *db.Tx) error {
					found, err := tx.QueryContext(t.Context(), `SELECT region, id, desired_state, version FROM `+view+` ORDER BY id`)
					rows, err = db.Collect(found, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.region, &r.id, &r.state, &r.version) })
					return err
				}))
				return rows
			}
			await.Eventually(t, "versions of all "+collection, func() bool {
				for _, r := range read() {
					if !r.version.Valid {
						return false
					}
				}
				return true
			})
			page, err := w.database.Log.Read(t.Context(), "eu-1", 0, 1000)
			require.NoError(t, err)
			versions := map[string]int64{}
			for _, item := range page.Items {
				if item.Collection == collection {
					versions[item.ID] = int64(item.Version) //nolint:gosec // a few
				}
			}
			rows := read()
			require.Len(t, rows, len(want), view)
			for _, r := range rows {
				require.Equal(t, row{"eu-1", r.id, want[r.id], sql.NullInt64{Int64: versions[r.id], Valid: true}}, r, view)
			}
		}
	})
}
