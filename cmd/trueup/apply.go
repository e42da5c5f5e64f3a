package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
	"github.com/seed-9e1ffd66/trueup/diff"
)

func (o *options) applyCommand() *cobra.Command {
	var prune pruneFlags
	var plan string
	var wait bool
	c := &cobra.Command{
		Use: "apply -f FOLDER", Short: "Create and repair the objects of the folder", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c)
			if err != nil {
				return err
			}
			defer s.stop()
			if plan != "" {
				return s.execute(c.Context(), plan)
			}
			err = s.applied(c.Context(), nil)
			if prune.also && err == nil {
				err = s.prune(c.Context(), c.InOrStdin(), prune)
			}
			if wait && err == nil {
				err = s.ready(c.Context())
			}
			return s.ended(err)
		},
	}
	o.fileFlags(c.Flags())
	o.writeFlags(c.Flags())
	prune.add(c.Flags())
	c.Flags().BoolVar(&prune.also, "prune", false, "also delete what the folder no longer holds, as trueup prune does")
	c.Flags().StringVar(&plan, "plan", "", `do what this file of "trueup plan --out" says, each change only if it still holds`)
	c.Flags().BoolVar(&wait, "wait", false, "wait until the objects are ready")
	return c
}

// applied applies the set until nothing of it waits, and prints what it did. before, if set,
// is called once with the plan, if that changes something.
func (s *session) applied(ctx context.Context, before func(diff.Plan) bool) error {
	out := s.options.out
	plan, foreseen := s.foresee(ctx, apply.PruneOptions{})
	if len(plan.Changes) == 0 && foreseen == nil {
		out.Printf("%s: nothing differs, %s\n", s.options.part, show.Objects(s.set.Len()-1))
		return nil
	}
	shown := s.shown(plan)
	if before != nil && len(shown.Changes) == 0 {
		return s.explain(ctx, foreseen) // nothing can be changed, and this is why
	}
	if errors.Is(foreseen, apply.ErrNotSynced) && apierrors.IsForbidden(foreseen) {
		return fmt.Errorf("nothing was written: %w", unreadable(foreseen)) // the set would remember a kind that cannot be seen
	}
	if before != nil && !before(shown) {
		return nil
	}
	if err := s.rights(ctx, plan); err != nil {
		return err
	}
	fields, silent := map[apply.ID]diff.Change{}, before != nil || !out.Text()
	for _, c := range shown.Changes {
		fields[idOf(object(c))] = c
	}
	within, cancel := context.WithTimeout(ctx, s.options.timeout)
	defer cancel()
	var results []apply.Result
	for begin := time.Now(); ; {
		report, err := s.applier.Apply(within, s.set)
		waiting := report.Count(apply.Waiting)
		for _, r := range report.Results {
			switch c, ok := fields[r.ID]; {
			case silent || r.Err != nil:
			case ok:
				out.Change(c)
				delete(fields, r.ID)
			case r.Action == apply.Created && r.ID != s.owner.ApplySet:
				out.Printf("+ create %s\n", r.ID)
			}
			if r.Action != apply.Waiting {
				again := func(earlier apply.Result) bool { return earlier.ID == r.ID && earlier.Err != nil }
				results = append(slices.DeleteFunc(results, again), r)
			}
		}
		if waiting > 0 && time.Since(begin) > time.Second {
			out.Progress("waiting for %d of %d objects: %v", waiting, s.set.Len(), err)
		}
		if waiting == 0 || !s.pause(within) {
			s.report(results)
			return s.explain(ctx, err)
		}
	}
}

// ready waits until the objects are ready, and shows what they wait for.
func (s *session) ready(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, s.options.timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.applier.WaitReady(within, s.set) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil {
				s.options.out.Printf("%s: ready, %s\n", s.options.part, show.Objects(s.set.Len()-1))
			}
			return s.unready(ctx, err)
		case <-tick.C:
			if statuses, err := s.applier.Readiness(within, s.set); err == nil {
				s.options.out.Progress("waiting: %s", s.waitingFor(within, statuses))
			}
		}
	}
}

func (o *options) waitCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "wait -f FOLDER", Short: "Wait until the objects of the folder are ready, and say why one is not", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c)
			if err != nil {
				return err
			}
			defer s.stop()
			return o.ended(s.faults, s.ready(c.Context()), 0)
		},
	}
	o.fileFlags(c.Flags())
	return c
}
