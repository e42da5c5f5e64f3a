package kubetest_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.com/web}]}
`

func TestADeploymentBecomesRunningPods(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2, GatewayAPI: true})
	// A namespace that is created has what pods need, and a definition that is established is listed.
	_, err := c.Kubectl(t.Context(), "create", "namespace", "more")
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), "{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: more},"+
		" spec: {containers: [{name: c, image: example.com/c}]}}"))
	require.NoError(t, c.Apply(t.Context(), gadgets))
	_, err = c.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/gadgets.example.com")
	require.NoError(t, err)
	groups, err := c.Kubectl(t.Context(), "get", "--raw", "/apis")
	require.NoError(t, err)
	require.Contains(t, groups, `"groupVersion":"example.com/v1"`)

	require.NoError(t, c.Apply(t.Context(), deployment))
	_, err = c.Kubectl(t.Context(), "wait", "--for=condition=Available", "--timeout=300s", "deployment/web")
	require.NoError(t, err)
	pods, err := c.Kubectl(t.Context(), "get", "pods", "-l", "app=web", "--field-selector=status.phase=Running", "-o", "name")
	require.NoError(t, err)
	require.Len(t, strings.Fields(pods), 3)
	_, err = c.Kubectl(t.Context(), "get", "httproutes")
	require.NoError(t, err)
	// Nodes without a lease that is renewed are dead after a minute.
	await.Eventually(t, "len(strings.Fields(leases)) == 2", func() bool {
		leases, err := c.Kubectl(t.Context(), "get", "leases", "-n", "kube-node-lease", "-o", "jsonpath={.items[*].spec.renewTime}")
		require.NoError(t, err)
		return len(strings.Fields(leases)) == 2
	})
}

func TestTheAuditLogTellsWhoAskedForWhat(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	require.NoError(t, c.Apply(t.Context(), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: default}}"))
	_, kubeconfig, err := c.ServiceAccount(t.Context(), "default", "robot")
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "--kubeconfig", kubeconfig, "get", "secret", "token", "-n", "default")
	require.ErrorContains(t, err, "forbidden")

	const robot = "system:serviceaccount:default:robot"
	await.Eventually(t, "what it waits for, at ./reconcile/kube/kubetest/cluster_test.go", func() bool {
		requests, err := c.Requests(robot)
		require.NoError(t, err)
		for _, r := range requests {
			if r.Verb == "get" && r.Resource == "secrets" && r.Name == "token" && r.Code == 403 {
				return true
			}
		}
		return false
	})
	requests, err := c.Requests("nobody")
	require.NoError(t, err)
	require.Empty(t, requests)
}

// TestNothingIsLeftAfterAKill starts a cluster in another process, kills that
// process, and looks at what remains.
func TestNothingIsLeftAfterAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	if os.Getenv("KUBETEST_CHILD") != "" {
		c := kubetest.Start(t, kubetest.Options{})
		_, err := io.WriteString(os.Stdout, "dir="+c.Dir+"\n")
		require.NoError(t, err)
		<-t.Context().Done()
	}
	t.Parallel()
	_, err := kubetest.BuildAssets(t.Context(), os.Stderr)
	require.NoError(t, err)

	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingIsLeftAfterAKill$")
	child.Env = append(os.Environ(), "KUBETEST_CHILD=1")
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var dir string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if found, ok := strings.CutPrefix(lines.Text(), "dir="); ok {
			dir = found
			break
		}
	}
	require.NotEmpty(t, dir)
	require.NotEmpty(t, processesIn(t, dir))

	require.NoError(t, child.Process.Signal(syscall.SIGKILL))
	require.Error(t, child.Wait())
	await.Eventually(t, "len(processesIn(t, dir)) == 0", func() bool { return len(processesIn(t, dir)) == 0 })

	kubetest.Start(t, kubetest.Options{})
	require.NoDirExists(t, dir, "the next start removes what the killed one left")
}

// processesIn returns the processes whose working directory is dir.
func processesIn(t *testing.T, dir string) []int {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	if len(entries) == 0 {
		t.Skip("no /proc on this system")
	}
	var found []int
	for _, entry := range entries {
		if cwd, err := os.Readlink(entry); err == nil && cwd == dir {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			require.NoError(t, err)
			found = append(found, pid)
		}
	}
	return found
}

func TestAServerThatWasAwayHasWhatItHad(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a restart of the API server")
	}
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	require.NoError(t, c.Apply(t.Context(), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: default}}"))
	_, kubeconfig, err := c.ServiceAccount(t.Context(), "default", "robot")
	require.NoError(t, err)
	c.StopServer()
	_, err = c.Kubectl(t.Context(), "get", "serviceaccount", "robot")
	require.ErrorContains(t, err, "refused")
	require.NoError(t, c.StartServer(t.Context()))
	_, err = c.Kubectl(t.Context(), "get", "serviceaccount", "robot")
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "--kubeconfig", kubeconfig, "auth", "whoami")
	require.NoError(t, err, "tokens are good still")
}
