package ops_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// programs have alerts, a dashboard and a list of metrics each.
var programs = []string{"agentjob", "application", "controlplane", "krane", "nodepool", "shuttle"}

// targetLabels are those that a scrape adds.
var targetLabels = []string{"job", "instance", "namespace", "pod"}

// language has the experimental functions off, as a Prometheus without flags.
var language = parser.NewParser(parser.Options{})

func TestEachProgramHasAlertsADashboardAndAListOfMetrics(t *testing.T) {
	t.Parallel()
	for pattern, suffix := range map[string]string{"ops/prometheus/*": ".yaml", "ops/grafana/*": ".json", "ops/metrics/*": ".txt", "internal/ops/testdata/*": ".yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		var found []string
		for _, file := range files {
			found = append(found, strings.TrimSuffix(filepath.Base(file), suffix))
		}
		require.Equal(t, programs, found, pattern)
	}
}

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{root}, parts...)...))
	require.NoError(t, err)
	return content
}

// exported returns the labels of each metric of the program.
func exported(t *testing.T, program string) map[string][]string {
	t.Helper()
	metrics := map[string][]string{"up": nil}
	for line := range strings.SplitSeq(strings.TrimSpace(string(read(t, "ops", "metrics", program+".txt"))), "\n") {
		name, list, _ := strings.Cut(line, " ")
		metrics[name] = strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	}
	return metrics
}

// check returns what is wrong with an expression: a metric or label that no program exports.
func check(expression string, metrics map[string][]string) error {
	parsed, err := language.ParseExpr(strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(expression))
	if err != nil {
		return err
	}
	var errs []error
	known := func(name string) (own []string, histogram bool) {
		if own, ok := metrics[name]; ok {
			return own, false
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if own, ok := metrics[strings.TrimSuffix(name, suffix)]; ok && strings.HasSuffix(name, suffix) &&
				strings.HasSuffix(strings.TrimSuffix(name, suffix), "_seconds") {
				return own, true
			}
		}
		errs = append(errs, fmt.Errorf("no program exports %s", name))
		return nil, false
	}
	// usable returns the labels of all selectors below a node.
	usable := func(node parser.Node) (all []string) {
		all = slices.Clone(targetLabels)
		parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
			if selector, ok := n.(*parser.VectorSelector); ok {
				own, histogram := known(selector.Name)
				if all = append(all, own...); histogram {
					all = append(all, "le")
				}
			}
			return nil
		})
		return all
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			has := usable(n)
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(has, m.Name) {
					errs = append(errs, fmt.Errorf("%s has no label %s", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			has := usable(n.Expr)
			for _, name := range n.Grouping {
				if !slices.Contains(has, name) {
					errs = append(errs, fmt.Errorf("%s: nothing has the label %s", n, name))
				}
			}
		case *parser.BinaryExpr:
			if n.VectorMatching == nil {
				return nil
			}
			for _, name := range n.VectorMatching.MatchingLabels {
				if !slices.Contains(usable(n.LHS), name) || !slices.Contains(usable(n.RHS), name) {
					errs = append(errs, fmt.Errorf("%s: one side has no label %s", n, name))
				}
			}
		}
		return nil
	})
	return errors.Join(errs...)
}

// alerts returns the alerts of a program.
func alerts(t *testing.T, program string) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(
		read(t, "ops", "prometheus", program+".yaml"),
		false,
		model.UTF8Validation,
		language,
		slog.New(slog.DiscardHandler),
	)
	require.Empty(t, errs)
	var list []rulefmt.Rule
	for _, group := range groups.Groups {
		list = append(list, group.Rules...)
	}
	require.NotEmpty(t, list)
	return list
}

// sections returns the anchors of the runbooks, as GitHub makes them.
func sections(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(read(t, "docs", "runbooks.md")), -1) {
		found[regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")] = true
	}
	anchors := map[string]bool{}
	for heading := range found {
		anchors[strings.ReplaceAll(heading, " ", "-")] = true
	}
	return anchors
}

func TestEachAlertIsAboutWhatIsExportedAndHasARunbook(t *testing.T) {
	t.Parallel()
	anchors := sections(t)
	used := map[string]bool{}
	for _, program := range programs {
		metrics := exported(t, program)
		for _, alert := range alerts(t, program) {
			require.NotEmpty(t, alert.Alert, "%s: %s is no alert", program, alert.Record)
			require.False(t, used[alert.Alert], "%s is there twice", alert.Alert)
			used[alert.Alert] = true
			require.NoError(t, check(alert.Expr, metrics), alert.Alert)
			require.Contains(t, []string{"critical", "warning"}, alert.Labels["severity"], alert.Alert)
			for _, name := range []string{"summary", "description", "runbook_url"} {
				require.NotEmpty(t, alert.Annotations[name], "%s: %s", alert.Alert, name)
			}
			page, anchor, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
			require.Equal(t, "https://github.com/seed-9e1ffd66/trueup/blob/main/docs/runbooks.md", page)
			require.True(t, anchors[anchor], "%s: docs/runbooks.md has no section %s", alert.Alert, anchor)
		}
	}
}

// scenario is the series of one alert.
type scenario struct{ Fires, Silent []string }

// scraped returns the series with what a scrape adds: labels, and up.
func scraped(program string, series []string) []string {
	if !slices.ContainsFunc(series, func(s string) bool { return strings.HasPrefix(s, "up{") }) {
		series = append(slices.Clone(series), "up 1x60")
	}
	added := make([]string, len(series))
	for n, s := range series {
		name, values, _ := strings.Cut(s, " ")
		own := strings.TrimSuffix(name, "}")
		if own == name {
			own += "{"
		} else {
			own += ","
		}
		for label, value := range map[string]string{"job": "trueup-" + program, "instance": "a:9090"} {
			if !strings.Contains(name, label+`="`) {
				own += label + `="` + value + `",`
			}
		}
		added[n] = strings.TrimSuffix(own, ",") + "} " + values
	}
	return added
}

// evaluate returns the alerts of the program that fire at some minute, with their
// annotations, and those that fire at the last minute of the series.
func evaluate(t *testing.T, program string, series []string) (ever map[string][]*rules.Alert, atTheEnd map[string]bool) {
	t.Helper()
	const minutes = 60
	series = scraped(program, series)
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  ")+"\n")
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	query := rules.EngineQueryFunc(engine, storage)
	last := minutes
	for _, s := range series {
		_, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(s)
		require.NoError(t, err)
		last = max(last, len(values)-1)
	}
	ever, atTheEnd = map[string][]*rules.Alert{}, map[string]bool{}
	for _, alert := range alerts(t, program) {
		expr, err := language.ParseExpr(alert.Expr)
		require.NoError(t, err)
		rule := rules.NewAlertingRule(alert.Alert, expr, time.Duration(alert.For), time.Duration(alert.KeepFiringFor),
			labels.FromMap(alert.Labels), labels.FromMap(alert.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
		for minute := range last + 1 {
			_, err := rule.Eval(t.Context(), 0, time.Unix(int64(minute)*60, 0), query, nil, 0)
			require.NoError(t, err, alert.Alert)
			atTheEnd[alert.Alert] = false
			for _, active := range rule.ActiveAlerts() {
				if active.State == rules.StateFiring {
					ever[alert.Alert] = append(ever[alert.Alert], active)
					atTheEnd[alert.Alert] = true
				}
			}
		}
	}
	return ever, atTheEnd
}

func TestEachAlertFiresOnItsFaultAndIsSilentOtherwise(t *testing.T) {
	t.Parallel()
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			metrics := exported(t, program)
			var scenarios map[string]scenario
			require.NoError(t, yaml.Unmarshal(read(t, "internal", "ops", "testdata", program+".yaml"), &scenarios))
			for _, alert := range alerts(t, program) {
				s, ok := scenarios[alert.Alert]
				require.True(t, ok, "%s has no series in testdata", alert.Alert)
				delete(scenarios, alert.Alert)
				for _, series := range slices.Concat(s.Fires, s.Silent) {
					name, _, _ := strings.Cut(series, " ")
					require.NoError(t, check(name, metrics), "%s: a series that is not exported", alert.Alert)
				}
				ever, now := evaluate(t, program, s.Fires)
				require.True(t, now[alert.Alert], "%s does not fire", alert.Alert)
				for _, fired := range ever[alert.Alert] {
					fired.Annotations.Range(func(l labels.Label) {
						require.NotRegexp(t, `<error|<no value>|\{\{|%!|(^|[ (])[.,:;)]|  `, l.Value, "%s: %s", alert.Alert, l.Name)
					})
				}
				ever, _ = evaluate(t, program, s.Silent)
				require.Empty(t, ever, "%s: series of a healthy program", alert.Alert)
			}
			require.Empty(t, scenarios, "series of no alert")
		})
	}
}

// dashboard is what is checked of a dashboard of Grafana.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  source
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

type source struct{ Type, UID string }

func TestEachDashboardShowsWhatIsExported(t *testing.T) {
	t.Parallel()
	for _, program := range programs {
		metrics := exported(t, program)
		var d dashboard
		require.NoError(t, json.Unmarshal(read(t, "ops", "grafana", program+".json"), &d))
		require.Equal(t, "trueup-"+program, d.UID)
		require.NotEmpty(t, d.Title)
		require.Positive(t, d.SchemaVersion)
		require.Equal(t, "datasource", d.Templating.List[0].Name)
		for _, variable := range d.Templating.List[1:] {
			at := program + ": " + variable.Name
			values := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(variable.Query)
			require.NotNil(t, values, at)
			require.Contains(t, metrics[values[1]], values[2], at)
			require.True(
				t,
				slices.ContainsFunc(d.Panels, func(p panel) bool { return strings.Contains(p.Targets[0].Expr, `=~"$`+variable.Name+`"`) }),
				at,
			)
		}
		ids, titles, shown, taken := map[int]bool{}, map[string]bool{}, map[string]bool{}, map[[2]int]bool{}
		for _, panel := range d.Panels {
			at := program + ": " + panel.Title
			require.False(t, ids[panel.ID], at)
			require.False(t, titles[panel.Title], at)
			ids[panel.ID], titles[panel.Title] = true, true
			require.NotEmpty(t, panel.Targets, at)
			for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
				for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
					require.False(t, taken[[2]int{x, y}], "%s: lies on another panel", at)
					require.Less(t, x, 24, at)
					taken[[2]int{x, y}] = true
				}
			}
			refs := map[string]bool{}
			for _, target := range panel.Targets {
				require.False(t, refs[target.RefID], at)
				refs[target.RefID] = true
				require.NoError(t, check(target.Expr, metrics), at)
				require.Equal(t, source{"prometheus", "${datasource}"}, target.Datasource, at)
				for name := range metrics {
					if regexp.MustCompile(`\b` + name + `(_bucket)?\b`).MatchString(target.Expr) {
						shown[name] = true
					}
				}
			}
		}
		for name := range metrics {
			// What every program has is not shown for each.
			if name != "up" && !strings.HasPrefix(name, "process_") && !slices.Contains(notShown, name) {
				require.True(t, shown[name], "%s: %s is on no panel", program, name)
			}
		}
	}
}

// notShown are metrics that no panel needs.
var notShown = []string{
	"trueup_controlplane_status_looks_total", "trueup_controlplane_status_viewers", "trueup_controlplane_messages_kept",
}

// TestTheChecksFindWhatIsWrong has one fault for each check of an expression.
func TestTheChecksFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	metrics := map[string][]string{"up": nil, "a_total": {"code"}, "b_seconds": {"route"}}
	for expression, want := range map[string]string{
		`a_total`: "", `sum by (code) (rate(a_total{code="1"}[5m]))`: "", `histogram_quantile(0.9, sum by (le, route) (rate(b_seconds_bucket[$__rate_interval])))`: "",
		`up{job="a"} == 0`: "", `a_total and on (job) b_seconds_count`: "",
		`c_total`: "no program exports c_total", `a_total_bucket`: "no program exports a_total_bucket", `a_total{route="x"}`: "has no label route",
		`sum by (route) (a_total)`: "label route", `a_total and on (code) b_seconds_sum`: "one side has no label code", `sum(`: "parse error",
	} {
		err := check(expression, metrics)
		if want == "" {
			require.NoError(t, err, expression)
			continue
		}
		require.ErrorContains(t, err, want, expression)
	}
}
