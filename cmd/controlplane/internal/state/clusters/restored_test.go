package clusters_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

func TestAGenerationThatIsGivenAgainAfterARestoreIsNotTheOneThatWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	config := func(size string) {
		got := w.admin("PUT", clustersPath+"/"+clusterA+"/config", `{"lb_size_units":`+size+`}`)
		require.Equal(t, http.StatusOK, got.status, got.body)
	}
	path := "/api/v1/clusters/" + clusterA + "/desired-state"
	before := w.pull(clusterA)
	var nonce string
	require.NoError(t, w.store.Database.Read(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRowContext(t.Context(), `SELECT nonce FROM clusters WHERE id = ?`, clusterA).Scan(&nonce)
	}))
	config("7")
	lost := w.pull(clusterA)
	require.Equal(t, before.Generation+1, lost.Generation)

	// The copy of before is put back.
	require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(
			t.Context(),
			`UPDATE clusters SET generation = generation - 1, lb_size_units = ?, nonce = ? WHERE id = ?`,
			before.ClusterConfig.LBSizeUnits,
			nonce,
			clusterA,
		)
		return err
	}))
	require.Equal(t, before.Version, w.pull(clusterA).Version)
	config("9")
	again := w.pull(clusterA)
	require.Equal(t, lost.Epoch, again.Epoch)
	require.Equal(t, lost.Generation, again.Generation)
	require.Equal(t, 9, again.ClusterConfig.LBSizeUnits)
	got := w.do("GET", path, w.tokens[clusterA], "", "If-None-Match", `"`+lost.Version+`"`)
	require.Equal(t, http.StatusOK, got.status, "the agent has another content")
	got = w.do("GET", path, w.tokens[clusterA], "", "If-None-Match", `"`+again.Version+`"`)
	require.Equal(t, http.StatusNotModified, got.status)
}
