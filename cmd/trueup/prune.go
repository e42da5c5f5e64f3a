package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
)

// pruneFlags decide about deletions.
type pruneFlags struct {
	also    bool
	silent  bool // nothing is said where there is nothing to prune
	limit   int
	approve string
	removal removal
}

func (f *pruneFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.limit, "limit", 0, "max objects that may be deleted in an hour without an approval")
	f.removal.add(flags)
	flags.StringVar(&f.approve, "approve", "", "digest of the held deletions, as it was printed: exactly these are deleted")
}

func (o *options) pruneCommand() *cobra.Command {
	var flags pruneFlags
	c := &cobra.Command{
		Use: "prune -f FOLDER", Short: "Delete what the part has in the cluster and the folder no longer holds", Args: program.NoArgs,
		Long: `Delete what the part has in the cluster and the folder no longer holds.

Each deletion needs an approval: on a terminal the command asks once; elsewhere it prints the
digest of what it would delete and ends with status 4, and --approve DIGEST deletes exactly
that. A folder with a fault prunes nothing. What another set or tool made, and a Namespace or
definition in which something else lives, is never deleted.`,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c)
			if err != nil {
				return err
			}
			defer s.stop()
			return s.ended(s.prune(c.Context(), c.InOrStdin(), flags))
		},
	}
	o.fileFlags(c.Flags())
	flags.add(c.Flags())
	return c
}

// prune deletes what the set lacks, as far as the flags or a person allow it.
func (s *session) prune(ctx context.Context, in io.Reader, flags pruneFlags) error {
	out := s.options.out
	if len(s.faults) > 0 {
		return fmt.Errorf("%s: nothing is pruned, because the files were not read whole", s.options.part)
	}
	options := s.pruning(flags, flags.approve)
	report, err := s.applier.Prune(ctx, s.set, options)
	results, verb := report.Results, flags.removal.verb()
	ids := report.Held.IDs()
	if len(ids) > 0 {
		for _, id := range ids {
			out.Removal(verb, id.String())
		}
		if flags.approve == "" && out.Ask(in, fmt.Sprintf("%s: %s?", verb, show.Objects(len(ids)))) {
			options.Approved = report.Held.Digest
			report, err = s.applier.Prune(ctx, s.set, options)
			results, ids = append(results, report.Results...), report.Held.IDs()
		}
	}
	if limit, ok := errors.AsType[*apply.LimitError](err); ok && len(ids) > 0 {
		if limit.Refused != "" {
			out.Printf("--approve: is %q, and the deletions that are held now have the digest %s\n", limit.Refused, report.Held.Digest)
		}
		out.Printf("%s held, nothing of it was deleted; to %s it: --approve %s\n", show.Objects(len(ids)), verb, report.Held.Digest)
		s.hold(report.Held.Digest, ids)
		err = apply.Report{Results: results}.Err() // the limit is printed
	}
	for _, id := range report.Unproven {
		out.Printf("%s carries the labels of the set and was not applied by it: it is left\n", id)
	}
	if len(results) > 0 || !flags.silent {
		s.wait(report, "prune")
	}
	if len(results)+len(ids)+report.Pending == 0 && err == nil && !flags.silent {
		out.Printf("%s: nothing to prune\n", s.options.part)
	}
	s.report(results)
	return err
}

func (o *options) deleteCommand() *cobra.Command {
	var whole, yes bool
	var how removal
	c := &cobra.Command{
		Use: "delete -f FOLDER", Short: "Delete the objects of the folder, or a whole part, that this set applied", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if whole == (len(o.files) > 0) {
				return program.Usagef("--whole-part: must be given in the place of --filename, with --part")
			}
			s, err := o.open(c)
			if err != nil {
				return err
			}
			defer s.stop()
			return s.delete(c, whole, yes, how.verb(), apply.DeleteOptions{Orphan: how.orphan(), Propagation: cascades[how.cascade]})
		},
	}
	o.fileFlags(c.Flags())
	c.Flags().BoolVar(&whole, "whole-part", false, "delete every object of --part")
	how.add(c.Flags())
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// delete deletes the objects of the files that are there, or all of the part.
func (s *session) delete(c *cobra.Command, whole, yes bool, verb string, options apply.DeleteOptions) error {
	out := s.options.out
	var ids []apply.ID
	for o := range s.applier.Live.Part(s.options.part) {
		if whole || s.set.Has(o.ID) && s.policies[o.ID] != apply.LeaveOut {
			ids = append(ids, o.ID)
			out.Removal(verb, o.ID.String())
		}
	}
	if len(ids) == 0 {
		out.Printf("%s: nothing to delete\n", s.options.part)
		return s.ended(nil)
	}
	if !yes && !out.Ask(c.InOrStdin(), fmt.Sprintf("%s: %s?", verb, show.Objects(len(ids)))) {
		out.Printf("%s held, nothing was deleted; to %s it: --yes\n", show.Objects(len(ids)), verb)
		s.hold("", ids)
		return s.ended(nil)
	}
	var report apply.PruneReport
	var err error
	if whole {
		report, err = s.applier.DeletePart(c.Context(), s.options.part, options)
	} else {
		report, err = s.applier.Delete(c.Context(), ids, options)
	}
	s.wait(report, "delete")
	s.report(report.Results)
	return s.ended(err)
}

// wait says that a command has left objects for now, and why.
func (s *session) wait(report apply.PruneReport, command string) {
	for _, r := range report.Waiting {
		s.options.out.Printf("%s: %s\n", r.ID, r.Err)
	}
	if s.outcomes.Pending = report.Pending; report.Pending > 0 {
		s.options.out.Printf("%s left until what needs it is gone: %s again\n", show.Objects(report.Pending), command)
	}
}
