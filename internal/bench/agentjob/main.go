package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func main() {
	ctx, stop := benchfigures.Interrupted()
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	book benchfigures.Book

	operator string // the program
	jobs     int
	rounds   int
	wakes    int
	runs     int
	rest     time.Duration

	ours, peer *contender
}

func run(ctx context.Context) error {
	b := &bench{book: benchfigures.Book{Out: os.Stdout}}
	flag.StringVar(&b.operator, "operator", "bin/agentjob", "the program built from cmd/agentjob")
	flag.IntVar(&b.jobs, "jobs", 1_000, "AgentJobs with a schedule, of each operator")
	flag.IntVar(&b.rounds, "rounds", 5, "changes of the image, of which the median is taken")
	flag.IntVar(&b.wakes, "wakes", 200, "changes of a reference of one job")
	flag.IntVar(&b.runs, "runs", 100, "AgentJobs that run once")
	flag.DurationVar(
		&b.rest,
		"rest",
		150*time.Second,
		"how long both rest before their memory is read: the runtime collects garbage at least every two minutes",
	)
	asPeer := flag.Bool("peer", false, "for internal use: be the peer")
	kubeconfig := flag.String("peer-kubeconfig", "", "for internal use: its access") // controller-runtime has a flag kubeconfig
	health := flag.String("peer-health", "0", "for internal use: the address of its /readyz")
	flag.Parse()
	log.SetLogger(logr.Discard()) //nolint:forbidigo // where controller-runtime logs
	klog.SetLogger(logr.Discard())
	if *asPeer {
		config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
		if err != nil {
			return err
		}
		return runPeer(ctx, config, peerName, *health)
	}
	if err := errors.Join(
		benchfigures.AtLeast("jobs", b.jobs, 10), benchfigures.AtLeast("rounds", b.rounds, 1), benchfigures.AtLeast("wakes", b.wakes, 10),
		benchfigures.AtLeast("runs", b.runs, 10), benchfigures.AtLeast("rest", b.rest, time.Second),
	); err != nil {
		return err
	}
	cluster, err := kubetest.Run(ctx, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := b.contenders(ctx, cluster); err != nil {
		return err
	}
	defer b.ours.stop()
	defer b.peer.stop()
	for _, stage := range []struct {
		name    string
		measure func(context.Context) error
	}{{"idle", b.idle}, {"create", b.create}, {"converge", b.converge}, {"memory", b.memory}, {"wake", b.wake}, {"completion", b.completion}} {
		begun := time.Now()
		if err := stage.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", stage.name, time.Since(begun).Round(time.Second))
	}
	return b.report()
}

func (b *bench) contenders(ctx context.Context, cluster *kubetest.Cluster) error {
	author := rest.CopyConfig(cluster.Config)
	author.UserAgent = "author" // a field manager of its own: this program is the peer, too
	admin, err := dynamic.NewForConfig(author)
	if err != nil {
		return err
	}
	manifests, err := exec.CommandContext(ctx, b.operator, "manifests", "--image", "agentjob").Output()
	if err != nil {
		return fmt.Errorf("%s: %w", b.operator, err)
	}
	const rights = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: peer, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: peer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: peer, namespace: default}]
`
	if err := errors.Join(cluster.Apply(ctx, string(manifests)), cluster.Apply(ctx, rights)); err != nil {
		return err
	}
	for _, plural := range []string{"agentjobs", "agentruntimes", "agentauths", "agentroles"} {
		if err := established(ctx, admin, agents(plural)); err != nil {
			return err
		}
	}
	b.ours, err = start(
		ctx,
		cluster,
		admin,
		"trueup",
		b.wakes,
		types.NamespacedName{Namespace: "thurkube-system", Name: "thurkube"},
		func(kubeconfig string) *exec.Cmd {
			return exec.CommandContext(
				ctx,
				b.operator,
				"--kubeconfig",
				kubeconfig,
				"--watch-namespace",
				"trueup",
				"--leader-elect=false",
				"--health-probe-bind-address",
				"127.0.0.1:0",
				"--log-level",
				"error",
			)
		},
	)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.peer, err = start(
		ctx,
		cluster,
		admin,
		peerName,
		b.wakes,
		types.NamespacedName{Namespace: "default", Name: "peer"},
		func(kubeconfig string) *exec.Cmd {
			return exec.CommandContext(ctx, self, "-peer", "-peer-kubeconfig", kubeconfig)
		},
	)
	return err
}
