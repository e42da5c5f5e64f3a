package clusters_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// TestTheHealthOfClustersIsReadByIndexesOnPostgreSQL has the plans over 100 clusters with 100,000
// capacity reports and 10,000 services, five of which have failed: only the table of clusters is read
// as a whole.
func TestTheHealthOfClustersIsReadByIndexesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	store := openPostgreSQL(t, pgtest.NewDatabase(t))
	for _, statement := range []string{
		`INSERT INTO clusters (id, region, token_hash, epoch, generation, reported_epoch, reported_generation, lb_size_units, created_at)
			SELECT 'c' || n, 'r', 'h' || n, 'e', 9, 'e', CASE WHEN n % 50 = 0 THEN 8 ELSE 9 END, 1, 0 FROM generate_series(1, 100) n`,
		`INSERT INTO projects (id, cluster_id, workspace_id, workspace_slug, slug, namespace, settings, deleted, generation, updated_at)
			SELECT 'c' || c || 'p' || n, 'c' || c, 'w', 'w', 's', 'n' || n, '{}', 0, 1, 0 FROM generate_series(1, 100) c, generate_series(1, 5) n`,
		`INSERT INTO services (project_id, environment, service_id, spec, deleted, generation, updated_at)
			SELECT id, 'e', 's' || n, repeat('x', 500), 0, CASE WHEN n % 10 = 0 THEN 9 ELSE 1 END, 0 FROM projects, generate_series(1, 20) n`,
		`INSERT INTO service_status (cluster_id, project_id, environment, service_id, epoch, generation, instance_id, observed_generation, phase,
			ready, desired, image_digest, error_class, message, reported_at)
			SELECT p.cluster_id, p.id, 'e', s.service_id, 'e', 9, '', 9,
			CASE WHEN s.service_id = 's7' AND p.id LIKE 'c1_p1' THEN 'Failed' ELSE 'Healthy' END, 1, 1, '', '', '', 0
			FROM projects p JOIN services s ON s.project_id = p.id`,
		`INSERT INTO capacity_reports (cluster_id, taken_at, current_pod_count, soft_limit)
			SELECT 'c' || c, n, 1, 800 FROM generate_series(1, 100) c, generate_series(1, 1000) n`,
		`ANALYZE`,
	} {
		require.NoError(t, store.Database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), statement)
			return err
		}), statement)
	}
	for _, query := range clusters.HealthQueries() {
		args := make([]any, strings.Count(query, "?"))
		for n := range args {
			args[n] = 1
		}
		plan, err := db.List(t.Context(), store.Database, `EXPLAIN `+query, args, func(rows *sql.Rows, line *string) error {
			return rows.Scan(line)
		})
		require.NoError(t, err)
		all := strings.Join(plan, "\n")
		require.NotRegexp(t, `Seq Scan on (projects|services|service_status|capacity_reports)\b`, all)
		require.Contains(t, all, "Index", "the tables are read")
	}
}
