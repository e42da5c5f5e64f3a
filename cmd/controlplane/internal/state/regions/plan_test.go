package regions_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// TestTheHealthOfRegionsIsReadByIndexesOnPostgreSQL has the plans over 20 regions with 10,000
// deployments and instances and 2,000 sentinels and policies, of which ten fail: no table of objects
// is read whole.
func TestTheHealthOfRegionsIsReadByIndexesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	database, err := db.PostgreSQL{URL: pgtest.NewDatabase(t)}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	for _, statement := range []string{
		`INSERT INTO regions (id, name, platform, token_hash, created_at)
			SELECT 'r' || n, 'n' || n, 'p', 'h' || n, 0 FROM generate_series(1, 20) n`,
		`INSERT INTO deployments (id, workspace_id, k8s_namespace, k8s_name, updated_at)
			SELECT 'd' || n, 'w', 'k', 'k' || n, 0 FROM generate_series(1, 10000) n`,
		`INSERT INTO deployment_topology (deployment_id, region_id, workspace_id, desired_state, spec, updated_at)
			SELECT 'd' || n, 'r' || 1 + n % 20, 'w', 'running', repeat('x', 500), 0 FROM generate_series(1, 10000) n`,
		`INSERT INTO instances (k8s_name, region_id, deployment_id, address, cpu_millicores, memory_mib, status, reported_at)
			SELECT 'i' || n, 'r' || 1 + n % 20, 'd' || n, '', 0, 0, CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'running' END, 0
			FROM generate_series(1, 10000) n`,
		`INSERT INTO sentinels (id, region_id, k8s_namespace, k8s_name, desired_state, spec, health, updated_at)
			SELECT 's' || n, 'r' || 1 + n % 20, 'k', 's' || n, 'running', repeat('x', 500),
			CASE WHEN n % 1000 = 0 THEN 'unhealthy' ELSE 'healthy' END, 0
			FROM generate_series(1, 2000) n`,
		`INSERT INTO cilium_network_policies (id, region_id, k8s_namespace, k8s_name, policy, deleted, updated_at)
			SELECT 'p' || n, 'r' || 1 + n % 20, 'k', 'p' || n, repeat('x', 500), 0, 0 FROM generate_series(1, 2000) n`,
		`ANALYZE`,
	} {
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), statement)
			return err
		}), statement)
	}
	for _, query := range regions.HealthQueries() {
		args := []any{"r1", "r1", 50}[3-strings.Count(query, "?"):]
		plan, err := db.List(t.Context(), database, `EXPLAIN `+query, args, func(rows *sql.Rows, line *string) error { return rows.Scan(line) })
		require.NoError(t, err, query)
		all := strings.Join(plan, "\n")
		require.NotRegexp(t, `Seq Scan on (deployments|deployment_topology|instances|sentinels|cilium_network_policies)\b`, all, query)
		require.Contains(t, all, "Index", "the tables are read")
	}
}
