package main_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

func TestRestoredStartsEpochsForAllWhileTheProgramRuns(t *testing.T) {
	program, token := binary(t), writeFile(t, adminToken)
	for _, database := range []string{filepath.Join(t.TempDir(), "db"), pgtest.Start(t, pgtest.Options{}).Database(t)} {
		p := serveProcess(t, program, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--database", database, "--admin-token-file", token)
		base := "http://" + p.address
		create := func(path, body string) string {
			status, answer := request(t, http.DefaultClient, http.MethodPut, base+"/api/v1/admin/"+path, adminToken, body)
			require.Equal(t, http.StatusCreated, status, answer)
			var created struct{ Token string }
			require.NoError(t, json.Unmarshal([]byte(answer), &created))
			return created.Token
		}
		cluster := create("clusters/"+clusterID, `{"region":"nyc3"}`)
		create("regions/eu", `{"name":"eu-1","platform":"aws"}`)
		epoch := func() string {
			status, answer := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/clusters/"+clusterID+"/desired-state", cluster, "")
			require.Equal(t, http.StatusOK, status, answer)
			var state struct{ Epoch string }
			require.NoError(t, json.Unmarshal([]byte(answer), &state))
			return state.Epoch
		}
		before := epoch()
		got := execute(t, program, nil, "restored", "--database", database)
		require.Zero(t, got.code, got.stderr)
		require.True(t, strings.HasSuffix(got.stdout, ": 1 clusters and 1 regions have a new epoch\n"), got.stdout)
		require.NotEqual(t, before, epoch())
		require.NoError(t, p.command.Process.Kill())
		<-p.ended
	}
	got := execute(t, program, nil, "restored", "--database", "mysql://somewhere")
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr, "--database")
}
