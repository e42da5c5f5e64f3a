package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestTheTokenOfTheAdministratorsIsReplacedWithoutARestart adds a second token to the file,
// and then removes the first.
func TestTheTokenOfTheAdministratorsIsReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	const next = "9b1c6f0e2d7a48538c4e17f6a0d3b592"
	program, file := binary(t), writeFile(t, adminToken)
	p := serveProcess(
		t,
		program,
		"--listen",
		"127.0.0.1:0",
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--database",
		filepath.Join(t.TempDir(), "db"),
		"--admin-token-file",
		file,
	)
	status := func(token string) int {
		status, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+p.address+"/api/v1/admin/clusters", token, "")
		return status
	}
	becomes := func(token string, want int) {
		t.Helper()
		await.Eventually(t, "status(token) == want", func() bool { return status(token) == want })
	}
	require.Equal(t, http.StatusOK, status(adminToken))
	require.NoError(t, os.WriteFile(file, []byte(adminToken+"\n"+next+"\n"), 0o600))
	becomes(next, http.StatusOK)
	require.Equal(t, http.StatusOK, status(adminToken))
	require.NoError(t, os.WriteFile(file, []byte(next+"\n"), 0o600))
	becomes(adminToken, http.StatusUnauthorized)
	require.Equal(t, http.StatusOK, status(next))
	require.NoError(t, p.command.Process.Kill())
	log := (<-p.ended).stderr
	require.NotContains(t, log, next)
	require.NotContains(t, log, adminToken)
}

// TestAdministratorsHaveRolesAndAskForASecondPerson starts the program with a file of people.
func TestAdministratorsHaveRolesAndAskForASecondPerson(t *testing.T) {
	t.Parallel()
	secret := map[string]string{}
	var content strings.Builder
	for _, line := range []string{"name=alice", "name=bob", "name=wall role=reader"} {
		token, _ := tokens.New()
		secret[strings.TrimPrefix(strings.Fields(line)[0], "name=")] = token
		content.WriteString(line + " " + token + "\n")
	}
	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0", "--second-person", "new-epoch,abandon",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, content.String()))
	ask := func(name, method, path, body string) (int, string) {
		return request(t, http.DefaultClient, method, "http://"+p.address+"/api/v1/admin/"+path, secret[name], body)
	}
	status, _ := ask("wall", http.MethodGet, "clusters", "")
	require.Equal(t, http.StatusOK, status)
	status, answer := ask("wall", http.MethodPut, "clusters/"+clusterID, `{"region":"nyc3"}`)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, answer, "admin/wall has the role reader and may change nothing; putCluster needs the role administrator")
	status, _ = ask("alice", http.MethodPut, "clusters/"+clusterID, `{"region":"nyc3"}`)
	require.Equal(t, http.StatusCreated, status)
	for _, step := range []struct {
		name   string
		status int
	}{{"wall", http.StatusForbidden}, {"alice", http.StatusAccepted}, {"alice", http.StatusConflict}, {"bob", http.StatusOK}, {"bob", http.StatusAccepted}} {
		status, answer := ask(step.name, http.MethodPost, "new-log-epoch", "")
		require.Equal(t, step.status, status, "%s: %s", step.name, answer)
	}
	status, answer = ask("alice", http.MethodGet, "tokens", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, answer, `"last_used_at"`)
	require.NoError(t, p.command.Process.Kill())
	log := (<-p.ended).stderr
	require.Contains(t, log, "wall "+tokens.Fingerprint(secret["wall"])+" reader")
	for _, token := range secret {
		require.NotContains(t, log+answer, token)
	}
}
