package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// cell is a Kubernetes with the operator's definitions and rights, in which the
// scenarios each have a namespace, and one operator.
type cell struct {
	cluster *kubetest.Cluster
	access  *rest.Config // as the operator's account
}

func newCell(t *testing.T) *cell {
	t.Helper()
	stages, err := os.ReadFile(filepath.Join("testdata", "stages.yaml"))
	require.NoError(t, err)
	return newCellOn(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3, Stages: string(stages)})
}

func newCellOn(t *testing.T, options kubetest.Options) *cell {
	t.Helper()
	c := &cell{cluster: kubetest.Start(t, options)}
	text, err := agentjob.Manifests{Image: "agentjob"}.YAML()
	require.NoError(t, err)
	require.NoError(t, c.cluster.Apply(t.Context(), text))
	_, err = c.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	c.access, _, err = c.cluster.ServiceAccount(t.Context(), agentjob.Namespace, agentjob.Account)
	require.NoError(t, err)
	return c
}

// running is one process of the operator.
type running struct {
	address string
	net     *applytest.Transport
	stop    func()
}

// start starts an operator. fault may be nil.
func (c *cell) start(t *testing.T, fault func(applytest.Request) applytest.Fault) *running {
	t.Helper()
	r := &running{net: &applytest.Transport{Fault: fault}}
	c.launch(t, r, func(*agentjob.Operator) {})
	return r
}

// launch starts an operator whose requests go through the Transport.
func (c *cell) launch(t *testing.T, r *running, change func(*agentjob.Operator)) {
	t.Helper()
	access := rest.CopyConfig(c.access)
	access.Wrap(r.net.Wrap)
	address := make(chan string, 1)
	o := &agentjob.Operator{
		Kubernetes: access, Namespace: agentjob.Namespace, Address: "127.0.0.1:0", Instance: "test",
		Logger:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		OnListen: func(at net.Addr) { address <- at.String() },
	}
	change(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- o.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(r.stop)
	select {
	case r.address = <-address:
	case err := <-done:
		require.NoError(t, err)
	}
}

// bench is the namespace of one scenario.
type bench struct {
	*testing.T

	*cell
	name string
}

func (c *cell) bench(t *testing.T, name string) *bench {
	t.Helper()
	b := &bench{T: t, cell: c, name: name}
	b.kubectl("create", "namespace", name)
	b.kubectl("create", "secret", "generic", "auth", "-n", name, "--from-literal=token=t0p-s3cret")
	b.apply("AgentRuntime", "runtime", "{image: 'agent:1', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
	b.apply("AgentAuth", "auth", "{secretRef: {name: auth, key: token}}")
	b.apply("AgentRole", "role", "{allowedTools: ['Bash(git *)', Read]}")
	return b
}

func (b *bench) kubectl(args ...string) string {
	b.Helper()
	out, err := b.cluster.Kubectl(b.Context(), args...)
	require.NoError(b, err)
	return out
}

// in is kubectl in the scenario's namespace.
func (b *bench) in(args ...string) string {
	b.Helper()
	return b.kubectl(append(args, "-n", b.name)...)
}

func (b *bench) apply(kind, name, spec string) {
	b.Helper()
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			fmt.Sprintf(
				"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}\n---\n",
				kind,
				name,
				b.name,
				spec,
			),
		),
	)
}

// job makes an AgentJob with further fields, such as ", persist: true".
func (b *bench) job(name, more string) {
	b.Helper()
	b.apply("AgentJob", name, "{runtimeRef: runtime, authRef: auth, roleRef: role, prompt: work"+more+"}")
}

func (b *bench) image(tag string) {
	b.Helper()
	b.apply("AgentRuntime", "runtime", "{image: 'agent:"+tag+"', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
}

// status returns a field of a job's status.
func (b *bench) status(name, path string) string {
	b.Helper()
	out, err := b.cluster.Kubectl(b.Context(), "get", "aj", name, "-n", b.name, "-o", "jsonpath={.status."+path+"}")
	if err != nil {
		return ""
	}
	return out
}

func (b *bench) condition(name, kind, field string) string {
	b.Helper()
	return b.status(name, fmt.Sprintf(`conditions[?(@.type=="%s")].%s`, kind, field))
}

func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	await.Eventually(b, what, holds, func() string {
		out, _ := b.cluster.Kubectl(b.Context(), "get", "aj,job,cronjob,pod,cm,sa,pvc", "-o", "wide", "-n", b.name)
		describe, _ := b.cluster.Kubectl(b.Context(), "get", "aj", "-o", "yaml", "-n", b.name)
		return out + "\n" + describe
	})
}

func (b *bench) phase(name, want string) {
	b.Helper()
	b.eventually(name+" is "+want, func() bool { return b.status(name, "phase") == want })
}

// created returns the names of Jobs that were ever created for the job, oldest first.
func (b *bench) created(name string) (jobs []string) {
	b.Helper()
	all, err := b.cluster.Requests("system:serviceaccount:" + agentjob.Namespace + ":" + agentjob.Account)
	require.NoError(b, err)
	for _, r := range all {
		if r.Resource == "jobs" && r.Namespace == b.name && r.Code == 201 && strings.HasPrefix(r.Name, name+"-") {
			jobs = append(jobs, r.Name)
		}
	}
	return jobs
}

// writes returns the writes of operators to objects in the namespace or named after it, in
// order, without Events and refused writes: "create jobs job-1". An apply that creates is a
// create.
func (b *bench) writes() (all []string) {
	b.Helper()
	for _, r := range b.sent(b.T) {
		verb := r.Verb
		switch {
		case r.Namespace != b.name && !strings.Contains(r.Name, ":"+b.name+":"),
			r.Resource == "events",
			r.Code >= http.StatusBadRequest,
			verb == "get",
			verb == "list",
			verb == "watch":
			continue
		case r.Code == http.StatusCreated:
			verb = "create"
		}
		all = append(all, verb+" "+r.Resource+" "+r.Name)
	}
	return all
}

// names returns what kubectl lists of a kind for a job.
func (b *bench) names(kinds, job string) string {
	b.Helper()
	return strings.Join(
		strings.Fields(
			b.in("get", kinds, "-l", "thurkube.thurbeen.eu/agentjob="+job, "-o", "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}"),
		),
		" ",
	)
}
