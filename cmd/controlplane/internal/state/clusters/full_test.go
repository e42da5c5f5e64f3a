package clusters_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// TestAFullDiskRefusesWritesAndServesReads gives a SQLite file no page more than it has,
// and has PostgreSQL fail each new cluster as a full disk does; and then there is space
// again.
func TestAFullDiskRefusesWritesAndServesReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := func(statements ...string) {
		require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
			for _, statement := range statements {
				if _, err := tx.ExecContext(t.Context(), statement); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	full, mended := func() {
		run("PRAGMA max_page_count = 1") // no less than there are
	}, func() {
		run("PRAGMA max_page_count = 1048576")
	}
	if w.store.Database.Name() != w.path {
		full = func() {
			run(
				`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''disk_full''; END'`,
				`CREATE TRIGGER full_disk BEFORE INSERT ON clusters EXECUTE FUNCTION full_disk()`,
			)
		}
		mended = func() { run(`DROP TRIGGER full_disk ON clusters`) }
	}
	full()
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
	mended()
	require.Equal(t, http.StatusCreated, w.admin("PUT", clustersPath+"/"+clusterC, `{"region":"nyc3"}`).status)
}
