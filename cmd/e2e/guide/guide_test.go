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

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestAFleetRunsWhenThePageIsPasted runs docs/running.md line by line in a shell, with the
// programs built, other ports, and a real Kubernetes with simulated nodes.
func TestAFleetRunsWhenThePageIsPasted(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a shell runs the page for a minute")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2})
	page, err := os.ReadFile("../../../docs/running.md")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(programs.Dir(t, "controlplane", "shuttle", "krane"), filepath.Join(dir, "bin")))
	require.NoError(t, os.Symlink(cluster.KubectlPath(), filepath.Join(dir, "bin", "kubectl")))
	commands := strings.NewReplacer("127.0.0.1:8443", free(t), "127.0.0.1:9090", free(t), "127.0.0.1:9091", free(t)).
		Replace(blocks(t, string(page)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-u", "-x", "-o", "pipefail")
	shell.Dir = dir
	shell.Env = append(
		os.Environ(),
		"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
		"KUBECONFIG="+cluster.Kubeconfig,
		"TRUEUP_CONTROLPLANE_LOG_LEVEL=warn",
		"STARFORM_LOG_LEVEL=warn",
	)
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

// TestTheRunbooksOfTokensAndKeysWorkWhenTheyArePasted runs the commands of these sections of
// docs/runbooks.md, with a restart after each step of the section on keys.
func TestTheRunbooksOfTokensAndKeysWorkWhenTheyArePasted(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../docs/runbooks.md")
	require.NoError(t, err)
	section := func(heading string) string {
		_, rest, ok := strings.Cut(string(content), "\n## "+heading+"\n")
		require.True(t, ok, heading)
		text, _, _ := strings.Cut(rest, "\n## ")
		return text
	}
	steps := strings.Split(section("The keys of var groups"), "```sh\n")[1:]
	require.Len(t, steps, 3)
	const project, group = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	script := `trap 'kill $(jobs -p)' EXIT
CLUSTER_ID=33333333-3333-4333-8333-333333333333 WORKSPACE=44444444-4444-4444-8444-444444444444
openssl rand -hex 32 > admin.token
echo "one $(openssl rand -base64 32)" > var-group.keys
start() {
  controlplane --listen ${CONTROL#http://} --metrics-bind-address '' --admin-token-file admin.token --var-group-keys-file var-group.keys >> log &
  PID=$!
  curl -sS --retry 60 --retry-delay 1 --retry-connrefused -o /dev/null $CONTROL/readyz
}
restart() { kill $PID; wait $PID; start; }
ask() { curl -sS --fail-with-body -X $1 -H "Authorization: Bearer $(cat ${4:-admin.token})" -H 'Content-Type: application/json' -d "$3" $CONTROL/api/v1/$2; }
state() { ask GET clusters/$CLUSTER_ID/desired-state '' $1 | grep -o '"checksum":"[^"]*"\|hunter2'; }
start
ask PUT admin/clusters/$CLUSTER_ID '{"region":"nyc3"}' | sed 's/.*"token":"\([^"]*\)".*/\1/' > old.token
ask PUT admin/projects/` + project + ` '{"cluster_id":"'$CLUSTER_ID'","workspace_id":"'$WORKSPACE'","workspace_slug":"acme","slug":"shop"}'
ask PUT admin/projects/` + project + `/var-groups/` + group + ` '{"name":"db","entries":[{"key":"PASSWORD","value":"hunter2"}]}'
state old.token > before
{
` + blocks(t, section("The token of an agent")) + `
} > answer
sed -n 's/^token: //p' answer > new.token
state old.token
state new.token
`
	var rotation strings.Builder
	for _, step := range steps {
		rotation.WriteString(blocks(t, "```sh\n"+step) + "restart\nstate new.token > after\ncmp before after\n")
	}
	script += rotation.String() + "test $(wc -l < var-group.keys) = 1\ncp var-group.keys saved\n{ echo \"three $(openssl rand -base64 32)\"; cat saved; } > var-group.keys\n" +
		"kill $PID; wait $PID\nif controlplane --listen ${CONTROL#http://} --metrics-bind-address '' --admin-token-file admin.token --var-group-keys-file var-group.keys 2> refused; then exit 1; fi\n" +
		"cat refused\ncp saved var-group.keys\nstart\nstate new.token\necho the end\n"
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-u", "-x", "-o", "pipefail")
	shell.Dir = dir
	shell.Env = append(
		os.Environ(),
		"PATH="+programs.Dir(t, "controlplane")+":"+os.Getenv("PATH"),
		"TRUEUP_CONTROLPLANE_TOKEN_FILE=admin.token",
	)
	address := "http://" + free(t)
	shell.Env = append(shell.Env, "CONTROL="+address, "TRUEUP_CONTROLPLANE_SERVER="+address)
	shell.Stdin = strings.NewReader(script)
	shell.WaitDelay = 10 * time.Second
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--var-group-keys-file: three: the first key is new")
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	require.Contains(t, string(log), `"msg":"var group values re-encrypted","values":1,"key":"two"`)
}
