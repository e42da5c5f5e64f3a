package clusters_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// silence makes each agent silent for an hour.
func (w *world) silence() {
	w.t.Helper()
	require.NoError(w.t, w.store.Database.Write(w.t.Context(), func(tx *db.Tx) error {
		for _, statement := range []string{`UPDATE clusters SET last_pull_at = last_pull_at - 3600000, reported_at = 0 WHERE last_pull_at > 0`, `UPDATE regions SET heartbeat_at = heartbeat_at - 3600000 WHERE heartbeat_at > 0`} {
			if _, err := tx.ExecContext(w.t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestAClusterIsRemovedOnlyWhenItIsEmptyAndSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	path := clustersPath + "/" + clusterA
	w.pull(clusterA)
	refused := func(code string) {
		t.Helper()
		got := w.admin("DELETE", path, "")
		require.Equal(t, http.StatusConflict, got.status, got.body)
		require.Contains(t, got.body, `"code":"`+code+`"`)
		require.Equal(t, 200, w.admin("GET", path, "").status, "nothing is removed")
	}
	refused("not_empty")
	w.must("DELETE", projectsPath+projectX, "")
	refused("alive")
	w.silence()
	w.update(`UPDATE clusters SET reported_at = ?`, time.Now().UnixMilli())
	refused("alive") // it has reported
	w.silence()
	require.Equal(t, http.StatusNoContent, w.admin("DELETE", path, "").status)
	require.Equal(t, http.StatusNotFound, w.admin("DELETE", path, "").status)
	require.Equal(t, http.StatusNotFound, w.admin("GET", path, "").status)
	require.Equal(t, http.StatusNotFound, w.admin("GET", projectsPath+projectX, "").status)
	require.Equal(t, http.StatusUnauthorized, w.do("GET", "/api/v1/clusters/"+clusterA+"/desired-state", w.tokens[clusterA], "").status)
	require.Equal(t, 200, w.admin("GET", clustersPath+"/"+clusterB, "").status)
}

func TestARegionIsRemovedOnlyWhenItIsEmptyAndSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.number()
	require.Equal(t, 201, w.admin("PUT", regionPath, regionBody).status)
	resources := map[string]string{
		deploymentPath:                deploymentBody,
		regionPath + "/sentinels/s_1": sentinelBody,
		regionPath + "/policies/p_1":  policyBody,
	}
	for path, body := range resources {
		require.Equal(t, 404, w.admin("GET", path, "").status)
		require.Equal(t, 200, w.admin("PUT", path, body).status)
		shown := w.admin("GET", path, "")
		require.Equal(t, 200, shown.status, shown.body)
		require.Equal(t, "running", shown.text("desired_state"))
		require.Contains(t, shown.body, `"k8s_namespace":"ws"`)
		require.Equal(t, false, w.admin("PUT", path, shown.body).member("changed"), "what is shown can be put: %s", shown.body)
	}
	for path := range resources {
		got := w.admin("DELETE", regionPath, "")
		require.Equal(t, http.StatusConflict, got.status, got.body)
		require.Contains(t, got.body, `"code":"not_empty"`)
		require.Equal(t, 200, w.admin("DELETE", path, "").status)
	}
	require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(
			t.Context(),
			`UPDATE regions SET heartbeat_at = (SELECT created_at FROM regions WHERE id = 'reg_eu') WHERE id = 'reg_eu'`,
		)
		return err
	}))
	require.Contains(t, w.admin("DELETE", regionPath, "").body, `"code":"alive"`)
	w.silence()
	require.Equal(t, http.StatusNoContent, w.admin("DELETE", regionPath, "").status)
	require.Equal(t, 404, w.admin("DELETE", regionPath, "").status)
	require.Equal(t, 404, w.admin("GET", regionPath, "").status)
	taken := w.admin("PUT", regionsPath+"/reg_eu_2", regionBody)
	require.Equal(t, http.StatusConflict, taken.status, "its log is that of the removed region: %s", taken.body)
	require.Equal(t, 201, w.admin("PUT", regionsPath+"/reg_eu_2", `{"name":"eu-1","platform":"aws","replace":true}`).status)
}

func TestWhatCanBePutCanBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	for path, body := range map[string]string{projectsPath + projectX: projectBody, servicePath: serviceBody, clustersPath + "/" + clusterA + "/config": `{"lb_size_units":3}`} {
		require.Less(t, w.admin("PUT", path, body).status, 300, path)
		shown := w.admin("GET", path, "")
		require.Equal(t, 200, shown.status, shown.body)
	}
	require.EqualValues(t, 3, w.admin("GET", clustersPath+"/"+clusterA+"/config", "").number("lb_size_units"))
	require.NotEmpty(t, w.admin("GET", projectsPath+projectX, "").text("namespace"))
	require.Contains(t, w.admin("GET", servicePath, "").body, `"image":`)
	w.must("DELETE", servicePath, "")
	require.Equal(t, true, w.admin("GET", servicePath, "").member("deleted"))
}
