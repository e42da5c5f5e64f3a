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

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

//go:embed agentjobs.yaml
var agentJobManifests string

// agentJobs is the demo of the agent-run operator.
type agentJobs struct {
	demo *demo
	user string // of the operator
}

func agentJobsCommand() *cobra.Command {
	a := agentJobs{demo: newDemo()}
	return a.demo.command(story{
		use:        "agentjobs",
		short:      "Show the agent-run operator at work on a real Kubernetes",
		programs:   []string{"agentjob"},
		kubernetes: kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2},
		stages:     []stage{{"Operator", a.start}, {"A run", a.run}, {"Rights", a.rights}, {"Rest", a.rest}},
		end:        []stage{{"The end", a.remove}},
		look: func() []string {
			return []string{
				a.demo.see() + "get agentjobs,jobs,pods -n agents",
				a.demo.see() + "describe agentjob census -n agents",
				a.demo.see() + "delete clusterrolebinding -l " + ofJobs + "    # and see it come back",
			}
		},
	})
}

// ofJobs selects the objects of the cluster that the operator makes for jobs.
const ofJobs = "app.kubernetes.io/managed-by=thurkube"

func (a *agentJobs) start(ctx context.Context) (_ string, err error) {
	if a.user, _, err = a.demo.operator(ctx, "agentjob", nil, nil); err != nil {
		return "", err
	}
	return "agentjob runs as " + a.user, a.demo.cluster.Apply(ctx, agentJobManifests)
}

// run asks for a run with rights on the cluster, and waits until it has succeeded.
func (a *agentJobs) run(ctx context.Context) (string, error) {
	if err := a.demo.cluster.Apply(ctx, `apiVersion: thurkube.thurbeen.eu/v1alpha1
kind: AgentJob
metadata: {name: census, namespace: agents}
spec: {runtimeRef: claude, authRef: anthropic, roleRef: reader, clusterAccessRef: nodes, prompt: Count the nodes.}
`); err != nil {
		return "", err
	}
	if err := a.demo.becomes(ctx, "Succeeded", "get aj census -n agents -o jsonpath={.status.phase}"); err != nil {
		return "", err
	}
	return a.demo.kubectl(ctx, "get aj census -n agents -o jsonpath={range.status.owned[*]}{.kind},{end}exit-code={.status.lastRun.exitCode}")
}

const account = "--as=system:serviceaccount:agents:census-runner"

// rights deletes what gives the job its rights, which comes back.
func (a *agentJobs) rights(ctx context.Context) (string, error) {
	binding := "get clusterrolebinding -o name -l " + ofJobs
	before, err := a.demo.kubectl(ctx, "%s", binding)
	if err != nil {
		return "", err
	}
	before = strings.TrimSpace(before)
	start := time.Now()
	if _, err := a.demo.kubectl(ctx, "delete %s", before); err != nil {
		return "", err
	}
	if err := a.demo.becomes(ctx, before, "%s", binding); err != nil {
		return "", err
	}
	took := time.Since(start)
	if _, err := a.demo.kubectl(ctx, "auth can-i list nodes "+account); err != nil {
		return "", fmt.Errorf("it may not list nodes: %w", err)
	}
	if _, err := a.demo.kubectl(ctx, "auth can-i list secrets "+account); err == nil {
		return "", errors.New("it may list Secrets")
	}
	return fmt.Sprintf("its binding was deleted and is back after %s: it may list nodes, and no Secrets", took.Round(time.Millisecond)), nil
}

func (a *agentJobs) rest(ctx context.Context) (string, error) {
	return a.demo.rest(ctx, "agentjob_requests_at_rest", "requests to the API server", 5*time.Second,
		func() (int, error) { return a.demo.requests(nil, a.user) })
}

func (a *agentJobs) remove(ctx context.Context) (string, error) {
	if _, err := a.demo.kubectl(ctx, "delete aj --all -n agents --timeout=60s"); err != nil {
		return "", err
	}
	left, err := a.demo.kubectl(ctx, "get clusterroles,clusterrolebindings -o name -l "+ofJobs)
	if err != nil {
		return "", err
	}
	runs, err := a.demo.requests(func(r kubetest.Request) bool {
		return r.Resource == "jobs" && r.Verb == "patch" && r.Code == http.StatusCreated
	}, a.user)
	objects := len(strings.Fields(left))
	a.demo.note("agentjob_runs_per_hash_max", float64(runs), "runs")
	a.demo.note("agentjob_cluster_objects_left", float64(objects), "objects")
	return fmt.Sprintf("the job was deleted: it ran %d time, and %d roles and bindings of it are left", runs, objects), err
}
