package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/helmtest"
	testprocess "github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// installation is a release of the chart on a cluster.
type installation struct {
	*testing.T

	cluster *kubetest.Cluster
}

func (i *installation) kubectl(args ...string) string {
	i.Helper()
	out, err := i.cluster.Kubectl(i.Context(), args...)
	require.NoError(i, err)
	return out
}

func (i *installation) helm(args ...string) {
	i.Helper()
	args = append(args, "--namespace", agentjob.Namespace, "--wait", "--timeout", "2m")
	out, err := helmtest.Run(i.T, []string{"KUBECONFIG=" + i.cluster.Kubeconfig}, args...)
	require.NoError(i, err, out)
}

// process is what runs in the pod of the release: the program, with the arguments and
// the environment that the cluster's Deployment has, as its ServiceAccount.
type process struct {
	*exec.Cmd

	deployment *appsv1.Deployment
	pod        string
	log        string
	stderr     *bytes.Buffer
}

func (i *installation) start() *process {
	i.Helper()
	p := &process{deployment: &appsv1.Deployment{}, log: filepath.Join(i.TempDir(), "stdout"), stderr: &bytes.Buffer{}}
	require.NoError(
		i,
		json.Unmarshal([]byte(i.kubectl("get", "deployment", agentjob.Account, "-n", agentjob.Namespace, "-o", "json")), p.deployment),
	)
	p.pod = i.kubectl(
		"get",
		"pods",
		"-n",
		agentjob.Namespace,
		"-l",
		"app.kubernetes.io/name=thurkube",
		"-o",
		"jsonpath={.items[0].metadata.name}",
	)
	_, kubeconfig, err := i.cluster.ServiceAccount(i.Context(), agentjob.Namespace, p.deployment.Spec.Template.Spec.ServiceAccountName)
	require.NoError(i, err)
	agent := p.deployment.Spec.Template.Spec.Containers[0]
	require.Empty(i, agent.Command, "the image's entrypoint is the program")
	log, err := os.Create(p.log)
	require.NoError(i, err)
	i.Cleanup(func() { log.Close() })
	p.Cmd = exec.CommandContext(i.Context(), os.Args[0], agent.Args...)
	p.Env = []string{asProgram + "=1", "KUBECONFIG=" + kubeconfig, "HOME=" + i.TempDir()}
	for _, e := range agent.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": p.pod, "metadata.namespace": agentjob.Namespace}[e.ValueFrom.FieldRef.FieldPath]
			require.NotEmpty(i, value, e.Name)
		}
		p.Env = append(p.Env, e.Name+"="+value)
	}
	p.Stdout, p.Stderr = log, p.stderr
	require.NoError(i, p.Start())
	i.Cleanup(func() { p.Process.Kill() }) //nolint:errcheck // it may have ended
	return p
}

// probe asks as the kubelet does: at the path and the port of the probe.
func (p *process) probe(t *testing.T, probe *corev1.Probe) int {
	t.Helper()
	port := probe.HTTPGet.Port.IntValue()
	for _, named := range p.deployment.Spec.Template.Spec.Containers[0].Ports {
		if named.Name == probe.HTTPGet.Port.StrVal {
			port = int(named.ContainerPort)
		}
	}
	request, err := http.NewRequestWithContext(
		t.Context(),
		http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d%s", port, probe.HTTPGet.Path),
		http.NoBody,
	)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0 // it does not listen yet
	}
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// lines returns the log, of which each line is JSON.
func (p *process) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(p.log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		entry := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		all = append(all, entry)
	}
	return all
}

// stop ends the process as the kubelet does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), p.stderr.String())
	require.Empty(t, p.stderr.String())
}

func (i *installation) eventually(what string, holds func() bool) {
	i.Helper()
	await.Eventually(i, what, holds)
}

// freePort returns 9000, or another one if that is taken on this machine.
func freePort(t *testing.T) int {
	t.Helper()
	if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:9000"); err == nil {
		require.NoError(t, listener.Close())
		return 9000
	}
	port, err := testprocess.Port(t.Context())
	require.NoError(t, err)
	return port
}

// TestTheChartIsInstalled is D29, C21 and C22: port, probes and log level follow the
// values, each line of the log is JSON, the rights of the chart suffice for a run, and
// uninstalling leaves definitions and AgentJobs, unless it is asked to take them.
func TestTheChartIsInstalled(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds Helm")
	}
	t.Parallel()
	i := &installation{t, kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})}
	port := freePort(t)
	i.helm("install", agentjob.Account, "chart", "--create-namespace", "--set",
		fmt.Sprintf("health.port=%d,probes.liveness.periodSeconds=7,probes.readiness.periodSeconds=7,logLevel=debug", port))
	require.Contains(t, i.kubectl("get", "crd", "-o", "name"), "agentjobs.thurkube.thurbeen.eu")

	p := i.start()
	agent := p.deployment.Spec.Template.Spec.Containers[0]
	require.EqualValues(t, 7, agent.LivenessProbe.PeriodSeconds)
	require.EqualValues(t, 7, agent.ReadinessProbe.PeriodSeconds)
	require.EqualValues(t, port, agent.Ports[0].ContainerPort)
	i.eventually("it is alive", func() bool { return p.probe(t, agent.LivenessProbe) == http.StatusOK })
	i.eventually("it is ready", func() bool { return p.probe(t, agent.ReadinessProbe) == http.StatusOK })
	const objects = `
{apiVersion: v1, kind: Secret, metadata: {name: auth, namespace: default}, stringData: {token: t0p-s3cret}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentRuntime, metadata: {name: r, namespace: default}, spec: {image: 'agent:1', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentAuth, metadata: {name: a, namespace: default}, spec: {secretRef: {name: auth, key: token}}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentRole, metadata: {name: o, namespace: default}, spec: {allowedTools: []}}
---
{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentJob, metadata: {name: job, namespace: default}, spec: {runtimeRef: r, authRef: a, roleRef: o, prompt: work, persist: false}}
`
	require.NoError(t, i.cluster.Apply(t.Context(), objects))
	phase := func() string { return i.kubectl("get", "aj", "job", "-o", "jsonpath={.status.phase}") }
	i.eventually("the job runs", func() bool { return phase() == "Succeeded" })
	require.Contains(
		t,
		i.kubectl("get", "events.events.k8s.io", "-o", `jsonpath={range .items[?(@.regarding.kind=="AgentJob")]}{.reportingInstance} {end}`),
		p.pod,
	)
	i.eventually("it logs what it does", func() bool {
		levels := map[any]bool{}
		for _, line := range p.lines(t) {
			levels[line["level"]] = true
		}
		return levels["DEBUG"] && levels["INFO"]
	})

	// Another value: another process.
	i.helm("upgrade", agentjob.Account, "chart", "--reuse-values", "--set", "logLevel=error")
	p.stop(t)
	for _, line := range p.lines(t) {
		require.NotEmpty(t, line["msg"])
		require.NotContains(t, fmt.Sprint(line), "t0p-s3cret")
	}
	quiet := i.start()
	i.eventually("it is ready again", func() bool { return quiet.probe(t, agent.ReadinessProbe) == http.StatusOK })
	quiet.stop(t)
	require.Empty(t, quiet.lines(t))

	uid := i.kubectl("get", "aj", "job", "-o", "jsonpath={.metadata.uid}")
	i.helm("uninstall", agentjob.Account)
	require.Empty(
		t,
		i.kubectl("get", "deployments,serviceaccounts", "-n", agentjob.Namespace, "-l", "app.kubernetes.io/name=thurkube", "-o", "name"),
	)
	require.Empty(t, i.kubectl("get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=thurkube", "-o", "name"))
	require.Equal(t, 8, strings.Count(i.kubectl("get", "crd", "-o", "name"), "thurkube.thurbeen.eu"))
	require.Equal(t, uid, i.kubectl("get", "aj", "job", "-o", "jsonpath={.metadata.uid}"))
	require.Equal(t, "Succeeded", phase())

	// What was kept belongs to the next release; this one takes it with it.
	i.helm("install", agentjob.Account, "chart", "--set", "crds.keep=false")
	require.Equal(t, uid, i.kubectl("get", "aj", "job", "-o", "jsonpath={.metadata.uid}"))
	last := i.start()
	i.kubectl("delete", "agentjobs", "--all", "--timeout=60s")
	last.stop(t)
	i.helm("uninstall", agentjob.Account)
	i.eventually("the definitions go", func() bool { return !strings.Contains(i.kubectl("get", "crd", "-o", "name"), "thurkube") })
}
