package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
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
	*world
	book benchfigures.Book

	objects      int // of trueup, in the sweep
	peers        int // objects of each peer, at rest
	created      int // objects of each contender in a round of creations
	edits        int
	watched      int // objects in memory
	parents      int // of each operator, with ten children each
	rounds       int
	delay        time.Duration // of each request of an operator in the stages parts and embedded
	grownTo      int           // objects at the most, in the stage growth
	grownReal    int           // of these on the real server
	profiles     string        // a folder for profiles of that stage
	operator     string        // the program that is measured, if any
	operatorPeer string        // the one that it is measured beside, if any
	wrangler     string        // the program that measures it, if any
	stages       []string
}

func run(ctx context.Context) error {
	b := &bench{book: benchfigures.Book{Out: os.Stdout}}
	flag.IntVar(&b.objects, "objects", 10_000, "objects in a sweep of trueup")
	flag.IntVar(&b.peers, "peer-objects", 500, "objects of each peer at rest")
	flag.IntVar(&b.created, "created", 1_000, "objects that each contender creates in a round")
	flag.IntVar(&b.edits, "edits", 300, "foreign edits that are repaired")
	flag.IntVar(&b.watched, "watched", 100_000, "objects watched when memory is measured; 0 leaves it out")
	flag.IntVar(&b.parents, "parents", 1_000, "parents of each operator, with ten children each")
	flag.IntVar(&b.grownTo, "grown-to", 1_000_000, "objects at the most in the stage growth: 1000, 10000, 100000 or 1000000")
	flag.IntVar(&b.grownReal, "grown-real", 10_000, "objects at the most in the stage growth on the real server")
	flag.StringVar(&b.profiles, "grown-profiles", "", "a folder that the stage growth writes CPU profiles of each size to")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of which the median is taken")
	flag.DurationVar(&b.delay, "delay", 0, "how much longer each request of an operator takes in the stages parts and embedded")
	flag.StringVar(&b.operator, "operator", "", "the program built from examples/operator; empty leaves it out")
	flag.StringVar(&b.operatorPeer, "operator-peer", "", "the program built from examples/internal/createorupdate; empty leaves it out")
	flag.StringVar(&b.wrangler, "wrangler", "", "the program built from internal/bench/wrangler; empty leaves it out")
	stages := flag.String("stages", "rest,create,drift,parts,embedded,operator,wrangler,memory", "what to measure")
	hold := flag.String("hold", "", "for internal use: hold objects in memory and report")
	address := flag.String("address", "", "for internal use: the server of the objects to hold")
	growth := flag.String("growth", "", "for internal use: what to measure, or to serve, of one size")
	growthN := flag.Int("growth-n", 0, "for internal use: the size")
	growthAt := flag.String("growth-at", "", "for internal use: the address of the server, or a kubeconfig")
	growthServe := flag.String("growth-serve", "", "for internal use: the file with the samples to serve")
	growthProfiles := flag.String("growth-profiles", "", "for internal use: the beginning of the names of the profiles")
	flag.Parse()
	b.stages = strings.Split(*stages, ",")

	log.SetLogger(logr.Discard()) //nolint:forbidigo // where controller-runtime and flux log
	klog.SetLogger(logr.Discard())
	switch {
	case *growthServe != "":
		return serveGrowth(ctx, *growth, *growthServe, *growthN)
	case *growth != "":
		return growthChild(ctx, *growth, *growthAt, *growthN, *growthProfiles)
	}
	if *hold != "" {
		return holdObjects(ctx, *hold, *address, b.watched)
	}
	if err := b.validate(); err != nil {
		return err
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
	for _, stage := range b.stages {
		if ctx.Err() != nil {
			break
		}
		start := time.Now()
		if err := b.known()[stage](ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", stage, err))
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", stage, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", stage, time.Since(start).Round(time.Second))
	}
	if ctx.Err() != nil { // a table of what was measured until then would look like one of all
		return errors.Join(failed, errors.New("interrupted"))
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

// known are the stages by name.
func (b *bench) known() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"rest": b.rest, "requests": b.requests, "create": b.create, "drift": b.drift, "parts": b.parts, "embedded": b.embedded,
		"operator": b.measureOperator, "wrangler": b.measureWrangler, "memory": b.memory, "growth": b.growth,
	}
}

// validate returns an error for a flag with which a figure would be of nothing.
func (b *bench) validate() error {
	failed := errors.Join(
		benchfigures.AtLeast("objects", b.objects, 20), benchfigures.AtLeast("peer-objects", b.peers, 20),
		benchfigures.AtLeast("created", b.created, 10), benchfigures.AtLeast("edits", b.edits, 10),
		benchfigures.AtLeast("watched", b.watched, 0), benchfigures.AtLeast("parents", b.parents, 10),
		benchfigures.AtLeast("rounds", b.rounds, 1), benchfigures.AtLeast("grown-real", b.grownReal, 0),
		powerOfTen(b.grownTo),
	)
	known := b.known()
	for _, stage := range b.stages {
		if known[stage] == nil {
			failed = errors.Join(failed, fmt.Errorf("-stages: %q is none of %s", stage, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		}
	}
	return failed
}
