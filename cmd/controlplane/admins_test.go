package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

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
