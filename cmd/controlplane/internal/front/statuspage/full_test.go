package statuspage_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// TestALoginWithAFullDiskNamesTheDisk logs in until no page of the file is left.
func TestALoginWithAFullDiskNamesTheDisk(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	require.NoError(t, w.database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(t.Context(), "PRAGMA max_page_count = 1") // no less than there are
		return err
	}))
	for range 500 {
		got := w.send("POST", "/status/login", url.Values{"token": {adminToken}}, "Accept", "text/html")
		if got.status == 303 {
			continue
		}
		require.Equal(t, 503, got.status, got.body)
		require.Contains(t, got.body, "The disk of the database is full")
		require.NotContains(t, got.body, "cannot be read")
		require.Equal(t, 200, w.send("GET", "/status", nil, "Authorization", "Bearer "+adminToken).status, "reads go on")
		return
	}
	t.Fatal("the disk never becomes full")
}
