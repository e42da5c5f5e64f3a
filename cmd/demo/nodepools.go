package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	ec2cloud "github.com/seed-9e1ffd66/trueup/cloud/aws"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/machines"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

//go:embed nodepools.yaml
var nodePoolManifests string

// What the machines of the demo need.
const (
	powerOn     = 200 * time.Millisecond // from pending to running
	machineBoot = 2 * time.Second
	burst       = 1000 // pods at a time
)

// nodePools is a demo of the node-pool operator: a pool fills, pods that nothing has room
// for get machines, which go back to standby, the pool is resized, and many pods come at a
// time.
type nodePools struct {
	operatorDemo

	ec2     *ec2test.Server
	client  *ec2.Client
	metrics string
	sampler sampler
	stop    func()
}

func nodePoolsCommand() *cobra.Command {
	n := nodePools{
		operatorDemo: operatorDemo{
			program:   "nodepool",
			namespace: "stratos-system",
			account:   "stratos",
			limit:     2 * limit,
			look:      "get nodepools,nodes",
		},
	}
	steps := []func(context.Context) error{n.start, n.fill, n.scaleUp, n.scaleDown, n.resize, n.rest, n.burst, n.draw}
	return n.command(
		"nodepools",
		"Show the node-pool operator at work on a real Kubernetes, with machines of an emulated EC2",
		steps,
		nil,
		n.end,
	)
}

// end ends what the demo runs beside the operator.
func (n *nodePools) end() {
	if n.stop != nil {
		n.stop()
	}
	if n.ec2 != nil {
		n.ec2.Stop()
	}
}

func (n *nodePools) draw(context.Context) error {
	const picture = "nodepool-demo.svg"
	if err := os.WriteFile(picture, n.sampler.picture(), 0o600); err != nil {
		return err
	}
	n.demo.display.print("The machines by state over time: " + picture)
	return nil
}

func (n *nodePools) start(ctx context.Context) error {
	d := &n.demo
	d.display.step("Kubernetes and EC2")
	var err error
	if d.kube.cluster, err = kubetest.Run(ctx, kubetest.Options{Controllers: true, Scheduler: true, Progress: d.display}); err != nil {
		return err
	}
	if n.ec2, err = ec2test.Run(ctx, ec2test.Options{Transition: powerOn}); err != nil {
		return err
	}
	config := aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(n.ec2.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "demo", SecretAccessKey: "demo"}, nil
		}),
	}
	n.client = ec2cloud.NewClient(config, nil)
	if _, err := iam.NewFromConfig(config).
		CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("nodes")}); err != nil {
		return err
	}
	simulator := &machines.Simulator{
		EC2:        n.client,
		Kubernetes: d.kube.cluster.Config,
		Boot:       machineBoot,
		Warmup:     time.Second,
		Pull:       100 * time.Millisecond,
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- simulator.Start(running) }()
	if n.sampler.client, err = kubernetes.NewForConfig(d.kube.cluster.Config); err != nil {
		cancel()
		return errors.Join(err, <-done)
	}
	n.sampler.began = time.Now()
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		n.sampler.start(running)
	}()
	n.stop = func() {
		cancel()
		<-done
		<-counted
	}
	d.display.done("%s, %s", d.kube.cluster.Config.Host, n.ec2.URL)
	return n.startOperator(ctx)
}

// startOperator runs it beside the cluster: as a pod it would wait for a machine.
func (n *nodePools) startOperator(ctx context.Context) error {
	if err := n.install(ctx, "--cluster-name", "demo"); err != nil {
		return err
	}
	env := []string{
		"AWS_ENDPOINT_URL=" + n.ec2.URL,
		"AWS_ACCESS_KEY_ID=demo",
		"AWS_SECRET_ACCESS_KEY=demo",
		"AWS_REGION=us-east-1",
		"STRATOS_CLUSTER_NAME=demo",
	}
	err := n.begin(ctx, env, "--health-probe-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--cluster-endpoint", "https://demo.example.com", "--cluster-ca", "Yw==", "--cluster-cidr", "10.100.0.0/16")
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		for line := range strings.Lines(n.operator.Tail()) {
			if strings.Contains(line, `"for":"metrics"`) {
				_, address, _ := strings.Cut(line, `"address":"`)
				n.metrics, _, _ = strings.Cut(address, `"`)
			}
		}
		return n.metrics != "", nil
	})
}

// pool applies a pool and its class.
func (n *nodePools) pool(ctx context.Context, size, standby int) error {
	subnets, err := n.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
	if err != nil {
		return err
	}
	groups, err := n.client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return err
	}
	replace := strings.NewReplacer(
		"SUBNETS",
		*subnets.Subnets[0].SubnetId+", "+*subnets.Subnets[1].SubnetId,
		"GROUP",
		*groups.SecurityGroups[0].GroupId,
		"SIZE",
		fmt.Sprint(size),
		"STANDBY",
		fmt.Sprint(standby),
	)
	return n.demo.kube.cluster.Apply(ctx, replace.Replace(nodePoolManifests))
}

// becomes shows the pool as "kubectl get np -w" would, until so many of its machines are on
// standby and run.
func (n *nodePools) becomes(ctx context.Context, standby, running int) error {
	return until(ctx, func() (bool, error) {
		row, err := n.kubectl(ctx, "get", "np", "web", "-o", "jsonpath={.status.warmup} {.status.standby} {.status.running}")
		if err != nil {
			return false, err
		}
		var w, s, r int
		_, _ = fmt.Sscan(row, &w, &s, &r) // all zero until there is a status
		n.demo.display.progress("%d warming up, %d on standby, %d running", w, s, r)
		return s == standby && r == running, nil
	})
}

func (n *nodePools) fill(ctx context.Context) error {
	n.demo.display.step("A pool")
	if err := errors.Join(n.pool(ctx, 8, 4), n.becomes(ctx, 4, 0)); err != nil {
		return err
	}
	n.demo.display.done("4 machines were launched, joined, pulled their images and stopped themselves")
	return nil
}

// pods makes pods, and returns when they were all waiting and when they all had a Node.
func (n *nodePools) pods(ctx context.Context, name string, count int, requests string) (waiting, bound time.Time, err error) {
	err = n.demo.kube.cluster.Apply(ctx, fmt.Sprintf(
		"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: %s, namespace: default}, spec: {replicas: %d, selector: {matchLabels: {app: %s}}, template: {metadata: {labels: {app: %s}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: web, resources: {requests: {%s}}}]}}}}",
		name,
		count,
		name,
		name,
		requests,
	))
	if err != nil {
		return waiting, bound, err
	}
	client, err := kubernetes.NewForConfig(n.demo.kube.cluster.Config)
	if err != nil {
		return waiting, bound, err
	}
	err = until(ctx, func() (bool, error) {
		list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
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

func (n *nodePools) scaleUp(ctx context.Context) error {
	n.demo.display.step("Pods")
	waiting, bound, err := n.pods(ctx, "web", 10, "cpu: 500m, memory: 2Gi")
	if err != nil {
		return err
	}
	beyond := bound.Sub(waiting) - machineBoot - powerOn
	if err := n.becomes(ctx, 4, 2); err != nil {
		return err
	}
	n.demo.display.done(
		"10 pods run on 2 machines that were on standby, %.2f s after they were found unschedulable; 2 more warm up",
		bound.Sub(waiting).Seconds(),
	)
	n.demo.note(
		"nodepool_pending_to_running_minus_boot_s",
		max(beyond.Seconds(), 0),
		"s",
		"from pods that nothing has room for to pods on machines, without the %s of the boot",
		machineBoot+powerOn,
	)
	return n.stages(ctx)
}

func (n *nodePools) scaleDown(ctx context.Context) error {
	n.demo.display.step("Back to standby")
	if _, err := n.kubectl(ctx, "delete", "rs", "web", "--cascade=foreground", "--timeout=60s"); err != nil {
		return err
	}
	if err := n.becomes(ctx, 6, 0); err != nil {
		return err
	}
	n.demo.display.done("the machines were empty, were drained and stopped")
	return nil
}

func (n *nodePools) resize(ctx context.Context) error {
	n.demo.display.step("A smaller pool")
	if err := errors.Join(n.pool(ctx, 5, 3), n.becomes(ctx, 5, 0)); err != nil {
		return err
	}
	n.demo.display.done("one standby machine too many was terminated")
	return nil
}

// rest counts what the operator writes in some seconds once it has nothing to do.
func (n *nodePools) rest(ctx context.Context) error {
	const quiet = 12 * time.Second // more than two looks at the machines
	n.demo.display.step("Rest")
	written := func() (count int, err error) {
		all, err := n.demo.kube.cluster.Requests(n.user())
		for _, r := range all {
			if r.Resource != "leases" && r.Verb != "watch" && r.Verb != "list" && r.Verb != "get" {
				count++
			}
		}
		return count, err
	}
	before, since := 0, time.Now()
	err := until(ctx, func() (bool, error) {
		now, err := written()
		if now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > quiet/2, err
	})
	if err != nil {
		return err
	}
	start := time.Now()
	err = until(ctx, func() (bool, error) { return time.Since(start) > quiet, nil })
	after, countErr := written()
	if err := errors.Join(err, countErr); err != nil {
		return err
	}
	n.demo.display.done("%d writes in %s", after-before, quiet)
	n.demo.note("nodepool_writes_at_rest", float64(after-before), "writes", "writes in %s at rest", quiet)
	return nil
}

// burst lets many pods come at a time, and says how soon the cloud is asked for machines.
func (n *nodePools) burst(ctx context.Context) error {
	n.demo.display.step("A burst")
	const machinesWanted = 32
	if err := errors.Join(n.pool(ctx, machinesWanted+2, machinesWanted), n.becomes(ctx, machinesWanted, 0)); err != nil {
		return err
	}
	if _, _, err := n.pods(ctx, "burst", burst, "cpu: 100m"); err != nil {
		return err
	}
	p99, err := n.quantile(ctx, "stratos_nodepool_scaleup_stage_duration_seconds", "decision", .99)
	if err != nil {
		return err
	}
	n.demo.display.done("%d pods have machines", burst)
	n.demo.note(
		"nodepool_start_p99_ms",
		1000*p99,
		"ms",
		"from an unschedulable pod to the call that starts its machine, at a burst of %d pods",
		burst,
	)
	return n.stages(ctx)
}
