package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
	"github.com/seed-9e1ffd66/trueup/diff"
)

func (o *options) watchCommand() *cobra.Command {
	var prune pruneFlags
	var interval time.Duration
	c := &cobra.Command{
		Use: "watch -f FOLDER", Args: program.NoArgs,
		Short: "Keep the cluster as the folder says, and print each repair with the program that it undoes",
		RunE:  func(c *cobra.Command, _ []string) error { return o.watch(c, prune, interval) },
	}
	o.fileFlags(c.Flags())
	o.writeFlags(c.Flags())
	prune.add(c.Flags())
	c.Flags().BoolVar(&prune.also, "prune", false, "also delete what the folder no longer holds, up to --limit in an hour")
	c.Flags().DurationVar(&interval, "interval", 10*time.Second, "time between two looks at the folder")
	return c
}

// watch runs passes until the context ends. The folder is read again at the interval.
func (o *options) watch(c *cobra.Command, prune pruneFlags, interval time.Duration) error {
	s, err := o.open(c)
	if err != nil {
		return err
	}
	defer s.stop()
	o.out.Printf("watching %s of the part %s of %s\n", show.Objects(s.set.Len()-1), o.part, s.owner.ApplySet)
	prune.silent = true
	ctx, last := c.Context(), ""
	for read := time.Now(); ; {
		plan, err := s.foresee(ctx, apply.PruneOptions{})
		if len(plan.Changes) > 0 {
			err = s.repair(ctx, plan)
		}
		if prune.also && err == nil {
			err = s.prune(ctx, strings.NewReader(""), prune)
		}
		s.outcomes = outcomes{}
		if ctx.Err() != nil {
			return nil
		}
		if err = errors.Join(append(s.faults[:len(s.faults):len(s.faults)], err)...); err != nil && err.Error() != last {
			o.out.Error(err)
		}
		last = fmt.Sprint(err)
		for quiet := true; quiet && time.Since(read) < interval && ctx.Err() == nil; {
			quiet = len(s.events) == 0
			s.pause(ctx)
		}
		if time.Since(read) >= interval {
			read = time.Now()
			if err := s.read(c.InOrStdin()); err != nil {
				o.out.Error(err)
			}
		}
	}
}

// repair makes a pass, and prints the changes that it made: one that is held back, because
// another program changes the object back, is an error.
func (s *session) repair(ctx context.Context, plan diff.Plan) error {
	report, err := s.applier.Apply(ctx, s.set)
	done := map[apply.ID]bool{}
	for _, r := range report.Results {
		done[r.ID] = r.Err == nil && r.Action != apply.Waiting
	}
	made := s.shown(plan)
	made.Changes = slices.DeleteFunc(made.Changes, func(c diff.Change) bool { return !done[idOf(object(c))] })
	if len(made.Changes) > 0 {
		s.options.out.Printf("%s\n", time.Now().Format(time.TimeOnly))
		s.options.out.Plan(made)
	}
	return s.explain(ctx, err)
}
