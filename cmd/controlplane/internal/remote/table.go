package remote

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
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
	value, err := decode(text)
	if err != nil {
		return row{}, err
	}
	r := row{text: string(text)}
	for _, member := range k.key {
		r.name = append(r.name, cell(value, member, now))
	}
	for _, column := range k.columns {
		if k.times {
			r.cells = append(r.cells, cmp.Or(plain(value, column[1]), "-"))
		} else {
			r.cells = append(r.cells, cell(value, column[1], now))
		}
	}
	return r, nil
}

func decode(text json.RawMessage) (value map[string]any, err error) {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// member returns the member at that path, nil for none.
func member(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// printable replaces what would move the cursor of a terminal, or turn the order of a line: agents have
// reported it.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// list returns the items with commas between.
func list(items []any) string {
	var all []string
	for _, one := range items {
		all = append(all, fmt.Sprint(one))
	}
	return strings.Join(all, ",")
}

// cell returns a member as a cell: a time of the past as its age, and - for none.
func cell(value any, path string, now time.Time) string {
	switch v := member(value, path).(type) {
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
		return printable(v)
	case []any:
		return list(v)
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

// filter is a flag of list and watch that some kinds take.
type filter struct {
	flag string
	// kinds take it, as this parameter of the API.
	kinds     []string
	parameter string
	usage     string
}

func allFilters() []filter {
	used, gaps := []string{"usage"}, []string{"usage", "usage-gaps"}
	return []filter{
		{"cluster", append([]string{"projects"}, gaps...), "cluster_id", "only this cluster"},
		{"object", []string{"audit"}, "object", "a kind of object, or a kind, / and its name"},
		{"actor", []string{"audit"}, "actor", "who did it, such as admin or cluster"},
		{"log", []string{"audit"}, "log", "changes, agents, access, refused or all; none: changes"},
		{"since", []string{"audit"}, "since", "not before this time, such as 2026-01-31T12:00:00Z, or a duration ago, such as 2h or 7d"},
		{"from", gaps, "from", "the first day, such as 2026-01-31, in UTC; none: the first of this month"},
		{"to", gaps, "to", "the day after the last; none: tomorrow"},
		{"by", used, "by", "what to sum by: some of day, cluster, workspace, project, environment, service, phase, with commas between, or none"},
		{"workspace", used, "workspace_id", "only this workspace"},
		{"project", used, "project_id", "only this project"},
		{"environment", used, "environment", "only the environments of this name"},
		{"service", used, "service_id", "only this service"},
		{"phase", used, "phase", "only pods in this phase, such as Running"},
	}
}

// filters are the values of these flags.
type filters map[string]*string

func (f filters) flags(command *cobra.Command) {
	for _, one := range allFilters() {
		f[one.flag] = command.Flags().String(one.flag, "", strings.Join(one.kinds, ", ")+": "+one.usage)
	}
}

// query returns the filters that are set, of those that the kind takes.
func (f filters) query(k kind, now time.Time) (url.Values, error) {
	query := url.Values{}
	for _, one := range allFilters() {
		value := *f[one.flag]
		switch {
		case value == "":
			continue
		case !slices.Contains(one.kinds, k.plural):
			return nil, program.Usagef("--%s: is for %s, not for %s", one.flag, strings.Join(one.kinds, ", "), k.plural)
		}
		if one.flag == "since" {
			if ago, err := duration(value); err == nil {
				value = now.Add(-ago).UTC().Format(time.RFC3339)
			}
		}
		query.Set(one.parameter, value)
	}
	return query, nil
}

// duration reads a duration, which may be whole days, such as 7d.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		const most = 36_500
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(min(n, most)) * 24 * time.Hour, err //nolint:gosec // it is small
	}
	return time.ParseDuration(text)
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
	if by := query.Get("by"); by != "" {
		k.columns = summedBy(k.columns, strings.Split(by, ","))
	}
	c, err := o.client(command.Context(), command.ErrOrStderr())
	if err != nil {
		return k, nil, err
	}
	return k, func(ctx context.Context) iter.Seq2[json.RawMessage, error] { return c.List(ctx, path, k.member, query) }, nil
}

// summedBy returns the columns without the dimensions that are not summed by.
func summedBy(columns [][2]string, by []string) [][2]string {
	return slices.DeleteFunc(slices.Clone(columns), func(column [2]string) bool {
		dimension := strings.TrimSuffix(column[1], "_id")
		return slices.ContainsFunc(allFilters(), func(f filter) bool { return f.flag == dimension }) && !slices.Contains(by, dimension) ||
			dimension == "day" && !slices.Contains(by, "day")
	})
}

func listCommand() *cobra.Command {
	o := options{tables: true}
	f := filters{}
	limit := 1000
	command := &cobra.Command{
		Use:   "list KIND [OF...]",
		Short: "List objects of a running control plane",
		Example: `  controlplane list clusters
  controlplane list services PROJECT_ID
  controlplane list deployments REGION_ID -o json
  controlplane list audit --object cluster --since 24h
  controlplane list usage --from 2026-01-01 --to 2026-02-01 --by day,project -o csv --limit 100000`,
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
			if more && o.output == outputCSV {
				return program.Usagef("--limit: is %d, and there are more; a part of a table is not printed", limit)
			}
			if more {
				fmt.Fprintf(command.ErrOrStderr(), "There are more than %d; see --limit.\n", limit) //nolint:errcheck // a reader that went away
			}
			return o.list(command.OutOrStdout(), k, items)
		},
	}
	o.flags(command, true)
	command.Flags().Lookup("output").Usage = "json, yaml or csv; none: a table"
	f.flags(command)
	command.Flags().IntVar(&limit, "limit", limit, "how many items to show at most")
	return command
}

// list prints the items.
func (o *options) list(out io.Writer, k kind, items []json.RawMessage) error {
	if o.output == outputCSV {
		return k.csv(out, items)
	}
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

// csv prints the items as they are, each a line of cells.
func (k kind) csv(out io.Writer, items []json.RawMessage) error {
	table := csv.NewWriter(out)
	var titles []string
	for _, column := range k.columns {
		titles = append(titles, column[1])
	}
	rows := [][]string{titles}
	for _, item := range items {
		value, err := decode(item)
		if err != nil {
			return err
		}
		var cells []string
		for _, column := range k.columns {
			text := plain(value, column[1])
			if strings.ContainsAny(text[:min(1, len(text))], "=+-@") {
				text = "'" + text // or a spreadsheet computes what an agent has reported
			}
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	return table.WriteAll(rows)
}

// plain returns a member as it is, and nothing for none.
func plain(value any, path string) string {
	switch v := member(value, path).(type) {
	case nil:
		return ""
	case []any:
		return list(v)
	case string:
		return printable(v)
	default:
		return fmt.Sprint(v)
	}
}

func (k kind) titles() string {
	var titles []string
	for _, column := range k.columns {
		titles = append(titles, column[0])
	}
	return strings.Join(titles, "\t")
}
