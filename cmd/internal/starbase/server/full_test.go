package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
)

// TestAFullDiskRefusesWritesAndServesReads gives the database no page more than it has, and
// then space again.
func TestAFullDiskRefusesWritesAndServesReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if w.store.Database.Name() != w.path {
		t.Skip("the limit is one of SQLite")
	}
	limit := func(pages int) {
		require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			return err
		}))
	}
	limit(1) // no less than there are
	refused := 0
	for n := range 200 {
		got := w.admin("PUT", fmt.Sprintf("%s/aaaaaaaa-0000-4000-8000-%012d", clustersPath, 100+n), `{"region":"nyc3"}`)
		if got.status == http.StatusCreated {
			continue
		}
		refused++
		require.Equal(t, http.StatusServiceUnavailable, got.status, got.body)
		require.Contains(t, got.body, `"code":"disk_full"`)
		require.NotEmpty(t, got.header.Get("Retry-After"))
	}
	require.Positive(t, refused)
	require.Equal(t, http.StatusOK, w.admin("GET", clustersPath, "").status)
	limit(1 << 20)
	require.Equal(t, http.StatusCreated, w.admin("PUT", clustersPath+"/"+clusterC, `{"region":"nyc3"}`).status)
}
