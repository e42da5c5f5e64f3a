package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

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
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, fmt.Sprint(one))
		}
		return strings.Join(all, ",")
	default:
		return fmt.Sprint(v)
	}
}

func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < -time.Minute: // below that, another clock
		return "in " + age(-d)
	case d < 0:
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
	flags.StringVar(&f.cluster, "cluster", "", "projects: only this cluster")
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

// listed returns the kind that the arguments name, and what lists the items below the object
// that they name.
func (o *options) listed(command *cobra.Command, args []string, f filters) (
	k kind, list func(context.Context) iter.Seq2[json.RawMessage, error], err error,
) {
	name, words := first(args)
	if k, err = find(name, isListed); err != nil {
		return k, nil, err
	}
	path, err := k.collection(words)
	if err != nil {
		return k, nil, err
	}
	query, err := f.query(k, time.Now())
	if err != nil {
		return k, nil, err
	}
	c, err := o.client(command.Context(), command.ErrOrStderr())
	if err != nil {
		return k, nil, err
	}
	return k, func(ctx context.Context) iter.Seq2[json.RawMessage, error] { return c.List(ctx, path, k.member, query) }, nil
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
			if limit < 1 {
				return program.Usagef("--limit: is %d, must be at least 1", limit)
			}
			k, list, err := o.listed(command, args, f)
			if err != nil {
				return err
			}
			items, more := []json.RawMessage{}, false
			for item, err := range list(command.Context()) {
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
