package usage

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

const (
	// maxRows is how many rows a CSV has at most.
	maxRows = 100_000
	// maxGapDays is how long a time can be searched for gaps.
	maxGapDays = 100
)

var (
	dayPattern       = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
	dimensionPattern = regexp.MustCompile(`^(none|[a-z]+(,[a-z]+)*)$`)
	uuidPattern      = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	phasePattern     = regexp.MustCompile(`^(Pending|Running|Succeeded|Failed|Unknown)$`)
	gapPattern       = regexp.MustCompile(`^[0-9a-f-]{36}/\d{8}T\d{4}$`)
	namePattern      = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)
)

// Routes returns the endpoints that answer what was used.
func Routes(database *db.Database) []adminapi.Route {
	text := func(name, description string, pattern *regexp.Regexp) adminapi.Parameter {
		return adminapi.Parameter{Name: name, Description: description, Schema: map[string]any{"type": "string", "pattern": pattern.String()}}
	}
	days := []adminapi.Parameter{
		text("from", "The first day, such as 2026-01-31, in UTC. Without it: the first of this month.", dayPattern),
		text("to", "The day after the last. Without it: tomorrow.", dayPattern),
	}
	filters := slices.Concat(days, []adminapi.Parameter{
		text("cluster_id", "Of this cluster alone.", uuidPattern),
		text(
			"by",
			"What to sum by: some of "+strings.Join(Dimensions(), ", ")+", with commas between, or none. Without it: all of them.",
			dimensionPattern,
		),
		text("workspace_id", "Of this workspace alone.", uuidPattern),
		text("project_id", "Of this project alone.", uuidPattern),
		text("environment", "Of the environments of this name alone.", namePattern),
		text("service_id", "Of this service alone.", uuidPattern),
		text("phase", "Of pods in this phase alone: Pending, Running, Succeeded, Failed or Unknown.", phasePattern),
	})
	return []adminapi.Route{
		adminapi.Route{
			Method: http.MethodGet, Path: adminapi.Prefix + "usage", Operation: adminapi.ListOperation("usage", Sum{}, filters...),
			Handle: func(w http.ResponseWriter, r *http.Request) error {
				query := adminapi.NewQuery(r)
				q := parse(query)
				return adminapi.WritePart(r.Context(), w, query, "usage", func(s *Sum) string { return s.Key(q.By) },
					func(ctx context.Context, after string, limit int) ([]Sum, error) {
						q.After, q.Limit = after, limit
						return Sums(ctx, database, q)
					})
			},
		}.Named("listUsage", "List what was used, by UTC day, whose it was, and phase of the pods."),
		adminapi.Route{
			Method: http.MethodGet, Path: adminapi.Prefix + "usage.csv",
			Operation: adminapi.Operation{Query: filters, Answers: map[int]any{http.StatusOK: adminapi.CSV("")}},
			Handle: func(w http.ResponseWriter, r *http.Request) error {
				query := adminapi.NewQuery(r)
				q := parse(query)
				if err := query.Err(); err != nil {
					return err
				}
				return writeCSV(r.Context(), w, database, q)
			},
		}.Named("getUsageTable", "Return the same as a CSV with a line of titles: all of it, at most 100000 rows.").
			Refuses(http.StatusUnprocessableEntity, "too_many_rows"),
		adminapi.Route{
			Method: http.MethodGet, Path: adminapi.Prefix + "usage/gaps",
			Operation: adminapi.ListOperation("gaps", Gap{}, filters[:3:3]...),
			Handle: func(w http.ResponseWriter, r *http.Request) error {
				query := adminapi.NewQuery(r)
				from, to := period(query)
				if to.Sub(from) > maxGapDays*day {
					query.Wrong("to", to.Format(dateLayout), fmt.Sprintf("at most %d days after from", maxGapDays))
				}
				clusterID := query.Text("cluster_id", uuidPattern, "the UUID of a cluster")
				return adminapi.WritePart(r.Context(), w, query, "gaps", (*Gap).Key,
					func(ctx context.Context, after string, limit int) ([]Gap, error) {
						if after != "" && !gapPattern.MatchString(after) {
							return nil, wrongKey(after)
						}
						gaps, err := Gaps(ctx, database, clusterID, from, to)
						gaps = slices.DeleteFunc(gaps, func(g Gap) bool { return g.Key() <= after })
						return gaps[:min(limit, len(gaps))], err
					})
			},
		}.Named("listUsageGaps", "List the times without billing records of clusters that had pods or did not report."),
	}
}

// period returns the days of a query.
func period(query *adminapi.Query) (from, to time.Time) {
	today := time.Now().UTC().Truncate(day)
	from, to = today.AddDate(0, 0, 1-today.Day()), today.AddDate(0, 0, 1)
	for _, p := range []struct {
		name string
		at   *time.Time
	}{{"from", &from}, {"to", &to}} {
		const want = "a day, such as 2026-01-31"
		value := query.Text(p.name, dayPattern, want)
		if value == "" {
			continue
		}
		at, err := time.Parse(dateLayout, value)
		if err != nil {
			query.Wrong(p.name, strconv.Quote(value), want)
			continue
		}
		*p.at = at
	}
	if !to.After(from) {
		query.Wrong("to", to.Format(dateLayout), "a day after from, "+from.Format(dateLayout))
	}
	return from, to
}

// parse reads what is to be summed.
func parse(query *adminapi.Query) Query {
	q := Query{By: Dimensions(), Where: map[string]string{}}
	q.From, q.To = period(query)
	want := "none, or some of " + strings.Join(Dimensions(), ", ") + ", each once, with commas between"
	if text := query.Text("by", dimensionPattern, want); text != "" {
		given := strings.Split(text, ",")
		q.By = slices.DeleteFunc(q.By, func(d string) bool { return !slices.Contains(given, d) })
		if text != "none" && len(q.By) != len(given) {
			query.Wrong("by", fmt.Sprintf("%.80q", text), want)
		}
	}
	for _, dimension := range Dimensions()[1:] {
		name, pattern, want := column(dimension), uuidPattern, "a UUID"
		switch dimension {
		case "phase":
			pattern, want = phasePattern, "Pending, Running, Succeeded, Failed or Unknown"
		case "environment":
			pattern, want = namePattern, "a name"
		}
		if value := query.Text(name, pattern, want); value != "" {
			q.Where[dimension] = value
		}
	}
	return q
}

// writeCSV answers with all rows, or with none if there are too many.
func writeCSV(ctx context.Context, w http.ResponseWriter, database *db.Database, q Query) error {
	q.Limit = maxRows + 1
	rows, err := Sums(ctx, database, q)
	if err != nil {
		return err
	}
	if len(rows) > maxRows {
		return &adminapi.Error{
			Status: http.StatusUnprocessableEntity, Code: "too_many_rows",
			Message: fmt.Sprintf("there are more than %d rows: ask for fewer days, or sum by less", maxRows),
		}
	}
	var titles []string
	for _, dimension := range q.By {
		titles = append(titles, column(dimension))
	}
	var text bytes.Buffer
	table := csv.NewWriter(&text)
	// A buffer takes everything.
	_ = table.Write(append(titles, "pod_minutes", "cpu_milli_minutes", "memory_byte_minutes", "final"))
	for i := range rows {
		s := &rows[i]
		var cells []string
		for _, dimension := range q.By {
			cells = append(cells, *s.value(dimension))
		}
		_ = table.Write(append(cells, strconv.FormatInt(s.PodMinutes, 10), strconv.FormatInt(s.CPUMilliMinutes, 10),
			s.MemoryByteMinutes.String(), strconv.FormatBool(s.Final)))
	}
	table.Flush()
	adminapi.WriteCSV(w, text.Bytes())
	return nil
}

func wrongKey(key string) error {
	return adminapi.Invalid(
		starbase.FieldError{Field: "after", Value: fmt.Sprintf("%.80q", key), Want: "the next of an answer before to the same question"},
	)
}
