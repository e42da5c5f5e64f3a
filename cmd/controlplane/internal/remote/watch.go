package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func watchCommand() *cobra.Command {
	var o options
	f := filters{}
	interval := 2 * time.Second
	command := &cobra.Command{
		Use:   "watch KIND [OF...]",
		Short: "List objects of a running control plane, and then each that changes",
		Long: `List objects of a running control plane, and then each that is added, changed or deleted,
until it is interrupted. A server that cannot be reached later is asked again.`,
		ValidArgsFunction: completeList(&o),
		RunE: func(command *cobra.Command, args []string) error {
			if interval < time.Second {
				return program.Usagef("--interval: is %s, must be at least 1s", interval)
			}
			k, list, err := o.listed(command, args, f)
			if err != nil {
				return err
			}
			w := watch{kind: k, out: command.OutOrStdout(), errs: command.ErrOrStderr()}
			w.list = func(ctx context.Context) (items []json.RawMessage, err error) {
				for item, err := range list(ctx) {
					if err != nil {
						return nil, err
					}
					items = append(items, item)
				}
				return items, nil
			}
			return w.run(command.Context(), interval)
		},
	}
	o.flags(command, false)
	f.flags(command)
	command.Flags().DurationVar(&interval, "interval", interval, "how long to wait between two lists, at least 1s")
	return command
}

// watch prints what changes between two lists.
type watch struct {
	kind      kind
	list      func(context.Context) ([]json.RawMessage, error)
	out, errs io.Writer
	before    map[string]row
	widths    []int
	failing   bool
}

func (w *watch) run(ctx context.Context, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look lists once. An error that another attempt cannot help ends the watch.
func (w *watch) look(ctx context.Context) error {
	items, err := w.list(ctx)
	refused, answered := errors.AsType[*client.Error](err)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // it was interrupted
	case err != nil && (w.before == nil || answered && refused.Status < 500 && refused.RetryAfter == 0):
		return err
	case err != nil:
		if !w.failing {
			fmt.Fprintf(w.errs, "asking again: %v\n", err) //nolint:errcheck // a reader that went away
		}
		w.failing = true
		return nil
	}
	w.failing = false
	now := map[string]row{}
	for _, item := range items {
		r, err := w.kind.item(item, time.Now())
		if err != nil {
			return err
		}
		now[strings.Join(r.name, "/")] = r
	}
	if w.before == nil {
		w.line(append([]string{"EVENT"}, strings.Split(w.kind.titles(), "\t")...))
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch before, ok := w.before[name]; {
		case !ok:
			w.line(append([]string{"ADDED"}, now[name].cells...))
		case before.text != now[name].text:
			w.line(append([]string{"CHANGED"}, now[name].cells...))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.before)) {
		if _, ok := now[name]; !ok {
			w.line(append([]string{"DELETED"}, w.before[name].cells...))
		}
	}
	w.before = now
	return nil
}

// line prints the cells, aligned with the lines before.
func (w *watch) line(cells []string) {
	var line strings.Builder
	for i, cell := range cells {
		if i == len(w.widths) {
			w.widths = append(w.widths, 0)
		}
		w.widths[i] = max(w.widths[i], len(cell))
		line.WriteString(cell + strings.Repeat(" ", w.widths[i]-len(cell)+3))
	}
	fmt.Fprintln(w.out, strings.TrimRight(line.String(), " ")) //nolint:errcheck // a reader that went away
}
