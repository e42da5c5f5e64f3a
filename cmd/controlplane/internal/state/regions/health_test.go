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
