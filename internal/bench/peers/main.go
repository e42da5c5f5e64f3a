package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	*world
	book benchfigures.Book

	objects  int // of trueup, in the sweep
	peers    int // objects of each peer, at rest
	created  int // objects of each contender in a round of creations
	edits    int
	watched  int // objects in memory
	parents  int // of each operator, with ten children each
	rounds   int
	operator string // the program that is measured, if any
	wrangler string // the program that measures it, if any
	stages   []string
}

func run(ctx context.Context) error {
	b := &bench{book: benchfigures.Book{Out: os.Stdout}}
	flag.IntVar(&b.objects, "objects", 10_000, "objects in a sweep of trueup")
	flag.IntVar(&b.peers, "peer-objects", 500, "objects of each peer at rest")
	flag.IntVar(&b.created, "created", 1_000, "objects that each contender creates in a round")
	flag.IntVar(&b.edits, "edits", 300, "foreign edits that are repaired")
	flag.IntVar(&b.watched, "watched", 100_000, "objects watched when memory is measured; 0 leaves it out")
	flag.IntVar(&b.parents, "parents", 1_000, "parents of each operator, with ten children each")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of which the median is taken")
	flag.StringVar(&b.operator, "operator", "", "the program built from examples/operator; empty leaves it out")
	flag.StringVar(&b.wrangler, "wrangler", "", "the program built from internal/bench/wrangler; empty leaves it out")
	stages := flag.String("stages", "rest,create,drift,parts,embedded,operator,wrangler,memory", "what to measure")
	hold := flag.String("hold", "", "for internal use: hold objects in memory and report")
	address := flag.String("address", "", "for internal use: the server of the objects to hold")
	flag.Parse()

	log.SetLogger(logr.Discard()) //nolint:forbidigo // where controller-runtime and flux log
	klog.SetLogger(logr.Discard())
	if *hold != "" {
		return holdObjects(ctx, *hold, *address, b.watched)
	}
	begun := time.Now()
	b.load("begin")
	cluster, err := kubetest.Run(ctx, kubetest.Options{})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if b.world, err = newWorld(ctx, cluster); err != nil {
		return err
	}
	var failed error
	b.stages = strings.Split(*stages, ",")
	for _, stage := range b.stages {
		start := time.Now()
		if err := b.stage(ctx, stage); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", stage, err))
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", stage, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", stage, time.Since(start).Round(time.Second))
	}
	b.load("end")
	return errors.Join(failed, b.report(ctx, begun))
}

// load tells, where the system does, how many others use the machine: a run
// beside them says little about times.
func (b *bench) load(when string) {
	text, err := os.ReadFile("/proc/loadavg")
	var load float64
	if _, failed := fmt.Sscan(string(text), &load); err == nil && failed == nil {
		b.book.Add("machine.load_average_at_"+when, load, "processes")
	}
}

func (b *bench) stage(ctx context.Context, name string) error {
	switch name {
	case "rest":
		return b.rest(ctx)
	case "create":
		return b.create(ctx)
	case "drift":
		return b.drift(ctx)
	case "parts":
		return b.parts(ctx)
	case "embedded":
		return b.embedded(ctx)
	case "operator":
		return b.measureOperator(ctx)
	case "wrangler":
		return b.measureWrangler(ctx)
	case "memory":
		return b.memory(ctx)
	default:
		return errors.New("no such stage")
	}
}
