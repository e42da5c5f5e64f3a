package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/chart"
)

// Report is a trace replayed with several values of minStandby.
type Report struct {
	Settings Settings `json:"-"`
	// Chosen is the value of minStandby whose machines are drawn.
	Chosen int `json:"chosen"`
	// Enough is the least of the values with which 95 of 100 pods wait no longer than a
	// boot; -1 if none does.
	Enough int `json:"enough"`
	// Results are in the order of minStandby.
	Results []Result `json:"results"`
}

// NewReport replays the pods with each number of standby machines, and with the chosen
// one. A negative choice leaves it to the results: the least that is enough, or the one
// with the shortest waiting time.
func NewReport(s Settings, pods []Pod, standby []int, chosen int) (Report, error) {
	standby = slices.Clone(standby)
	if chosen >= 0 {
		standby = append(standby, chosen)
	}
	slices.Sort(standby)
	results, err := s.Sweep(pods, slices.Compact(standby))
	if err != nil || len(results) == 0 {
		return Report{}, err
	}
	r := Report{Settings: s.withDefaults(), Chosen: chosen, Enough: -1, Results: results}
	best := results[0]
	for _, one := range results {
		if r.Enough < 0 && one.Wait.P95 <= r.Settings.Boot {
			r.Enough = one.MinStandby
		}
		if one.Wait.P95 < best.Wait.P95 {
			best = one
		}
	}
	if r.Chosen < 0 {
		if r.Chosen = r.Enough; r.Chosen < 0 {
			r.Chosen = best.MinStandby
		}
	}
	return r, nil
}

// Range returns the numbers from the first to the last; of more than twelve, twelve that
// are as far apart as possible, with the first and the last.
func Range(first, last int) []int {
	const most = 12
	n := last - first + 1
	var all []int
	for i := range min(n, most) {
		if n <= most {
			all = append(all, first+i)
		} else {
			all = append(all, first+(i*(n-1)+(most-1)/2)/(most-1))
		}
	}
	return all
}

// priced reports whether costs are of interest.
func (r Report) priced() bool { return r.Settings.Price > 0 || r.Settings.PriceStopped > 0 }

// WriteTable writes a line for each result, and what a reader should know beside them.
func (r Report) WriteTable(out io.Writer) error {
	var rows, b strings.Builder
	cost := ""
	if r.priced() {
		cost = "COST\t"
	}
	rows.WriteString("MINSTANDBY\tHITS\tWAIT P50\tP95\tMAX\tWARMING h\tRUNNING h\tSTOPPED h\t" + cost + "\n")
	for _, one := range r.Results {
		mark := ""
		if one.MinStandby == r.Chosen {
			mark = "* "
		}
		fmt.Fprintf(
			&rows,
			"%s%d\t%.1f %%\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t",
			mark,
			one.MinStandby,
			100*one.HitShare,
			short(one.Wait.P50),
			short(one.Wait.P95),
			short(one.Wait.Max),
			one.Hours.Warming,
			one.Hours.Starting+one.Hours.Running,
			one.Hours.Stopped(),
		)
		if r.priced() {
			fmt.Fprintf(&rows, "%.2f\t", one.Cost)
		}
		rows.WriteByte('\n')
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(w, rows.String()); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b.WriteByte('\n')
	if r.Enough >= 0 {
		fmt.Fprintf(&b, "minStandby %d is the least with which 95 %% of the pods wait no longer than a boot (%s).\n", r.Enough, r.Settings.Boot)
	} else {
		fmt.Fprintf(&b, "With none of these do 95 %% of the pods wait no longer than a boot (%s).\n", r.Settings.Boot)
	}
	if r.Settings.Capacity.Pods == 1 {
		fmt.Fprintf(&b, "What a machine of type %q has room for is not known: each pod is taken to need one.\n", r.Settings.InstanceType)
	}
	if len(r.Results) > 0 {
		if u := r.Results[0].Unplaced; len(u) > 0 {
			fmt.Fprintf(&b, "%d pods fit on no machine of the type and are left out, such as %s.\n", len(u), strings.Join(u[:min(3, len(u))], ", "))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func short(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// WriteJSON writes the report as JSON.
func (r Report) WriteJSON(out io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// SVG returns the report as a picture: waiting time and cost over minStandby, and the
// machines over time with the chosen value.
func (r Report) SVG() []byte {
	var slowest time.Duration
	for _, one := range r.Results {
		slowest = max(slowest, one.Wait.P95)
	}
	unit, name := time.Second, "s"
	switch {
	case slowest > 3*time.Hour:
		unit, name = time.Hour, "h"
	case slowest > 5*time.Minute:
		unit, name = time.Minute, "min"
	}
	t := chart.Tradeoff{
		Title: "Waiting time and cost over minStandby", Choice: "minStandby (machines)", Chosen: r.Chosen,
		Left: chart.Figure{Name: "waiting time p95 (" + name + ")"}, Right: chart.Figure{Name: "cost of the trace (in the unit of the price)"},
	}
	if !r.priced() {
		t.Title = "Waiting time and machine-hours over minStandby"
		t.Right.Name = "machines that are not stopped (machine-hours)"
	}
	s := chart.States{
		Title: fmt.Sprintf(
			"Machines by state with minStandby %d",
			r.Chosen,
		),
		Names: []string{"running", "starting", "warming up", "stopping", "standby"},
		Line:  "pods waiting",
	}
	title := "Pool replay"
	for _, one := range r.Results {
		t.Choices = append(t.Choices, one.MinStandby)
		t.Left.Values = append(t.Left.Values, one.Wait.P95.Seconds()/unit.Seconds())
		if r.priced() {
			t.Right.Values = append(t.Right.Values, one.Cost)
		} else {
			t.Right.Values = append(t.Right.Values, one.Hours.Powered())
		}
		if one.MinStandby == r.Chosen {
			s.Samples = one.Samples
			title = fmt.Sprintf(
				"%d pods, at most %d machines: with minStandby %d, %.1f %% found room or standby",
				one.Pods,
				r.Settings.Pool.Size,
				r.Chosen,
				100*one.HitShare,
			)
		}
	}
	return chart.Page(title, t, s)
}
