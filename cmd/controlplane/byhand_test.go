package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// TestTheProgramsByHandWorkWhenTheyArePasted runs the commands of a section of
// docs/programs.md in a shell, line by line, with built programs and another port.
func TestTheProgramsByHandWorkWhenTheyArePasted(t *testing.T) {
	text, err := os.ReadFile("../../docs/programs.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "## The programs by hand\n")
	require.True(t, ok)
	var script strings.Builder
	for blocks := section; ; {
		_, rest, ok := strings.Cut(blocks, "```sh\n")
		if !ok {
			break
		}
		block, after, ok := strings.Cut(rest, "```\n")
		require.True(t, ok)
		script.WriteString(block)
		blocks = after
	}
	dir := programs.Dir(t, "controlplane", "shuttle")
	listens := serveProcess(t, filepath.Join(dir, "controlplane"), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(dir, "other.db"), "--admin-token-file", writeFile(t, adminToken))
	port := listens.address // free again once the process has exited
	require.NoError(t, listens.command.Process.Kill())
	<-listens.ended
	commands := strings.NewReplacer("go run ./cmd/", "./", "127.0.0.1:8080", port, "--database trueup.db", "--database trueup.db --metrics-bind-address= --listen "+port).
		Replace(script.String())
	shell := exec.CommandContext(t.Context(), "bash", "-e", "-u", "-o", "pipefail")
	shell.Dir, shell.Env = dir, append(os.Environ(), "TRUEUP_CONTROLPLANE_LOG_LEVEL=error")
	shell.Stdin = strings.NewReader("trap 'kill %1' EXIT\n" + commands)
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `"image":"web:1"`)
	require.Contains(t, string(out), `"token":"`)
	require.Equal(t, 2, strings.Count(string(out), `{"type":"page"`), "%s", out)
	require.Contains(t, string(out), `"heartbeat":15000000000`)
	require.Contains(t, string(out), `{"type":"synced"`)
	manifests, err := os.ReadFile(filepath.Join(dir, "shuttle.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(manifests), "kind: Deployment")
}
