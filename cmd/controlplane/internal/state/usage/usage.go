package usage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

const (
	day = 24 * time.Hour
	gib = 1 << 30

	// statementRows is how many rows one statement has.
	statementRows = 500
)

// key is a row of the sums of a cluster.
type key struct {
	day                                                   int64
	workspaceID, projectID, environment, serviceID, phase string
}

func compareKeys(a, b key) int {
	return cmp.Or(
		cmp.Compare(a.day, b.day), cmp.Compare(a.workspaceID, b.workspaceID), cmp.Compare(a.projectID, b.projectID),
		cmp.Compare(a.environment, b.environment), cmp.Compare(a.serviceID, b.serviceID), cmp.Compare(a.phase, b.phase),
	)
}

// sums are what a row counts.
type sums struct{ podMinutes, cpuMillis, memoryGiB, memoryRest int64 }

// add adds records, which were stored in the same transaction, to the sums.
func add(ctx context.Context, tx *db.Tx, clusterID string, records []Record) error {
	days, hours := map[key]sums{}, map[int64]int64{}
	for i := range records {
		r := &records[i]
		k := key{r.TakenAt.Truncate(day).UnixMilli(), r.WorkspaceID, r.ProjectID, r.Environment, r.ServiceID, r.Phase}
		s := days[k]
		days[k] = sums{s.podMinutes + 1, s.cpuMillis + r.CPUMillis, s.memoryGiB + r.MemoryBytes/gib, s.memoryRest + r.MemoryBytes%gib}
		hour, minute := hourOf(r.TakenAt)
		hours[hour] |= minute
	}
	// In one order, or two agents of a cluster would wait for each other.
	for keys := range slices.Chunk(slices.SortedFunc(maps.Keys(days), compareKeys), statementRows) {
		const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
		args := make([]any, 0, len(keys)*11)
		for _, k := range keys {
			s := days[k]
			args = append(args, k.day, clusterID, k.workspaceID, k.projectID, k.environment, k.serviceID, k.phase,
				s.podMinutes, s.cpuMillis, s.memoryGiB, s.memoryRest)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO usage_days (day, cluster_id, workspace_id, project_id, environment, service_id, phase,
			pod_minutes, cpu_milli_minutes, memory_gib_minutes, memory_rest_minutes) VALUES `+strings.Repeat(row+", ", len(keys)-1)+row+`
			ON CONFLICT (day, cluster_id, workspace_id, project_id, environment, service_id, phase) DO UPDATE SET
			pod_minutes = usage_days.pod_minutes + excluded.pod_minutes,
			cpu_milli_minutes = usage_days.cpu_milli_minutes + excluded.cpu_milli_minutes,
			memory_gib_minutes = usage_days.memory_gib_minutes + excluded.memory_gib_minutes,
			memory_rest_minutes = usage_days.memory_rest_minutes + excluded.memory_rest_minutes`, args...); err != nil {
			return err
		}
	}
	for _, hour := range slices.Sorted(maps.Keys(hours)) {
		if err := note(ctx, tx, clusterID, hour, hours[hour], 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// Report notes that the cluster counted its pods at that time.
func Report(ctx context.Context, tx *db.Tx, clusterID string, at time.Time, pods int64) error {
	hour, minute := hourOf(at)
	var populated int64
	if pods > 0 {
		populated = minute
	}
	return note(ctx, tx, clusterID, hour, 0, minute, populated)
}

// hourOf returns the hour of a time, and the bit of its minute.
func hourOf(at time.Time) (hour, minute int64) {
	at = at.UTC()
	return at.Truncate(time.Hour).UnixMilli(), 1 << at.Minute()
}

// note adds bits to an hour. One that has them is not written.
func note(ctx context.Context, tx *db.Tx, clusterID string, hour, recorded, reported, populated int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO usage_hours (cluster_id, hour, recorded, reported, populated) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (cluster_id, hour) DO UPDATE SET recorded = usage_hours.recorded | excluded.recorded,
		reported = usage_hours.reported | excluded.reported, populated = usage_hours.populated | excluded.populated
		WHERE usage_hours.recorded | excluded.recorded <> usage_hours.recorded
		OR usage_hours.reported | excluded.reported <> usage_hours.reported
		OR usage_hours.populated | excluded.populated <> usage_hours.populated`, clusterID, hour, recorded, reported, populated)
	return err
}
