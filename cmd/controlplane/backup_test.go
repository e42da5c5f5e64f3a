package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestABackupServesAfterItWasPutBack follows the runbook: copy while it runs, lose the
// database, put the copy back, restored, start.
func TestABackupServesAfterItWasPutBack(t *testing.T) {
	t.Parallel()
	program, token, dir := binary(t), writeFile(t, adminToken), t.TempDir()
	database, copied := filepath.Join(dir, "db"), filepath.Join(dir, "copy")
	start := func() (base string, stop func()) {
		p := serveProcess(
			t,
			program,
			"--listen",
			"127.0.0.1:0",
			"--metrics-bind-address",
			"127.0.0.1:0",
			"--database",
			database,
			"--admin-token-file",
			token,
		)
		return "http://" + p.address, func() {
			require.NoError(t, p.command.Process.Kill())
			<-p.ended
		}
	}
	base, stop := start()
	put := func(name string) int {
		status, answer := request(
			t,
			http.DefaultClient,
			http.MethodPut,
			base+"/api/v1/admin/regions/"+name,
			adminToken,
			`{"name":"`+name+`-1","platform":"aws"}`,
		)
		require.Less(t, status, 300, answer)
		return status
	}
	require.Equal(t, http.StatusCreated, put("kept"))
	got := execute(t, program, nil, "backup", "--database", database, copied)
	require.Zero(t, got.code, got.stderr)
	require.Regexp(t, `^.*/copy: [0-9]+ bytes\n$`, got.stdout)
	require.Equal(t, http.StatusCreated, put("later"))
	stop()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.RemoveAll(database+suffix))
	}
	require.NoError(t, os.Rename(copied, database))
	got = execute(t, program, nil, "restored", "--database", database)
	require.Zero(t, got.code, got.stderr)
	require.Contains(t, got.stdout, "0 clusters and 1 regions have a new epoch")
	base, stop = start()
	defer stop()
	require.Equal(t, http.StatusOK, put("kept"), "it was there")
	require.Equal(t, http.StatusCreated, put("later"), "it was made after the copy")

	for _, wrong := range []struct {
		args    []string
		code    int
		message string
	}{
		{[]string{"backup"}, 2, "FILE: is not set, must be"},
		{[]string{"backup", "--database", "postgres://db/x", copied}, 2, "--database: is copied with the tools of PostgreSQL"},
		{[]string{"backup", "--database", filepath.Join(dir, "none"), copied}, 2, "must be a file, in a folder that exists: no such file"},
		{[]string{"backup", "--database", database, filepath.Join(dir, "none", "copy")}, 2, "must be in a folder that exists"},
		{[]string{"backup", "--database", database, database}, 1, "choose another file"},
	} {
		got := execute(t, program, nil, wrong.args...)
		require.Equal(t, wrong.code, got.code, wrong.args)
		require.Contains(t, got.stderr, wrong.message)
	}
}
