package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// row is one item of a list.
type row struct {
	// name has the words that name the item below its list.
	name  []string
	cells []string
	text  string // all of it, to see a change
}

// item returns an item as a row of the kind's table.
func (k kind) item(text json.RawMessage, now time.Time) (row, error) {
	var value map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return row{}, err
	}
	r := row{text: string(text)}
	for _, member := range k.key {
		r.name = append(r.name, cell(value, member, now))
	}
	for _, column := range k.columns {
		r.cells = append(r.cells, cell(value, column[1], now))
	}
	return r, nil
}

// cell returns a member as a cell: a time of the past as its age, and - for none.
func cell(value any, path string, now time.Time) string {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch v := value.(type) {
	case nil:
		return "-"
	case bool:
		return strconv.FormatBool(v)
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return age(now.Sub(at))
		}
		if v == "" {
			return "-"
		}
		// What an agent reported must not move the cursor of a terminal.
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return '\uFFFD'
			}
			return r
		}, v)
	default:
		return fmt.Sprint(v)
	}
}

func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0: // of another clock
		return "0s"
	case d < 2*time.Minute:
		return d.Truncate(time.Second).String()
	case d < 2*time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 2*day:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	default:
		return strconv.Itoa(int(d/day)) + "d"
	}
}

// filters are the flags of list and watch that some kinds take.
type filters struct {
	cluster, object, actor, log, since string
}

func (f *filters) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.cluster, "cluster", "", "projects: those of this cluster alone")
	flags.StringVar(&f.object, "object", "", "audit: a kind of object, or a kind, / and its name")
	flags.StringVar(&f.actor, "actor", "", "audit: who did it, such as admin or cluster")
	flags.StringVar(&f.log, "log", "", "audit: changes, agents, access, refused or all; none: changes")
	flags.StringVar(&f.since, "since", "", "audit: not before this time, such as 2026-01-31T12:00:00Z, or a duration ago, such as 2h")
}

// query returns the filters that are set, of those that the kind takes.
func (f *filters) query(k kind, now time.Time) (url.Values, error) {
	query := url.Values{}
	for _, filter := range []struct{ flag, value, kind, parameter string }{
		{"cluster", f.cluster, "projects", "cluster_id"},
		{"object", f.object, "audit", "object"},
		{"actor", f.actor, "audit", "actor"},
		{"log", f.log, "audit", "log"},
		{"since", f.since, "audit", "since"},
	} {
		switch {
		case filter.value == "":
			continue
		case filter.kind != k.plural:
			return nil, program.Usagef("--%s: is for %s, not for %s", filter.flag, filter.kind, k.plural)
		}
		if filter.flag == "since" {
			if ago, err := time.ParseDuration(filter.value); err == nil {
				filter.value = now.Add(-ago).UTC().Format(time.RFC3339)
			}
		}
		query.Set(filter.parameter, filter.value)
	}
	return query, nil
}

func listCommand() *cobra.Command {
	var o options
	var f filters
	limit := 1000
	command := &cobra.Command{
		Use:   "list KIND [OF...]",
		Short: "List objects of a running control plane",
		Example: `  controlplane list clusters
  controlplane list services PROJECT_ID
  controlplane list deployments REGION_ID -o json
  controlplane list audit --object cluster --since 24h`,
		ValidArgsFunction: completeList(&o),
		RunE: func(command *cobra.Command, args []string) error {
			name, words := first(args)
			k, err := find(name, isListed)
			if err != nil {
				return err
			}
			if limit < 1 {
				return program.Usagef("--limit: is %d, must be at least 1", limit)
			}
			path, err := k.collection(words)
			if err != nil {
				return err
			}
			query, err := f.query(k, time.Now())
			if err != nil {
				return err
			}
			c, err := o.client(command.Context(), command.ErrOrStderr())
			if err != nil {
				return err
			}
			items, more := []json.RawMessage{}, false
			for item, err := range c.List(command.Context(), path, k.member, query) {
				if err != nil {
					return err
				}
				if more = len(items) == limit; more {
					break
				}
				items = append(items, item)
			}
			if more {
				fmt.Fprintf(command.ErrOrStderr(), "There are more than %d; see --limit.\n", limit) //nolint:errcheck // a reader that went away
			}
			return o.list(command.OutOrStdout(), k, items)
		},
	}
	o.flags(command, true)
	f.flags(command)
	command.Flags().IntVar(&limit, "limit", limit, "how many items to show at most")
	return command
}

// list prints the items.
func (o *options) list(out io.Writer, k kind, items []json.RawMessage) error {
	if o.output != "" {
		all, err := json.Marshal(items)
		if err != nil {
			return err
		}
		return o.show(out, all)
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, k.titles()) //nolint:errcheck // the table is in memory
	for _, item := range items {
		r, err := k.item(item, time.Now())
		if err != nil {
			return err
		}
		fmt.Fprintln(w, strings.Join(r.cells, "\t")) //nolint:errcheck // the table is in memory
	}
	return w.Flush()
}

func (k kind) titles() string {
	var titles []string
	for _, column := range k.columns {
		titles = append(titles, column[0])
	}
	return strings.Join(titles, "\t")
}

func watchCommand() *cobra.Command {
	var o options
	var f filters
	interval := 2 * time.Second
	command := &cobra.Command{
		Use:   "watch KIND [OF...]",
		Short: "List objects of a running control plane, and then each that changes",
		Long: `List objects of a running control plane, and then each that is added, changed or deleted,
until it is interrupted. A server that cannot be reached is asked again.`,
		ValidArgsFunction: completeList(&o),
		RunE: func(command *cobra.Command, args []string) error {
			name, words := first(args)
			k, err := find(name, isListed)
			if err != nil {
				return err
			}
			if interval < time.Second {
				return program.Usagef("--interval: is %s, must be at least 1s", interval)
			}
			path, err := k.collection(words)
			if err != nil {
				return err
			}
			query, err := f.query(k, time.Now())
			if err != nil {
				return err
			}
			c, err := o.client(command.Context(), command.ErrOrStderr())
			if err != nil {
				return err
			}
			w := watch{kind: k, out: command.OutOrStdout(), errs: command.ErrOrStderr(), list: func(ctx context.Context) ([]json.RawMessage, error) {
				var items []json.RawMessage
				for item, err := range c.List(ctx, path, k.member, query) {
					if err != nil {
						return nil, err
					}
					items = append(items, item)
				}
				return items, nil
			}}
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
		return nil
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

// line prints the cells below those of the lines before.
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

// complete completes a kind, and then the names of objects by asking the server.
func complete(o *options, takes func(kind) bool) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return names(takes), cobra.ShellCompDirectiveNoFileComp
		}
		k, err := find(args[0], takes)
		if err != nil || len(args) > len(k.words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(command, k, args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
}

func completeList(o *options) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			var found []cobra.Completion
			for _, k := range kinds() {
				if isListed(k) {
					found = append(found, k.plural)
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		}
		k, err := find(args[0], isListed)
		if err != nil || len(args) > strings.Count(k.list, "%s") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(command, k, args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns what the word after these may be: of a list whose items they begin to name.
func (o *options) names(command *cobra.Command, k kind, words []string) (found []cobra.Completion) {
	list, part := k, len(words)
	for _, other := range kinds() { // the object that has the list is in a list of its own
		if len(words) == 0 && strings.Count(k.list, "%s") > 0 && len(other.words) == 1 && other.words[0] == k.words[0] && isListed(other) {
			list = other
		}
	}
	above := strings.Count(list.list, "%s")
	if above > len(words) || !isListed(list) {
		return nil
	}
	path, err := list.collection(words[:above])
	if err != nil {
		return nil
	}
	if program.ReadVariables(command.Flags(), os.LookupEnv) != nil {
		return nil
	}
	c, err := o.client(command.Context(), io.Discard)
	if err != nil {
		return nil
	}
	for item, err := range c.List(command.Context(), path, list.member, nil) {
		if err != nil {
			return found
		}
		r, err := list.item(item, time.Now())
		if err != nil || part-above >= len(r.name) || !slices.Equal(r.name[:part-above], words[above:]) {
			continue
		}
		found = append(found, r.name[part-above]+"\t"+strings.Join(r.cells, " "))
	}
	return found
}
