package regions_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// TestTheHealthOfRegionsIsReadByIndexes has the plans: no table of objects is scanned.
func TestTheHealthOfRegionsIsReadByIndexes(t *testing.T) {
	t.Parallel()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	for _, query := range regions.HealthQueries() {
		args := make([]any, strings.Count(query, "?"))
		for n := range args {
			args[n] = 1
		}
		plan, err := db.List(t.Context(), database, `EXPLAIN QUERY PLAN `+query, args, func(rows *sql.Rows, line *string) error {
			var id, parent, unused int
			return rows.Scan(&id, &parent, &unused, line)
		})
		require.NoError(t, err)
		for _, line := range plan {
			if strings.HasPrefix(line, "SCAN ") {
				require.Regexp(t, `instances_failed|sentinels_unhealthy`, line, strings.Join(plan, "\n"))
			}
		}
	}
}

// TestWhatFailsInARegionComesFirstInNoOther has one deployment in two regions, of which one has more than
// are read.
func TestWhatFailsInARegionComesFirstInNoOther(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for _, region := range []string{eu, us} {
			for _, id := range []string{"d_1", "d_2"} {
				want := regions.Wanted{State: "running", Spec: deployment(id[2:], "web:1")}
				_, err := w.store.PutDeployment(w.t.Context(), region, id, want)
				require.NoError(w.t, err)
			}
		}
		w.sql(`INSERT INTO instances (k8s_name, region_id, deployment_id, address, cpu_millicores, memory_mib, status, reported_at)
			VALUES ('i', '` + eu + `', 'd_2', '', 0, 0, 'failed', 0)`)
		for region, first := range map[string]string{eu: "d_2", us: "d_1"} {
			list, more, err := w.store.Objects(w.t.Context(), region, 1)
			require.NoError(w.t, err)
			require.True(w.t, more)
			require.Len(w.t, list, 1)
			require.Equal(w.t, first, list[0].ID)
		}
	})
}
