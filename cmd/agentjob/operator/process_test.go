package operator_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const account = "system:serviceaccount:" + agentjob.Namespace + ":" + agentjob.Account

// sent returns the requests of all operators but those for the Lease.
func (c *cell) sent(t *testing.T) []kubetest.Request {
	t.Helper()
	all, err := c.cluster.Requests(account)
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(r kubetest.Request) bool { return r.Resource == "leases" })
}

func ready(t *testing.T, r *running, path string) int {
	t.Helper()
	code, _ := get(t, r, path)
	return code
}

// get returns the status and the body of an answer of the operator.
func get(t *testing.T, r *running, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(text)
}

// TestReplicas is D23, D7 with a restart, and D27 in small: of two replicas one works,
// each of 40 jobs runs once though the leader is killed, a third process starts no run
// again, and at rest nothing is sent.
func TestReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Lease runs out")
	}
	t.Parallel()
	const many = 40
	c := newCell(t)
	b := c.bench(t, "replicas")
	var jobs atomic.Int64
	// The first is killed after it has created its tenth Job.
	first := c.start(t, func(r applytest.Request) applytest.Fault {
		if r.Verb == "patch" && r.Resource == "jobs" && strings.HasPrefix(r.Name, "job-") && jobs.Add(1) == 10 {
			return applytest.Fault{Crash: true, LoseAnswer: true}
		}
		return applytest.Fault{}
	})
	// One that stands by is ready, too.
	b.eventually("the first leads", func() bool {
		return slices.ContainsFunc(
			first.net.Writes(),
			func(r applytest.Request) bool { return r.Resource == "leases" && r.Status == http.StatusCreated },
		)
	})
	second := c.start(t, nil)
	b.eventually("the second stands by", func() bool { return ready(t, second, "/readyz") == http.StatusOK })
	require.Empty(t, second.net.Writes())
	_, metrics := get(t, second, "/metrics")
	require.NotContains(t, metrics, "thurkube_agentjobs{", "another replica works")
	var all strings.Builder
	for n := range many {
		fmt.Fprintf(
			&all,
			"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentJob, metadata: {name: job-%02d, namespace: replicas}, spec: {runtimeRef: runtime, authRef: auth, roleRef: role, prompt: work}}\n---\n",
			n,
		)
	}
	require.NoError(t, c.cluster.Apply(t.Context(), all.String()))
	b.eventually("the first is killed", first.net.Crashed)
	once := func() {
		t.Helper()
		created := map[string]int{}
		for _, r := range c.sent(t) {
			if r.Resource == "jobs" && r.Verb == "patch" && r.Code == http.StatusCreated {
				created[r.Name]++
			}
		}
		require.Len(t, created, many)
		for name, n := range created {
			require.Equal(t, 1, n, name)
		}
	}
	succeeded := func() int {
		return strings.Count(b.in("get", "aj", "-o", "jsonpath={.items[*].status.phase}"), "Succeeded")
	}
	b.eventually("all succeed", func() bool { return succeeded() == many })
	once()
	b.eventually("the second has counted them", func() bool {
		_, metrics := get(t, second, "/metrics")
		return strings.Contains(metrics, `thurkube_runs_total{outcome="Succeeded"} `) &&
			strings.Contains(metrics, `thurkube_agentjobs{phase="Succeeded",reason="Reconciled"} 40`)
	})
	first.stop()
	second.stop()

	b.in("delete", "jobs", "--all", "--timeout=60s")
	third := c.start(t, nil)
	b.eventually("the third leads", func() bool { return ready(t, third, "/readyz") == http.StatusOK })
	c.rests(b)
	before := len(c.sent(t))
	b.in("annotate", "agentruntime", "runtime", "example.com/note=1") // a pass for each
	c.rests(b)
	for _, r := range c.sent(t)[before:] {
		require.NotContains(t, []string{"create", "update", "patch", "delete"}, r.Verb, r.String())
	}
	once()
	require.Equal(t, many, succeeded())
}

// rests waits until nothing was sent for three seconds.
func (c *cell) rests(b *bench) {
	b.Helper()
	sent, since := len(c.sent(b.T)), time.Now()
	b.eventually("nothing is sent", func() bool {
		if now := len(c.sent(b.T)); now != sent {
			sent, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

// TestFaults is what becomes of a job while something between the operator and the API
// server is broken.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("long: minutes of faults")
	}
	t.Parallel()
	c := newCell(t)
	t.Run("all", func(t *testing.T) {
		for name, fault := range map[string]func(*bench){"outage": outage, "behind": behind, "unsynced": unsynced} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fault(c.bench(t, "f-"+name))
			})
		}
	})
}

// outage is D24 and C16: a config that cannot be written for a while is in the status and
// tried again, and nothing runs without it.
func outage(b *bench) {
	var away atomic.Bool
	away.Store(true)
	r := &running{net: &applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		if away.Load() && r.Writes() && r.Resource == "configmaps" {
			return applytest.Fault{Status: http.StatusInternalServerError}
		}
		return applytest.Fault{}
	}}}
	b.launch(b.T, r, b.alone)
	b.job("job", "")
	b.eventually("it is in the status", func() bool {
		return b.condition("job", "Ready", "reason") == "ApplyFailed" && b.condition("job", "Ready", "status") == "False" &&
			b.status("job", "phase") == "Pending"
	})
	require.Equal(b, http.StatusOK, ready(b.T, r, "/healthz"))
	require.Empty(b, b.created("job"))
	away.Store(false)
	b.phase("job", "Succeeded") // after the delay of half a minute
	require.Equal(b, "True", b.condition("job", "Ready", "status"))
	require.Len(b, b.created("job"), 1)
}

// behind is C1 and C9 while the watches of Jobs show nothing new: a run that starts, and
// ends, is not taken for deleted. Its outcome is recorded once they have caught up.
func behind(b *bench) {
	jobs := &watchesOfJobs{}
	r := &running{net: &applytest.Transport{}}
	b.launch(b.T, r, func(o *agentjob.Operator) {
		b.alone(o)
		o.Kubernetes.Wrap(jobs.wrap)
	})
	b.eventually("it works", func() bool { return ready(b.T, r, "/readyz") == http.StatusOK })
	jobs.held.Freeze()
	b.job("job", "")
	b.eventually("the Job has ended", func() bool {
		return b.in("get", "jobs", "-l", "thurkube.thurbeen.eu/agentjob=job", "-o", "jsonpath={.items[*].status.succeeded}") == "1"
	})
	looks := func() int {
		return len(
			slices.DeleteFunc(r.net.Requests(), func(sent applytest.Request) bool { return sent.Verb != "get" || sent.Resource != "jobs" }),
		)
	}
	before := looks()
	b.in("annotate", "aj", "job", "example.com/note=1") // a pass
	b.eventually(
		"the server is asked, or it is concluded",
		func() bool { return looks() > before || b.status("job", "lastRun.outcome") != "" },
	)
	require.Empty(b, b.status("job", "lastRun.outcome"))
	require.Equal(b, "True", b.condition("job", "Ready", "status"))
	jobs.held.Thaw()
	b.phase("job", "Succeeded")
	require.Empty(b, b.status("job", "lastRun.reason"))
	require.Len(b, b.created("job"), 1)
}

// unsynced is B7 and D25 without a Lease: the API server answers, and the process is not
// ready before all of its watches are.
func unsynced(b *bench) {
	var away atomic.Bool
	away.Store(true)
	r := &running{net: &applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		if away.Load() && r.Resource == "agentroles" {
			return applytest.Fault{Status: http.StatusInternalServerError}
		}
		return applytest.Fault{}
	}}}
	b.launch(b.T, r, b.alone)
	for range 50 {
		require.Equal(b, http.StatusServiceUnavailable, ready(b.T, r, "/readyz"))
	}
	require.Equal(b, http.StatusOK, ready(b.T, r, "/healthz"))
	away.Store(false)
	b.eventually("it is ready", func() bool { return ready(b.T, r, "/readyz") == http.StatusOK })
}

// alone restricts an operator to the namespace.
func (b *bench) alone(o *agentjob.Operator) { o.WatchNamespace, o.Alone = b.name, true }

// watchesOfJobs holds an operator's watches of Jobs, apart from its other requests.
type watchesOfJobs struct{ held applytest.Transport }

func (w *watchesOfJobs) wrap(next http.RoundTripper) http.RoundTripper {
	held := w.held.Wrap(next)
	return httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/jobs") && r.URL.Query().Has("watch") {
			return held.RoundTrip(r)
		}
		return next.RoundTrip(r)
	})
}

// TestTheServerIsAway is D24: the API server is killed, for 20 seconds or with "make
// test-long" for two minutes, while jobs start, one runs, and one has ended. The operator
// loses its Lease and lives; afterwards each job has had one run, and the schedule goes on.
func TestTheServerIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage of minutes")
	}
	t.Parallel()
	const many = 10
	away := 20 * time.Second
	if long() {
		away = 2 * time.Minute
	}
	c := newCell(t)
	b := c.bench(t, "away")
	r := c.start(t, nil)
	b.apply("AgentRuntime", "hangs", "{image: 'agent:hang', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
	b.apply("AgentJob", "runs", "{runtimeRef: hangs, authRef: auth, roleRef: role, prompt: work}")
	b.job("done", "")
	b.job("cron", ", schedule: '*/1 * * * *'")
	b.phase("runs", "Running")
	b.phase("done", "Succeeded")
	b.phase("cron", "Scheduled")
	for n := range many {
		b.job(fmt.Sprint("start-", n), "")
	}
	c.cluster.StopServer()
	for over, tick := time.After(away), time.NewTicker(100*time.Millisecond); ; {
		require.Equal(t, http.StatusOK, ready(t, r, "/healthz"))
		select {
		case <-tick.C:
			continue
		case <-over:
			tick.Stop()
		}
		break
	}
	require.NoError(t, c.cluster.StartServer(t.Context()))
	back := time.Now().Truncate(time.Second)
	for n := range many {
		b.phase(fmt.Sprint("start-", n), "Succeeded")
	}
	b.job("new", "")
	b.phase("new", "Succeeded")
	require.Equal(t, "Running", b.status("runs", "phase"))
	require.Equal(t, "Succeeded", b.status("done", "phase"))
	b.eventually("the schedule goes on", func() bool {
		at, err := time.Parse(time.RFC3339, b.status("cron", "lastRunTime"))
		return err == nil && !at.Before(back) && b.status("cron", "missedStarts") == ""
	})
	b.silent(r)
	created := map[string]int{}
	for _, sent := range c.sent(t) {
		if sent.Resource == "jobs" && sent.Verb == "patch" && sent.Code == http.StatusCreated {
			created[strings.TrimSuffix(sent.Name, sent.Name[strings.LastIndex(sent.Name, "-"):])]++
		}
	}
	want := map[string]int{"runs": 1, "done": 1, "new": 1}
	for n := range many {
		want[fmt.Sprint("start-", n)] = 1
	}
	// A server that is killed between storing a Job and writing its audit log has the Job.
	for name := range want {
		if created[name] == 0 {
			created[name] = len(
				strings.Fields(b.in("get", "jobs", "-l", "thurkube.thurbeen.eu/agentjob="+name, "-o", "jsonpath={.items[*].metadata.name}")),
			)
		}
	}
	require.Equal(t, want, created)
}

// TestUnreachable is D25: the process lives, and is not ready, until the API server is
// there.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	c := &cell{access: &rest.Config{Host: "http://127.0.0.1:1"}}
	r := c.start(t, nil)
	require.Equal(t, http.StatusOK, ready(t, r, "/healthz"))
	require.Equal(t, http.StatusServiceUnavailable, ready(t, r, "/readyz"))
}

// TestCrashes is D22: the operator is killed before and after each of its requests, for
// a one-shot and for a schedule. TRUEUP_SWEEP=all tries each, otherwise each ninth.
func TestCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a crash after each write")
	}
	t.Parallel()
	c := newCell(t)
	var worlds atomic.Int64
	sweep := applytest.Sweep{Skip: 8}
	if os.Getenv("TRUEUP_SWEEP") == "all" {
		sweep.Skip = 0
	}
	for name, more := range map[string]string{"one-shot": ", persist: false", "schedule": ", schedule: '0 0 1 1 *'"} {
		t.Run(name, func(t *testing.T) {
			sweep.Run(t, func(t *testing.T) applytest.Scenario {
				t.Helper()
				b := c.bench(t, fmt.Sprintf("w%03d", worlds.Add(1)))
				b.job("job", more)
				return applytest.Scenario{
					World: b.name, State: b.state, Run: func(ctx context.Context, net *applytest.Transport) error { return b.converges(ctx, net) },
				}
			})
		})
	}
}

// converges runs an operator of the namespace until the job is done and the operator
// rests.
func (b *bench) converges(ctx context.Context, net *applytest.Transport) error {
	r := &running{net: net}
	//nolint:contextcheck // it ends with the call
	b.launch(b.T, r, b.alone)
	defer r.stop()
	deadline := time.Now().Add(time.Minute)
	sent, since := 0, time.Now()
	for time.Now().Before(deadline) && ctx.Err() == nil && !net.Crashed() {
		phase, err := b.cluster.Kubectl(ctx, "get", "aj", "job", "-n", b.name, "-o", "jsonpath={.status.phase}")
		if now := len(net.Requests()); now != sent || err != nil || phase != "Succeeded" && phase != "Scheduled" {
			sent, since = now, time.Now()
		}
		if time.Since(since) > time.Second {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s did not converge", b.name)
}

// state is what there is at the end, without what differs by chance.
func (b *bench) state(ctx context.Context) (string, error) {
	children, err := b.cluster.Kubectl(ctx, "get", "cm,sa,job,cronjob,pvc", "-n", b.name, "-l", "thurkube.thurbeen.eu/agentjob=job",
		"-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.finalizers}{\"\\n\"}{end}")
	if err != nil {
		return "", err
	}
	status, err := b.cluster.Kubectl(ctx, "get", "aj", "job", "-n", b.name,
		"-o", "jsonpath={.status.phase} {.status.configHash} {.status.lastRun.outcome} {.status.lastRun.job} {.status.owned}")
	if err != nil {
		return "", err
	}
	all, err := b.cluster.Requests(account)
	if err != nil {
		return "", err
	}
	runs := 0
	for _, r := range all {
		if r.Namespace == b.name && r.Resource == "jobs" && r.Verb == "patch" && r.Code == http.StatusCreated {
			runs++
		}
	}
	return fmt.Sprintf("%s%s\n%d runs\n", children, status, runs), nil
}
