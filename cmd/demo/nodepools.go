package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

//go:embed nodepools.yaml
var nodePoolManifests string

const (
	standby = 32   // machines of the pool, minStandby in nodepools.yaml
	burst   = 1000 // pods at a time
)

// nodePools is the demo of the node-pool operator: pods that nothing has room for get
// machines, which go back to standby.
type nodePools struct {
	demo     *demo
	machines cloud.Provider
	user     string // of the operator
	metrics  string // address of the operator's
}

func nodePoolsCommand() *cobra.Command {
	n := nodePools{demo: newDemo()}
	return n.demo.command(story{
		use:        "nodepools",
		short:      "Show the node-pool operator at work on a real Kubernetes, with machines that are processes",
		programs:   []string{"nodepool"},
		kubernetes: kubetest.Options{Controllers: true, Scheduler: true},
		limit:      6 * time.Minute,
		stages: []stage{
			{"Cloud", n.startCloud},
			{"Operator", n.start},
			{"A pool", n.fill},
			{"Pods", n.scaleUp},
			{"Back to standby", n.scaleDown},
			{"Rest", n.rest},
			{"A burst", n.burst},
		},
		end: []stage{{"The end", n.remove}},
		look: func() []string {
			return []string{
				n.demo.see() + "get nodepools,nodes",
				n.demo.see() + "delete rs burst    # and see the machines stop",
				"curl http://" + n.metrics + "/metrics",
			}
		},
	})
}

func (n *nodePools) startCloud(context.Context) (string, error) {
	machines, err := localMachines(filepath.Join(n.dir(), operator.LocalRegion))
	if err != nil {
		return "", err
	}
	n.machines = machines
	n.demo.ends = append(n.demo.ends, n.endMachines)
	return "this machine: each of the pool's is a process with a Node", nil
}

// dir is the folder of machines that are processes.
func (n *nodePools) dir() string { return filepath.Join(n.demo.dir, "machines") }

// endMachines ends what a demo that was kept or has failed leaves: machines outlive their
// operator.
func (n *nodePools) endMachines(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		all, err := n.machines.ListInstances(ctx, nil)
		for _, i := range all {
			err = errors.Join(err, n.machines.TerminateInstance(ctx, i.ID))
		}
		return len(all) == 0, err
	})
}

// start runs the operator beside the cluster: as a pod it would wait for a machine.
func (n *nodePools) start(ctx context.Context) (_ string, err error) {
	// The machines have the rights of kubelets, which the operator does not need.
	n.user, n.metrics, err = n.demo.operator(ctx, "nodepool", []string{"--cluster-name", "demo", "--region", "us-east-1"}, nil,
		"--cluster-name", "demo", "--cloud-provider", "local", "--local-directory", n.dir(), "--local-kubeconfig", n.demo.cluster.Kubeconfig)
	return "nodepool runs as " + n.user, err
}

// has waits until so many machines of the pool are on standby and run. A status that was
// always zero is absent.
func (n *nodePools) has(ctx context.Context, standby, running int) error {
	return until(ctx, func() (bool, error) {
		counts, err := n.demo.kubectl(ctx, "get np web -o jsonpath=standby:{.status.standby},running:{.status.running}")
		n.demo.display.progress("%s", counts)
		have := strings.ReplaceAll(counts+",", ":,", ":0,")
		return have == fmt.Sprintf("standby:%d,running:%d,", standby, running), err
	})
}

func (n *nodePools) fill(ctx context.Context) (string, error) {
	if err := n.demo.cluster.Apply(ctx, nodePoolManifests); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d machines were launched, joined, pulled their images and stopped themselves", standby), n.has(ctx, standby, 0)
}

// pods makes pods, and returns when they were all waiting and when they all had a Node.
func (n *nodePools) pods(ctx context.Context, name string, count int, requests string) (waiting, bound time.Time, err error) {
	if err := n.demo.cluster.Apply(ctx, fmt.Sprintf(`apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: web, resources: {requests: {%[3]s}}}]}
`, name, count, requests)); err != nil {
		return waiting, bound, err
	}
	err = until(ctx, func() (bool, error) {
		list, err := n.demo.typed.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return false, err
		}
		placed, refused := 0, 0
		for i := range list.Items {
			switch p := &list.Items[i]; {
			case p.Spec.NodeName != "":
				placed++
			case cloudkube.Unschedulable(p):
				refused++
			}
		}
		if waiting.IsZero() && placed+refused >= count {
			waiting = time.Now()
		}
		n.demo.display.progress("%d of %d pods have a machine", placed, count)
		return placed == count, nil
	})
	return waiting, time.Now(), err
}

func (n *nodePools) scaleUp(ctx context.Context) (string, error) {
	waiting, bound, err := n.pods(ctx, "web", 10, "cpu: 500m, memory: 2Gi")
	if err != nil {
		return "", err
	}
	took := bound.Sub(waiting)
	n.demo.note("nodepool_local_pending_to_running_s", took.Seconds(), "s")
	return fmt.Sprintf("10 pods run on 2 machines that were on standby, %.2f s after they were found unschedulable", took.Seconds()),
		n.has(ctx, standby, 2)
}

func (n *nodePools) scaleDown(ctx context.Context) (string, error) {
	if _, err := n.demo.kubectl(ctx, "delete rs web --cascade=foreground --timeout=60s"); err != nil {
		return "", err
	}
	return "the machines were empty, were drained and stopped", n.has(ctx, standby+2, 0)
}

func (n *nodePools) rest(ctx context.Context) (string, error) {
	const window = 12 * time.Second // more than two looks at the machines
	return n.demo.rest(ctx, "nodepool_writes_at_rest", "writes to the API server", window,
		func() (int, error) { return n.demo.requests(aWrite, n.user) })
}

// burst lets many pods come at a time.
func (n *nodePools) burst(ctx context.Context) (string, error) {
	if _, _, err := n.pods(ctx, "burst", burst, "cpu: 100m"); err != nil {
		return "", err
	}
	p99, err := n.decision(ctx, .99)
	n.demo.note("nodepool_start_p99_ms", 1000*p99, "ms")
	return fmt.Sprintf("%d pods have machines", burst), err
}

const scaleUpStages = "stratos_nodepool_scaleup_stage_duration_seconds"

// decision estimates, as Prometheus does, a quantile of the time from a pod to the call that
// starts its machine, from the histogram of the operator.
func (n *nodePools) decision(ctx context.Context, q float64) (float64, error) {
	samples, err := scrape(ctx, n.metrics)
	if err != nil {
		return 0, err
	}
	var bounds, counts []float64 // of the buckets, as they are sorted
	for _, s := range samples {
		if s.Metric["__name__"] != scaleUpStages+"_bucket" || s.Metric["stage"] != "decision" {
			continue
		}
		bound, err := strconv.ParseFloat(string(s.Metric["le"]), 64)
		if err != nil {
			return 0, err
		}
		bounds, counts = append(bounds, bound), append(counts, float64(s.Value))
	}
	from, below := 0.0, 0.0
	for i, count := range counts {
		if rank := q * counts[len(counts)-1]; count >= rank && count > below {
			if math.IsInf(bounds[i], 1) {
				return from, nil
			}
			return from + (bounds[i]-from)*(rank-below)/(count-below), nil
		}
		from, below = bounds[i], count
	}
	return 0, errors.New("the histogram has no time of a decision")
}

// remove deletes the pods and the pool until no machine is left.
func (n *nodePools) remove(ctx context.Context) (string, error) {
	for _, args := range []string{"delete rs burst --cascade=foreground --timeout=120s", "delete np web --timeout=120s"} {
		if _, err := n.demo.kubectl(ctx, "%s", args); err != nil {
			return "", err
		}
	}
	return "the pool was deleted: no machine and no Node is left", until(ctx, func() (bool, error) {
		all, err := n.machines.ListInstances(ctx, nil)
		if err != nil {
			return false, err
		}
		left := slices.DeleteFunc(all, func(i cloud.Instance) bool { return i.State == cloud.InstanceTerminated })
		nodes, err := n.demo.kubectl(ctx, "get nodes -o name")
		return len(left)+len(strings.Fields(nodes)) == 0, err
	})
}
