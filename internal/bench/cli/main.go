// Command cli measures the program trueup beside kubectl, helm and kapp, each with the
// same folder of YAML, in a namespace and as a user of its own, on one kube-apiserver.
// It prints one line for each figure: a name that ends in _TOOL is that of a peer.
//
// The peers prune as their users do: "kubectl apply --prune" by a label, the same with
// --applyset, "helm upgrade --install" of the folder as a chart, and "kapp deploy --yes".
// trueup prunes without a terminal and without --approve.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// bench is one run.
type bench struct {
	book    benchfigures.Book
	cluster *kubetest.Cluster
	tools   []tool // trueup is the first
	dir     string
	objects int // of the largest folder
}

// stage is a part that can be run alone, and what trueup is measured by there. Marks that
// depend on the machine are not hard.
type stage struct {
	name  string
	run   func(*bench, context.Context) error
	marks []benchfigures.Mark
}

func stages() []stage {
	return []stage{
		{"size", (*bench).size, []benchfigures.Mark{{What: "size of the program", Figure: "cli_binary_mb", Limit: 40}}},
		{"rest", (*bench).rest, []benchfigures.Mark{
			{What: "requests beside lists and watches for 100 unchanged objects", Figure: "cli_requests_at_rest", Hard: true},
		}},
		{"drift", (*bench).drift, []benchfigures.Mark{
			{What: "kinds of drift shown, of 5", Figure: "cli_drift_found", Limit: 5, AtLeast: true, Hard: true},
			{What: "with who wrote it, of 4", Figure: "cli_drift_author", Limit: 4, AtLeast: true, Hard: true},
		}},
		{"accidents", (*bench).accidents, []benchfigures.Mark{
			{What: "wrong deletions in 5 accidents", Figure: "cli_wrong_deletions", Hard: true},
		}},
		{"speed", (*bench).speed, []benchfigures.Mark{
			{What: "apply from nothing, against kubectl apply --server-side", Figure: "cli_seconds_ratio", Limit: 1.0 / 3},
			{What: "apply again, against the same", Figure: "cli_seconds_again_ratio", Limit: 1.0 / 3},
		}},
	}
}

func main() {
	ctx, stop := benchfigures.Interrupted()
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cli:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b := &bench{book: benchfigures.Book{Out: os.Stdout}}
	var programs paths
	flag.StringVar(&programs.trueup, "trueup", "bin/trueup", "the program trueup, built as for a release")
	flag.StringVar(&programs.kapp, "kapp", "", "the program kapp; empty leaves it out")
	flag.IntVar(&b.objects, "objects", 1000, "objects that are applied on time")
	only := flag.String("stages", "size,rest,drift,accidents,speed", "what to measure")
	peers := flag.String("peers", "", "peers to measure; all if empty")
	flag.Parse()

	err := errors.Join(known("-stages", *only, stageNames()), known("-peers", *peers, append(toolNames(), "")))
	if err != nil {
		return err
	}
	b.load("begin")
	if b.dir, err = os.MkdirTemp("", "trueup-bench-cli-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir) //nolint:errcheck // a folder of temporary files
	if b.cluster, err = kubetest.Run(ctx, kubetest.Options{}); err != nil {
		return err
	}
	defer b.cluster.Stop()
	if programs.helm, err = modbuild.Helm(ctx, os.Stderr); err != nil {
		return err
	}
	programs.kubectl = b.cluster.KubectlPath()
	if programs.kapp == "" {
		b.say("left out: kapp (-kapp PROGRAM measures it)")
	}
	b.say("left out: flux and argocd, which run in the cluster")
	if b.tools, err = tools(programs, b.dir); err != nil {
		return err
	}
	b.tools = slices.DeleteFunc(b.tools, func(t tool) bool { return *peers != "" && t.name != trueup && !chosen(*peers, t.name) })
	var failed error
	var measured []benchfigures.Mark
	for _, s := range stages() {
		if !chosen(*only, s.name) {
			continue
		}
		begun := time.Now()
		if err := s.run(b, ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		measured = append(measured, s.marks...)
		fmt.Fprintf(os.Stderr, "cli: %s took %s\n", s.name, time.Since(begun).Round(time.Second))
	}
	b.load("end")
	table, missed := b.book.Table(measured)
	b.say("%s", strings.TrimSpace(table))
	return errors.Join(failed, missed)
}

func stageNames() (names []string) {
	for _, s := range stages() {
		names = append(names, s.name)
	}
	return names
}

// known returns an error for a list with commas that has a name which there is not: it would be left out, and
// nothing said.
func known(flag, list string, names []string) error {
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s: is %q, must be of %s", flag, list, strings.TrimSuffix(strings.Join(names, ","), ","))
		}
	}
	return nil
}

// chosen reports whether a name is one of a list with commas.
func chosen(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// load tells, where the system does, how many others use the machine.
func (b *bench) load(when string) {
	text, err := os.ReadFile("/proc/loadavg")
	var load float64
	if _, failed := fmt.Sscan(string(text), &load); err == nil && failed == nil {
		b.book.Add("machine.load_average_at_"+when, load, "processes")
	}
}

// say prints a line that is no figure.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.book.Out, format+"\n", args...) // a reader that is gone does not stop a measurement
}

// add adds a figure of a tool.
func (b *bench) add(name string, t tool, value float64, unit string) {
	if t.name != trueup {
		name += "_" + t.name
	}
	b.book.Add(name, value, unit)
}

func (b *bench) size(context.Context) error {
	for _, t := range b.tools {
		if strings.HasPrefix(t.name, "kubectl") {
			continue // here it is one program with the servers
		}
		info, err := os.Stat(t.program)
		if err != nil {
			return err
		}
		b.add("cli_binary_mb", t, float64(info.Size())/1e6, "MB")
	}
	return nil
}
