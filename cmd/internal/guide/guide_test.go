package guide_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

// TestAFleetRunsWhenThePageIsPasted runs docs/running.md line by line in a shell, with the
// programs built, other ports, and a real Kubernetes with simulated nodes.
func TestAFleetRunsWhenThePageIsPasted(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2})
	page, err := os.ReadFile("../../../docs/running.md")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"controlplane", "shuttle", "krane"} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "bin", name), "github.com/seed-9e1ffd66/trueup/cmd/"+name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.Symlink(cluster.KubectlPath(), filepath.Join(dir, "bin", "kubectl")))
	commands := strings.NewReplacer("127.0.0.1:8443", free(t), "127.0.0.1:9090", free(t), "127.0.0.1:9091", free(t)).Replace(blocks(t, string(page)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-u", "-x", "-o", "pipefail")
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+cluster.Kubeconfig, "TRUEUP_CONTROLPLANE_LOG_LEVEL=warn", "STARFORM_LOG_LEVEL=warn")
	shell.Stdin = strings.NewReader("trap 'kill $(jobs -p)' EXIT\n" + commands + "kubectl get pods -A\n")
	shell.WaitDelay = 30 * time.Second
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"admin.token", "cluster.token"} {
		token, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Greater(t, len(strings.TrimSpace(string(token))), 30, name)
	}
	require.Regexp(t, `proj-shop +web-production-\S+ +1/1 +Running`, string(out))
	require.Regexp(t, `starform-system +shuttle-\S+ +1/1 +Running`, string(out))
	require.Regexp(t, `krane-system +krane-\S+ +1/1 +Running`, string(out))
	require.Regexp(t, `trueup-backup.db: [0-9]+ bytes`, string(out))
}

// blocks returns what a reader pastes into a shell.
func blocks(t *testing.T, page string) string {
	t.Helper()
	var all strings.Builder
	for {
		_, rest, ok := strings.Cut(page, "```sh\n")
		if !ok {
			require.NotZero(t, all.Len())
			return all.String()
		}
		block, after, ok := strings.Cut(rest, "```\n")
		require.True(t, ok)
		all.WriteString(block)
		page = after
	}
}

// free returns an address that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
