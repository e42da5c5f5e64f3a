package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
	"github.com/seed-9e1ffd66/trueup/diff"
)

func (o *options) diffCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "diff -f FOLDER", Short: "Show what an apply would change, and which program wrote the live value", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.plan(c, false, "") },
	}
	o.fileFlags(c.Flags())
	o.writeFlags(c.Flags())
	return c
}

func (o *options) planCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "plan -f FOLDER", Short: `Show what "apply --prune" would do, and save it for "apply --plan"`, Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.plan(c, true, file) },
	}
	o.fileFlags(c.Flags())
	o.writeFlags(c.Flags())
	c.Flags().StringVar(&file, "out", "", "file for the plan, which must not exist")
	return c
}

// savedPlan is a plan in a file.
type savedPlan struct {
	Cluster string    `json:"cluster"`
	Set     apply.ID  `json:"set"`
	Part    string    `json:"part"`
	Writing writing   `json:"writing,omitzero"`
	Plan    diff.Plan `json:"plan"`
}

func (o *options) plan(c *cobra.Command, prune bool, file string) error {
	s, err := o.open(c)
	if err != nil {
		return err
	}
	defer s.stop()
	var options apply.PruneOptions
	if prune {
		options = s.reviewed()
	}
	plan, err := s.foresee(c.Context(), options)
	shown := s.shown(plan)
	differing := names(shown)
	if !prune {
		kept, unread := s.kept(c.Context())
		shown.Changes, err = append(shown.Changes, kept...), errors.Join(err, unread)
	}
	if !o.out.Value(shown, differing) {
		o.out.Plan(shown)
	}
	if file != "" && err == nil && len(s.faults) == 0 {
		if err := s.save(c.Context(), file, plan); err != nil {
			return err
		}
	}
	if ended := o.ended(s.faults, s.explain(c.Context(), err), 0); ended != nil {
		if file != "" {
			o.out.Printf("--out: %s is not written, because not all of the plan is known\n", file)
		}
		return ended
	}
	if len(differing) > 0 {
		return &program.StatusError{Status: statusDiffers}
	}
	o.out.Printf("%s: nothing differs, %s\n", o.part, show.Objects(s.set.Len()-1))
	return nil
}

// kept returns the objects of the set to whose lists other programs have added items, which
// an apply leaves there.
func (s *session) kept(ctx context.Context) (changes []diff.Change, failed error) {
	byName := func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) }
	for _, kind := range slices.SortedFunc(maps.Values(s.kinds), byName) {
		members, err := s.cluster.members(ctx, kind.GroupKind(), s.owner.ApplySet.ApplySetID())
		failed = errors.Join(failed, err)
		for i := range members {
			c := diff.Change{
				Action: diff.Keep, APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
				Namespace: members[i].Namespace, Name: members[i].Name, UID: string(members[i].UID), ResourceVersion: members[i].ResourceVersion,
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&members[i])
			if err == nil {
				c.Fields, err = diff.AddedByOthers(content, manager)
			}
			failed = errors.Join(failed, err)
			if len(c.Fields) > 0 && s.set.Has(idOf(object(c))) {
				changes = append(changes, c)
			}
		}
	}
	return changes, failed
}

// shown returns the plan without the set's own ConfigMap, and without the hashes of Secrets: they
// have no key, so a short value can be found by trying all.
func (s *session) shown(plan diff.Plan) diff.Plan {
	plan.Changes = slices.DeleteFunc(slices.Clone(plan.Changes), func(c diff.Change) bool { return idOf(object(c)) == s.owner.ApplySet })
	for i, c := range plan.Changes {
		if c.APIVersion == "v1" && c.Kind == "Secret" {
			plan.Changes[i].Desired = diff.Sum{}
		}
	}
	return plan
}

// foresee returns the plan, once all of it can be foreseen.
func (s *session) foresee(ctx context.Context, options apply.PruneOptions) (diff.Plan, error) {
	s.options.out.Progress("comparing %d objects", s.set.Len()-1)
	for within, cancel := context.WithTimeout(ctx, s.options.timeout); ; {
		plan, err := s.applier.Plan(within, s.set, options)
		if !errors.Is(err, apply.ErrNotSynced) || apierrors.IsForbidden(err) || !s.pause(within) {
			cancel()
			return plan, err
		}
	}
}

func names(plan diff.Plan) (names []string) {
	for _, c := range plan.Changes {
		names = append(names, idOf(object(c)).String())
	}
	return names
}

// object returns the object of a change, without content.
func object(c diff.Change) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(c.APIVersion, c.Kind))
	o.SetNamespace(c.Namespace)
	o.SetName(c.Name)
	return o
}

func (s *session) save(ctx context.Context, path string, plan diff.Plan) error {
	uid, err := s.cluster.uid(ctx)
	if err != nil {
		return failed(err)
	}
	data, err := json.MarshalIndent(savedPlan{uid, s.owner.ApplySet, s.options.part, s.options.writing, plan}, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = file.Write(append(data, '\n'))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return program.Usagef("--out: is %q, must be a new file in a folder that can be written: %v", path, err)
	}
	return nil
}

// load reads a saved plan, which must be of this cluster, set and part.
func (s *session) load(ctx context.Context, path string) (diff.Plan, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return diff.Plan{}, program.Usagef("--plan: is %q, must be a file that can be read: %v", path, err)
	}
	var saved savedPlan
	if err := json.Unmarshal(data, &saved); err != nil {
		return diff.Plan{}, program.Usagef(`--plan: is %q, must be a file of "trueup plan --out": %v`, path, err)
	}
	uid, err := s.cluster.uid(ctx)
	switch {
	case err != nil:
		return diff.Plan{}, failed(err)
	case saved.Cluster != uid:
		return diff.Plan{}, program.Usagef("--plan: %s is of the cluster %s, not of %s (%s)", path, saved.Cluster, uid, s.cluster.host)
	case saved.Set != s.owner.ApplySet || saved.Part != s.options.part:
		return diff.Plan{}, program.Usagef("--plan: %s is of the part %s of %s, not of %s of %s",
			path, saved.Part, saved.Set, s.options.part, s.owner.ApplySet)
	}
	return saved.Plan, s.write(saved.Writing)
}

// execute carries out a saved plan.
func (s *session) execute(ctx context.Context, path string) error {
	plan, err := s.load(ctx, path)
	if err != nil {
		return err
	}
	if err := s.rights(ctx, plan); err != nil {
		return failed(err)
	}
	within, cancel := context.WithTimeout(ctx, s.options.timeout)
	defer cancel()
	var failures error
	for results := []apply.Result(nil); ; {
		report, err := s.applier.Execute(within, s.set, s.reviewed(), plan)
		waiting := report.Count(apply.Waiting) > 0 && s.pause(within)
		if waiting { // for what they need: try these again
			plan.Changes = slices.DeleteFunc(plan.Changes, func(c diff.Change) bool {
				return !slices.ContainsFunc(report.Results, func(r apply.Result) bool { return r.ID == idOf(object(c)) && r.Action == apply.Waiting })
			})
			report.Results = slices.DeleteFunc(report.Results, func(r apply.Result) bool { return r.Action == apply.Waiting })
			err = report.Err()
		}
		results, failures = append(results, report.Results...), errors.Join(failures, err)
		if !waiting {
			s.report(results)
			return s.ended(s.explain(ctx, failures))
		}
	}
}
