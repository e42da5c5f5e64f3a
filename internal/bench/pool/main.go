// Command pool measures package cloud beside karpenter's scheduler, and on the
// input of cluster-autoscaler's own benchmark. It prints one line for each
// figure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// bench is one run.
type bench struct {
	book *benchfigures.Book
	pods int
}

// stage is a part that can be run alone.
type stage struct {
	name, does string
	run        func(*bench, context.Context) error
}

func stages() []stage {
	return []stage{
		{"karpenter", "the pods of karpenter's benchmark, at 8 and 40 instance types", (*bench).karpenter},
		{"autoscaler", "the pods of cluster-autoscaler's benchmark of its estimator", (*bench).autoscaler},
	}
}

func main() {
	b := &bench{book: &benchfigures.Book{Out: os.Stdout}}
	names := make([]string, 0, len(stages()))
	for _, s := range stages() {
		names = append(names, s.name+": "+s.does)
	}
	only := flag.String("stages", "", "comma-separated stages to run; all if empty\n"+strings.Join(names, "\n"))
	flag.IntVar(&b.pods, "pods", 5000, "pods beside karpenter")
	flag.Parse()
	ctx, stop := benchfigures.Interrupted()
	err := b.run(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pool:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, only string) error {
	if err := known(only); err != nil {
		return err
	}
	var failed error
	for _, s := range stages() {
		if only == "" || strings.Contains(","+only+",", ","+s.name+",") {
			if err := s.run(b, ctx); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
			}
		}
	}
	table, missed := b.book.Table(marks())
	fmt.Print(table)
	if only == "" {
		failed = errors.Join(failed, missed)
	}
	return failed
}

// known returns an error for a list of stages with one that there is not: nothing would be measured, and nothing said.
func known(only string) error {
	if only == "" {
		return nil
	}
	var names []string
	for _, s := range stages() {
		names = append(names, s.name)
	}
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-stages: is %q, must be of %s", only, strings.Join(names, ","))
		}
	}
	return nil
}
