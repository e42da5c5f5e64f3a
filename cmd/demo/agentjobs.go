package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

//go:embed agentjobs.yaml
var agentJobManifests string

// agentJobs is a demo of the agent-run operator: a run, a change of its prompt, one with
// rights, a schedule, and the end of all.
type agentJobs struct{ operatorDemo }

func agentJobsCommand() *cobra.Command {
	a := agentJobs{
		operatorDemo{program: "agentjob", namespace: "thurkube-system", account: "thurkube", limit: limit, look: "get aj -n agents"},
	}
	steps := []func(context.Context) error{a.start, a.oneRun, a.changed, a.withRights, a.scheduled, a.rest}
	return a.command("agentjobs", "Show the agent-run operator at work on a real Kubernetes", steps, a.removed, func() {})
}

func (a *agentJobs) start(ctx context.Context) error {
	d := &a.demo
	d.display.step("Kubernetes")
	var err error
	if d.kube.cluster, err = kubetest.Run(
		ctx,
		kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2, Progress: d.display},
	); err != nil {
		return err
	}
	d.display.done("%s", d.kube.cluster.Config.Host)
	if err := a.install(ctx); err != nil {
		return err
	}
	if err := d.kube.cluster.Apply(ctx, agentJobManifests); err != nil {
		return err
	}
	return a.begin(ctx, nil, "--health-probe-bind-address", "127.0.0.1:0")
}

// job applies an AgentJob with a prompt and further fields.
func (a *agentJobs) job(ctx context.Context, name, prompt, more string) error {
	return a.demo.kube.cluster.Apply(ctx, fmt.Sprintf(
		"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentJob, metadata: {name: %s, namespace: agents}, spec: {runtimeRef: claude, authRef: anthropic, roleRef: reader, prompt: %q%s}}\n",
		name,
		prompt,
		more,
	))
}

// becomes shows the job as "kubectl get aj -w" would, until a field of its status is as
// wanted.
func (a *agentJobs) becomes(ctx context.Context, name, path, want string) error {
	return until(ctx, func() (bool, error) {
		row, err := a.kubectl(ctx, "get", "aj", name, "-n", "agents", "--no-headers")
		if err != nil {
			return false, err
		}
		a.demo.display.progress("%s", strings.Join(strings.Fields(row), "  "))
		have, err := a.kubectl(ctx, "get", "aj", name, "-n", "agents", "-o", "jsonpath={.status."+path+"}")
		return have != "" && (want == "" || have == want), err
	})
}

func (a *agentJobs) oneRun(ctx context.Context) error {
	a.demo.display.step("One run")
	if err := errors.Join(a.job(ctx, "review", "Review the last commit.", ""), a.becomes(ctx, "review", "phase", "Succeeded")); err != nil {
		return err
	}
	owned, err := a.kubectl(
		ctx,
		"get",
		"aj",
		"review",
		"-n",
		"agents",
		"-o",
		"jsonpath={range .status.owned[*]}{.kind} {end}exit code {.status.lastRun.exitCode}",
	)
	a.demo.display.done("%s", owned)
	return err
}

func (a *agentJobs) changed(ctx context.Context) error {
	a.demo.display.step("Another prompt")
	before, err := a.kubectl(ctx, "get", "aj", "review", "-n", "agents", "-o", "jsonpath={.status.configHash}")
	if err != nil {
		return err
	}
	if err := a.job(ctx, "review", "Review the last two commits.", ""); err != nil {
		return err
	}
	err = until(ctx, func() (bool, error) {
		now, err := a.kubectl(ctx, "get", "aj", "review", "-n", "agents", "-o", "jsonpath={.status.configHash} {.status.phase}")
		return !strings.HasPrefix(now, before) && strings.HasSuffix(now, " Succeeded"), err
	})
	if err != nil {
		return err
	}
	runs, err := a.runs()
	a.demo.display.done("config %s is another, %d runs so far", before, len(runs))
	return err
}

// runs returns how often the Job of each run was created, by the audit log.
func (a *agentJobs) runs() (map[string]int, error) {
	all, err := a.demo.kube.cluster.Requests(a.user())
	created := map[string]int{}
	for _, r := range all {
		if r.Resource == "jobs" && r.Verb == "patch" && r.Code == http.StatusCreated {
			created[r.Name]++
		}
	}
	return created, err
}

func (a *agentJobs) withRights(ctx context.Context) error {
	a.demo.display.step("Rights")
	if err := errors.Join(
		a.job(ctx, "census", "Count the nodes.", ", clusterAccessRef: nodes"),
		a.becomes(ctx, "census", "phase", "Succeeded"),
	); err != nil {
		return err
	}
	const account = "--as=system:serviceaccount:agents:census-runner"
	if _, err := a.kubectl(ctx, "auth", "can-i", "list", "nodes", account); err != nil {
		return fmt.Errorf("it may not list nodes: %w", err)
	}
	if _, err := a.kubectl(ctx, "auth", "can-i", "list", "secrets", account); err == nil {
		return errors.New("it may list Secrets")
	}
	a.demo.display.done("its account may list nodes, and no Secrets")
	return nil
}

func (a *agentJobs) scheduled(ctx context.Context) error {
	a.demo.display.step("A schedule")
	if err := errors.Join(
		a.job(ctx, "digest", "Write the digest.", ", schedule: '*/1 * * * *', timezone: Europe/Berlin"),
		a.becomes(ctx, "digest", "lastSuccessfulTime", ""),
	); err != nil {
		return err
	}
	at, err := a.kubectl(ctx, "get", "aj", "digest", "-n", "agents", "-o", "jsonpath={.status.lastSuccessfulTime}")
	if err != nil {
		return err
	}
	a.demo.display.done("it ran at %s", at)
	// Its next runs would be no rest.
	return errors.Join(
		a.job(ctx, "digest", "Write the digest.", ", schedule: '*/1 * * * *', suspend: true"),
		a.becomes(ctx, "digest", "phase", "Suspended"),
	)
}

// rest counts what the operator sends in five seconds once it has nothing to do.
func (a *agentJobs) rest(ctx context.Context) error {
	const quiet = 5 * time.Second
	a.demo.display.step("Rest")
	sent := func() (n int, err error) {
		all, err := a.demo.kube.cluster.Requests(a.user())
		for _, r := range all {
			if r.Resource != "leases" && r.Verb != "watch" {
				n++
			}
		}
		return n, err
	}
	before, since := 0, time.Now()
	err := until(ctx, func() (bool, error) {
		now, err := sent()
		if now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > quiet, err
	})
	if err != nil {
		return err
	}
	from := before
	err = until(ctx, func() (bool, error) { return time.Since(since) > 2*quiet, nil })
	after, countErr := sent()
	if err := errors.Join(err, countErr); err != nil {
		return err
	}
	a.demo.display.done("%d requests to the API server in %s", after-from, quiet)
	a.demo.note("agentjob_requests_at_rest", float64(after-from), "requests", "requests to the API server in %s at rest", quiet)
	return nil
}

func (a *agentJobs) removed(ctx context.Context) error {
	a.demo.display.step("The end")
	if _, err := a.kubectl(ctx, "delete", "aj", "--all", "-n", "agents", "--timeout=60s"); err != nil {
		return err
	}
	left, err := a.kubectl(ctx, "get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/managed-by=thurkube", "-o", "name")
	if err != nil {
		return err
	}
	runs, err := a.runs()
	if err != nil {
		return err
	}
	most := 0
	for _, n := range runs {
		most = max(most, n)
	}
	a.demo.display.done("no role or binding of a job is left")
	a.demo.note("agentjob_runs_per_hash_max", float64(most), "runs", "runs at most of what was asked for once")
	a.demo.note("agentjob_cluster_objects_left", float64(len(strings.Fields(left))), "objects", "objects of the cluster left by deleted jobs")
	return nil
}
