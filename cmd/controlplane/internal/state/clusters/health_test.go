package clusters_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// TestTheHealthOfClustersIsReadByIndexes has the plans: of services and capacity reports nothing
// is scanned.
func TestTheHealthOfClustersIsReadByIndexes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, query := range clusters.HealthQueries() {
		args := make([]any, strings.Count(query, "?"))
		for n := range args {
			args[n] = 1
		}
		plan, err := db.List(t.Context(), w.store.Database, `EXPLAIN QUERY PLAN `+query, args, func(rows *sql.Rows, line *string) error {
			var id, parent, unused int
			return rows.Scan(&id, &parent, &unused, line)
		})
		require.NoError(t, err)
		all := strings.Join(plan, "\n")
		t.Log(all)
		for _, line := range plan {
			if strings.HasPrefix(line, "SCAN ") {
				require.Regexp(t, `^SCAN c( |$)|service_status_unwell`, line, all)
			}
		}
	}
}
