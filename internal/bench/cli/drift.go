package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// drift is a change that another manager or an administrator makes beside the tools.
type drift struct {
	name   string
	object object
	// by is who writes it, as a field manager; "" for a deletion, which leaves no author.
	by   string
	args []string // of kubectl
	// shown stands in a difference that shows it.
	shown string
}

// drifts are the five kinds, each of an object of its own.
func drifts() []drift {
	all := objects(60)
	edit := func(patch string) []string { return []string{"patch", "-p", patch} }
	return []drift{
		{"field", all[0], "edit-by-hand", edit(`{"data":{"level":"drift-value"}}`), "drift-value"},
		{"object", all[1], "", []string{"delete"}, all[1].name},
		{"label", all[2], "labels-by-hand", edit(`{"metadata":{"labels":{"team":"drift-team"}}}`), "drift-team"},
		{
			"item", all[9], "image-updater",
			edit(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"registry.example.com/web:drift"}]}}}}`), "web:drift",
		},
		{
			"container", all[19], "sidecar-injector",
			edit(`{"spec":{"template":{"spec":{"containers":[{"name":"drift-sidecar","image":"registry.example.com/mesh:1"}]}}}}`), "drift-sidecar",
		},
	}
}

// drift counts how many kinds of drift each tool shows, and with how many it names the author.
func (b *bench) drift(ctx context.Context) error {
	for _, t := range b.tools {
		if t.diff == nil {
			b.say("drift: %s shows none itself", t.name)
			continue
		}
		s, err := b.side(ctx, "drift", t)
		if err != nil {
			return err
		}
		f, err := b.folder(s, 60)
		if err != nil {
			return err
		}
		if err := s.must(ctx, t.apply(f)); err != nil {
			return err
		}
		for _, d := range drifts() {
			args := append(slices.Clone(d.args), d.object.kind, d.object.name, "-n", s.namespace)
			if d.by != "" {
				args = append(args, "--field-manager="+d.by)
			}
			if _, err := s.Kubectl(ctx, args...); err != nil {
				return err
			}
		}
		a, err := s.call(ctx, t.diff(f))
		if err != nil {
			return err
		}
		found, author := 0, 0
		for _, d := range drifts() {
			shown, named, err := s.shows(a, d)
			if err != nil {
				return err
			}
			if shown {
				found++
			} else {
				b.say("drift: %s does not show %s of %s", t.name, d.name, d.object.name)
			}
			if named {
				author++
			}
		}
		b.add("cli_drift_found", t, float64(found), "of_5")
		b.add("cli_drift_author", t, float64(author), "of_4")
	}
	return nil
}

// shows reports whether an answer shows a drift, and who wrote it. trueup's says so field by
// field; of another tool any text counts.
func (s side) shows(a answer, d drift) (shown, author bool, err error) {
	if s.name != trueup {
		text := a.out + a.errs
		return strings.Contains(text, d.shown), d.by != "" && strings.Contains(text, d.by), nil
	}
	var plan diff.Plan
	if err := json.Unmarshal([]byte(a.out), &plan); err != nil {
		return false, false, fmt.Errorf("%s diff: status %d: %w: %s", s.name, a.status, err, a.errs)
	}
	for _, c := range plan.Changes {
		if !strings.EqualFold(c.Kind, d.object.kind) || c.Name != d.object.name {
			continue
		}
		shown = shown || d.by == "" && c.Action == diff.Create
		for _, f := range c.Fields {
			here := strings.Contains(string(f.Live)+f.Path, d.shown)
			shown = shown || here
			author = author || here && slices.ContainsFunc(f.By, func(w diff.Writer) bool { return w.Manager == d.by })
		}
	}
	return shown, author, nil
}
