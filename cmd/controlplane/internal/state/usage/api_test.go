package usage_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi/openapitest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
)

// serve returns what asks the routes on that database, held against the API reference.
func serve(t *testing.T, database *db.Database) func(path string) (status int, body string) {
	t.Helper()
	api := adminapi.API{Logger: slog.New(slog.DiscardHandler)}
	server := httptest.NewServer(openapitest.Handler(t, api.Mux(usage.Routes(database))))
	t.Cleanup(server.Close)
	return func(path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+adminapi.Prefix+path, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
}

func TestUsageIsReadInPartsAndAsATable(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	ask := serve(t, database)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	last := today.AddDate(0, 0, -today.Day()-3) // of the month before, and final
	var records []usage.Record
	for n := range 25 {
		project := func(r *usage.Record) { r.ProjectID, r.MemoryBytes = id(2, n), 1<<50 }
		for _, at := range []time.Time{today, last} {
			records = append(records, record(n, at, project))
		}
	}
	save(t, database, clusterA, records...)

	var found []map[string]any
	next, parts := "", 0
	for {
		status, body := ask("usage?limit=10&after=" + url.QueryEscape(next))
		if next == "" {
			status, body = ask("usage?limit=10")
		}
		require.Equal(t, 200, status, body)
		var part struct {
			Usage []map[string]any
			Next  string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &part))
		found, parts = append(found, part.Usage...), parts+1
		if next = part.Next; next == "" {
			break
		}
	}
	require.Equal(t, 3, parts)
	require.Len(t, found, 25, "those of this month")
	for n, row := range found {
		require.Equal(t, map[string]any{
			"day": today.Format(time.DateOnly), "cluster_id": clusterA, "workspace_id": id(1, 0), "project_id": id(2, n),
			"environment": "production", "service_id": id(3, 0), "phase": "Running",
			"pod_minutes": 1.0, "cpu_milli_minutes": 250.0, "memory_byte_minutes": float64(1 << 50), "final": false,
		}, row)
	}

	status, body := ask("usage.csv?by=project,day&from=" + last.Format(time.DateOnly) + "&project_id=" + id(2, 7))
	require.Equal(t, 200, status, body)
	require.Equal(
		t,
		fmt.Sprintf("day,project_id,pod_minutes,cpu_milli_minutes,memory_byte_minutes,final\n%s,%s,1,250,%d,true\n%s,%s,1,250,%d,false\n",
			last.Format(time.DateOnly), id(2, 7), 1<<50, today.Format(time.DateOnly), id(2, 7), 1<<50),
		body,
	)
	status, body = ask("usage.csv?by=none&from=2026-01-01")
	require.Equal(t, 200, status, body)
	require.Equal(t, fmt.Sprintf("pod_minutes,cpu_milli_minutes,memory_byte_minutes,final\n50,12500,%d,false\n", 50<<50), body)
	status, body = ask("usage.csv?from=2025-01-01&to=2025-02-01")
	require.Equal(t, 200, status, body)
	require.Equal(t, 1, strings.Count(body, "\n"), "the titles alone")

	for filter, other := range map[string]string{
		"cluster_id=" + clusterA: clusterB, "workspace_id=" + id(1, 0): id(1, 9), "project_id=" + id(2, 7): id(2, 99),
		"environment=production": "staging",
		"service_id=" + id(3, 0): id(3, 9), "phase=Running": "Failed",
	} {
		status, body = ask("usage?by=none&" + filter)
		require.Equal(t, 200, status, body)
		require.Contains(t, body, `"pod_minutes":`, filter)
		name, _, _ := strings.Cut(filter, "=")
		status, body = ask("usage?by=none&" + name + "=" + other)
		require.Equal(t, 200, status, body)
		require.Equal(t, `{"usage":[]}`, body, name)
	}

	save(t, database, clusterA, record(0, today.Add(time.Minute), func(r *usage.Record) { r.MemoryBytes = 1 << 50 }))
	write(t, database, `UPDATE usage_days SET memory_gib_minutes = memory_gib_minutes * 100000000`)
	_, body = ask("usage?by=none")
	require.Contains(t, body, `"memory_byte_minutes":2927`, "more than 64 bits")
}

func TestAWrongQuestionIsRefusedByName(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	save(t, database, clusterA, record(1, time.Now()))
	ask := serve(t, database)
	for question, want := range map[string]string{
		"usage?from=yesterday":                         `from is \"yesterday\": want a day, such as 2026-01-31`,
		"usage?from=2026-02-30":                        `from is \"2026-02-30\": want a day`,
		"usage?from=2026-02-01T00:00:00Z":              `want a day`,
		"usage?from=2026-02-01&to=2026-02-01":          `to is 2026-02-01: want a day after from, 2026-02-01`,
		"usage?from=2026-03-01&to=2026-02-01":          `want a day after from, 2026-03-01`,
		"usage?by=customer":                            `by is \"customer\": want none, or some of day, cluster, workspace`,
		"usage?by=day,day":                             `each once`,
		"usage?by=day,none":                            `by is \"day,none\"`,
		"usage?by=":                                    `by is \"\"`,
		"usage?project_id=shop":                        `project_id is \"shop\": want a UUID`,
		"usage?phase=%00":                              `phase is`,
		"usage?phase=running":                          `phase is \"running\": want Pending, Running, Succeeded`,
		"usage/gaps?after=x":                           `after is \"x\": want the next of an answer before`,
		"usage?tier=nova":                              `tier: want no such parameter: there are`,
		"usage?after=x":                                `after is \"x\": want the next of an answer before to the same question`,
		"usage?by=none&after=x":                        `after is \"x\"`,
		"usage?by=day&after=2026-13-01":                `after is \"2026-13-01\"`,
		"usage?by=day,project&after=2026-10-01":        `after is`,
		"usage?format=csv":                             `format: want no such parameter`,
		"usage.csv?limit=5":                            `limit: want no such parameter`,
		"usage.csv?by=month":                           `by is`,
		"usage/gaps?from=2026-01-01&to=2026-12-01":     `to is 2026-12-01: want at most 100 days after from`,
		"usage/gaps?cluster_id=x":                      `cluster_id is`,
		"usage/gaps?by=day":                            `by: want no such parameter`,
		"usage?from=2026-01-01&from=2026-02-01":        `from is 2 values: want one value`,
		"usage?environment=" + strings.Repeat("a", 99): `environment is`,
	} {
		status, body := ask(question)
		require.Equal(t, 400, status, "%s: %s", question, body)
		require.Contains(t, body, want, question)
	}
}

func TestATableIsWholeOrRefused(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	day := time.Now().UTC().Truncate(24 * time.Hour)
	rows := func(from, to int) {
		write(t, database, `WITH RECURSIVE numbers (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
			INSERT INTO usage_days SELECT ?, 'c', 'w', 'p', 'e', n, 'Running', 1, 1, 1, 1 FROM numbers`, from, to, day.UnixMilli())
	}
	ask := serve(t, database)
	rows(1, 100_000)
	status, body := ask("usage.csv")
	require.Equal(t, 200, status)
	require.Equal(t, 100_001, strings.Count(body, "\n"))
	rows(100_001, 100_001)
	status, body = ask("usage.csv")
	require.Equal(t, 422, status, body)
	require.Contains(t, body, `"too_many_rows"`)
	require.Contains(t, body, "sum by less")
	status, _ = ask("usage.csv?by=day")
	require.Equal(t, 200, status)
}

func TestGapsAreReadInParts(t *testing.T) {
	t.Parallel()
	database := openSQLite(t, filepath.Join(t.TempDir(), "trueup.db"))
	begin := time.Now().UTC().Truncate(time.Hour).Add(-30 * time.Hour)
	var records []usage.Record
	for n := range 11 {
		at := begin.Add(time.Duration(n) * 2 * time.Minute)
		records = append(records, record(1, at))
		report(t, database, clusterA, at, 1)
		report(t, database, clusterA, at.Add(time.Minute), 1)
	}
	save(t, database, clusterA, records...)
	ask := serve(t, database)
	question := "usage/gaps?limit=4&from=" + begin.AddDate(0, 0, -1).Format(time.DateOnly)
	var sizes []int
	seen := map[string]bool{}
	for next := ""; ; {
		path := question
		if next != "" {
			path += "&after=" + url.QueryEscape(next)
		}
		status, body := ask(path)
		require.Equal(t, 200, status, body)
		var part struct {
			Gaps []usage.Gap
			Next string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &part))
		for _, g := range part.Gaps {
			require.Equal(t, usage.ReasonUnrecorded, g.Reason)
			seen[g.Key()] = true
		}
		sizes = append(sizes, len(part.Gaps))
		if next = part.Next; next == "" {
			break
		}
	}
	require.Equal(t, []int{4, 4, 3}, sizes)
	require.Len(t, seen, 11, "the minute after the last record, too: pods were counted then")
}
