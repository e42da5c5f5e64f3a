package usage

import (
	"context"
	"database/sql"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// dateLayout is how a day is written.
const dateLayout = time.DateOnly

// Dimensions are what usage can be summed by, in the order in which rows are sorted.
func Dimensions() []string {
	return []string{"day", "cluster", "workspace", "project", "environment", "service", "phase"}
}

// column is the column of a dimension.
func column(dimension string) string {
	switch dimension {
	case "cluster", "workspace", "project", "service":
		return dimension + "_id"
	}
	return dimension
}

// Query chooses what is summed, and by what.
type Query struct {
	// From is the first day, To the day after the last, both in UTC.
	From, To time.Time
	// By are some of [Dimensions], in their order. Empty: one sum of everything.
	By []string
	// Where has values of dimensions other than day, of which a row must have all.
	Where map[string]string
	// After is the [Sum.Key] of the row before the first. Empty: it begins with the first.
	After string
	// Limit is how many rows there are at most.
	Limit int
}

// Sum is what was used by one thing, as [Query.By] says.
type Sum struct {
	// Day is a UTC day, such as 2026-01-31.
	Day string `json:"day,omitempty"`
	// ClusterID is where it ran.
	ClusterID string `json:"cluster_id,omitempty"`
	// WorkspaceID is who pays.
	WorkspaceID string `json:"workspace_id,omitempty"`
	// ProjectID, Environment and ServiceID are the service of the pods.
	ProjectID   string `json:"project_id,omitempty"`
	Environment string `json:"environment,omitempty"`
	ServiceID   string `json:"service_id,omitempty"`
	// Phase is the phase of the pods: Pending, Running, Succeeded, Failed or Unknown.
	Phase string `json:"phase,omitempty"`
	// PodMinutes is the number of billing records: one for each pod and minute.
	PodMinutes int64 `json:"pod_minutes"`
	// CPUMilliMinutes is the sum of the CPU that these pods requested, in thousandths of a CPU,
	// times minutes.
	CPUMilliMinutes int64 `json:"cpu_milli_minutes"`
	// MemoryByteMinutes is the sum of the memory that these pods requested, in bytes, times
	// minutes. It may have more than 64 bits.
	MemoryByteMinutes *big.Int `json:"memory_byte_minutes"`
	// Final is true if no record is taken any more that would change it.
	Final bool `json:"final"`
}

// value returns the value of a dimension.
func (s *Sum) value(dimension string) *string {
	switch dimension {
	case "day":
		return &s.Day
	case "cluster":
		return &s.ClusterID
	case "workspace":
		return &s.WorkspaceID
	case "project":
		return &s.ProjectID
	case "environment":
		return &s.Environment
	case "service":
		return &s.ServiceID
	default:
		return &s.Phase
	}
}

// Key identifies the row among the rows of the same dimensions: its values, with / between.
func (s *Sum) Key(by []string) string {
	values := make([]string, 0, len(by))
	for _, dimension := range by {
		values = append(values, *s.value(dimension))
	}
	return strings.Join(values, "/")
}

// Sums returns the sums, sorted by what they are summed by.
func Sums(ctx context.Context, database *db.Database, q Query) (list []Sum, err error) {
	var columns []string
	for _, dimension := range q.By {
		columns = append(columns, column(dimension))
	}
	text, args := `SELECT `, []any{}
	for _, name := range columns {
		text += name + `, `
	}
	text += `CAST(sum(pod_minutes) AS BIGINT), CAST(sum(cpu_milli_minutes) AS BIGINT), CAST(sum(memory_gib_minutes) AS BIGINT),
		CAST(sum(memory_rest_minutes) AS BIGINT) FROM usage_days WHERE day >= ? AND day < ?`
	args = append(args, q.From.UnixMilli(), q.To.UnixMilli())
	for _, dimension := range Dimensions() {
		if value, ok := q.Where[dimension]; ok {
			text, args = text+` AND `+column(dimension)+` = ?`, append(args, value)
		}
	}
	if q.After != "" {
		values, err := q.after()
		if err != nil {
			return nil, err
		}
		text += ` AND (` + strings.Join(columns, ", ") + `) > (?` + strings.Repeat(", ?", len(columns)-1) + `)`
		args = append(args, values...)
	}
	if len(columns) > 0 {
		group := strings.Join(columns, ", ")
		text += ` GROUP BY ` + group + ` ORDER BY ` + group
	} else {
		text += ` HAVING count(*) > 0`
	}
	// Records are taken until they are that old.
	final := time.Now().Add(-starbase.SnapshotMaxAge).UTC().Truncate(day)
	err = database.Read(ctx, func(tx *db.Tx) error {
		var open sql.NullInt64
		if err := tx.QueryRowContext(ctx, `SELECT min(taken_at) FROM snapshots WHERE summed = 0`).Scan(&open); err != nil {
			return err
		}
		if from := time.UnixMilli(open.Int64).UTC().Truncate(day); open.Valid && from.Before(final) {
			final = from
		}
		rows, err := tx.QueryContext(ctx, text+` LIMIT ?`, append(slices.Clone(args), q.Limit)...)
		list, err = db.Collect(rows, err, func(rows *sql.Rows, s *Sum) error { return scan(rows, q, final, s) })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	return list, nil
}

// scan reads a row. Days before final do not change.
func scan(rows *sql.Rows, q Query, final time.Time, s *Sum) error {
	var millis, memoryGiB, memoryRest int64
	var into []any
	for _, dimension := range q.By {
		if dimension == "day" {
			into = append(into, &millis)
		} else {
			into = append(into, s.value(dimension))
		}
	}
	if err := rows.Scan(append(into, &s.PodMinutes, &s.CPUMilliMinutes, &memoryGiB, &memoryRest)...); err != nil {
		return err
	}
	end := q.To
	if slices.Contains(q.By, "day") {
		begin := time.UnixMilli(millis).UTC()
		s.Day, end = begin.Format(dateLayout), begin.Add(day)
	}
	s.Final = !end.After(final)
	memory := new(big.Int).Mul(big.NewInt(memoryGiB), big.NewInt(gib))
	s.MemoryByteMinutes = memory.Add(memory, big.NewInt(memoryRest))
	return nil
}

// after returns the values of the key that it begins after.
func (q *Query) after() (values []any, err error) {
	parts := strings.Split(q.After, "/")
	if len(parts) != len(q.By) {
		return nil, wrongKey(q.After)
	}
	for i, part := range parts {
		if q.By[i] != "day" {
			values = append(values, part)
			continue
		}
		at, err := time.Parse(dateLayout, part)
		if err != nil {
			return nil, wrongKey(q.After)
		}
		values = append(values, at.UnixMilli())
	}
	return values, nil
}
