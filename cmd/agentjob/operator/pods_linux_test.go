package operator_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/podtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestAnAgentThatRunsUsesWhatItGets runs the program of an agent in the pods of its runs, with
// what the operator gives it.
func TestAnAgentThatRunsUsesWhatItGets(t *testing.T) {
	if testing.Short() {
		t.Skip("long: pods that run")
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", program, "./testdata/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // it has no libraries in its image
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := newCellOn(t, kubetest.Options{Controllers: true, Scheduler: true})
	node := podtest.Start(t, c.cluster, podtest.Options{Images: map[string]podtest.Image{
		"agent:1": {Files: map[string]string{"/agent": program}, Entrypoint: []string{"/agent"}},
	}})
	c.start(t, nil)
	for name, scenario := range map[string]func(*bench, *podtest.Node){
		"whole": wholeRun, "plain": plainRun, "fails": runThatFails, "times": runThatIsTooLong, "missing": runWithoutItsSecret,
	} {
		t.Run(name, func(t *testing.T) { scenario(c.bench(t, "live-"+name), node) })
	}
}

// said returns what the only pod of a job has printed.
func (b *bench) said(node *podtest.Node, job string) map[string]string {
	b.Helper()
	selector := "batch.kubernetes.io/job-name=" + b.status(job, "lastRun.job")
	pod := strings.TrimSpace(b.in("get", "pods", "-l", selector, "-o", "jsonpath={.items[0].metadata.name}"))
	var seen map[string]string
	text := node.Log(b.name, pod, "agent")
	require.NoError(b, json.Unmarshal([]byte(text), &seen), "%s", text)
	return seen
}

// wholeRun has everything that a run can have, twice: its volume outlives the first.
func wholeRun(b *bench, node *podtest.Node) {
	b.kubectl("label", "namespace", b.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	require.NoError(b, b.cluster.Apply(b.Context(), `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole,
  metadata: {name: ceiling-`+b.name+
		`, labels: {thurkube.thurbeen.eu/aggregate-to-ceiling: "true"}}, rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: `+b.name+`}, spec: {capacity: {storage: 10Gi},
  accessModes: [ReadWriteOnce], storageClassName: local, hostPath: {path: /nowhere}}}`))
	b.in("create", "secret", "generic", "tokens", "--from-literal=git=g1t", "--from-literal=headers={}")
	b.apply("ClusterAccess", "nodes", "{rules: [{apiGroups: [''], resources: [nodes], verbs: [list]}]}")
	b.apply("Repository", "code", "{owner: team, name: code, tokenSecretRef: {name: tokens, key: git}}")
	b.apply("McpServer", "tool", "{url: 'https://tool.example.com', headersSecretRef: {name: tokens, key: headers}}")
	b.job("whole", `, clusterAccessRef: nodes, repositoryRefs: [code], mcpServerRefs: [tool], persist: true,
  storage: {className: local}, env: [{name: PERSISTENT, value: /data}]`)
	for runs := 1; runs <= 2; runs++ {
		b.phase("whole", "Succeeded")
		require.Equal(b, map[string]string{
			"prompt": "work", "tools": "Bash(git *);Read", "token": "t0p-s3cret", "user": "65532:65532",
			"home": "written", "tmp": "written", "root": "cannot be written", "config": "cannot be written",
			"nodes": "1", "secrets": "forbidden: true", "headers": "{}", "repository": "g1t", "runs": strings.Repeat("x", runs),
		}, b.said(node, "whole"))
		if runs == 1 {
			first := b.status("whole", "lastRun.job")
			b.in("annotate", "aj", "whole", "thurkube.thurbeen.eu/rerun=again")
			b.eventually("another run", func() bool { return b.status("whole", "lastRun.job") != first })
		}
	}
}

// plainRun has the least: it has no account at the API server.
func plainRun(b *bench, node *podtest.Node) {
	b.job("plain", "")
	b.phase("plain", "Succeeded")
	seen := b.said(node, "plain")
	require.Equal(b, "no account", seen["nodes"])
	require.Equal(b, "t0p-s3cret", seen["token"])
}

// runThatFails ends with a status of its own.
func runThatFails(b *bench, _ *podtest.Node) {
	b.apply("AgentJob", "fails", "{runtimeRef: runtime, authRef: auth, roleRef: role, prompt: 'exit 3'}")
	b.phase("fails", "Failed")
	require.Contains(b, b.condition("fails", "Ready", "message")+b.condition("fails", "Finished", "message"), "3")
}

// runThatIsTooLong is ended after its time.
func runThatIsTooLong(b *bench, _ *podtest.Node) {
	b.apply("AgentRuntime", "runtime",
		"{image: 'agent:1', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data, command: [/agent, hang]}")
	b.job("long", ", timeoutSeconds: 3")
	b.phase("long", "Failed")
	b.eventually("no pod is left", func() bool { return b.in("get", "pods", "-o", "name") == "" })
}

// runWithoutItsSecret waits for it, and says so.
func runWithoutItsSecret(b *bench, node *podtest.Node) {
	b.in("delete", "secret", "auth")
	b.job("lacks", "")
	b.eventually("it is named", func() bool { return strings.Contains(b.condition("lacks", "Ready", "message"), "auth") })
	b.in("create", "secret", "generic", "auth", "--from-literal=token=late")
	b.phase("lacks", "Succeeded")
	require.Equal(b, "late", b.said(node, "lacks")["token"])
}
