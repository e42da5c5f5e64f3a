package usage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Why a minute has no records.
const (
	// ReasonUnrecorded is that pods were counted before and after it.
	ReasonUnrecorded = "Unrecorded"
	// ReasonSilent is that the agent did not report before or after it.
	ReasonSilent = "Silent"
)

const (
	// reach is for how many minutes a capacity report says that there are pods, or none:
	// agents count every minute, give or take a fifth.
	reach = 2
	// settled is how old a minute must be to be a gap: the clock of an agent may be ahead by
	// that much, and its records take a moment.
	settled = 6 * time.Minute
	// allMinutes are the bits of an hour.
	allMinutes = 1<<60 - 1
)

// Gap is a time without billing records of a cluster.
type Gap struct {
	// ClusterID is the cluster.
	ClusterID string `json:"cluster_id"`
	// From is the first minute, and To the minute after the last.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Minutes is how many these are.
	Minutes int64 `json:"minutes"`
	// Reason is Unrecorded, if the cluster counted pods before and after, or Silent, if it
	// reported nothing.
	Reason string `json:"reason"`
}

// Key identifies the gap: its cluster, / and its first minute.
func (g *Gap) Key() string { return g.ClusterID + "/" + g.From.Format("20060102T1504") }

// hour is what is known of the minutes of an hour, a bit each.
type hour struct{ recorded, reported, populated int64 }

// cluster is what is known of one: its hours, by their milliseconds, and the first and last
// minute that may be a gap.
type cluster struct {
	hours       map[int64]hour
	first, last time.Time
}

// Gaps returns the gaps between two times, of one cluster or, if clusterID is empty, of all,
// sorted by cluster and time. A gap that reaches beyond is cut.
func Gaps(ctx context.Context, database *db.Database, clusterID string, from, to time.Time) (list []Gap, err error) {
	from, to = from.Truncate(time.Minute), to.Truncate(time.Minute)
	var clusters map[string]*cluster
	err = database.Read(ctx, func(tx *db.Tx) (err error) {
		clusters, err = read(ctx, tx, clusterID, from, to)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("usage: gaps: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(clusters)) {
		c := clusters[id]
		for at := latest(from, c.first); at.Before(to) && at.Before(c.last); at = at.Add(time.Minute) {
			if at.Minute() == 0 && c.hours[at.UnixMilli()].recorded == allMinutes {
				at = at.Add(59 * time.Minute)
				continue
			}
			reason := c.missing(at)
			if reason == "" {
				continue
			}
			if n := len(list) - 1; n >= 0 && list[n].ClusterID == id && list[n].Reason == reason && list[n].To.Equal(at) {
				list[n].To, list[n].Minutes = at.Add(time.Minute), list[n].Minutes+1
			} else {
				list = append(list, Gap{ClusterID: id, From: at, To: at.Add(time.Minute), Minutes: 1, Reason: reason})
			}
		}
	}
	return list, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// read returns the clusters with the hours from one before to one after.
func read(ctx context.Context, tx *db.Tx, clusterID string, from, to time.Time) (map[string]*cluster, error) {
	type row struct {
		id         string
		at         int64
		registered bool
		hour
	}
	rows, err := tx.QueryContext(ctx, `SELECT h.cluster_id, CASE WHEN max(c.id) IS NULL THEN 0 ELSE 1 END FROM usage_hours h
		LEFT JOIN clusters c ON c.id = h.cluster_id WHERE h.cluster_id = ? OR ? = '' GROUP BY 1`, clusterID, clusterID)
	first, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.id, &r.registered) })
	if err != nil {
		return nil, err
	}
	clusters := make(map[string]*cluster, len(first))
	for _, r := range first {
		c := &cluster{hours: map[int64]hour{}}
		clusters[r.id] = c
		first, _, err := bounds(ctx, tx, r.id, `reported`, `ASC`)
		if err != nil {
			return nil, err
		}
		if first.IsZero() { // it never counted its pods
			delete(clusters, r.id)
			continue
		}
		c.first = first.Add(time.Minute) // of the first itself, nothing before is known
		if _, c.last, err = bounds(ctx, tx, r.id, `(recorded | reported)`, `DESC`); err != nil {
			return nil, err
		}
		if end := time.Now().Add(-settled); r.registered || c.last.After(end) {
			c.last = end
		}
	}
	rows, err = tx.QueryContext(ctx, `SELECT cluster_id, hour, recorded, reported, populated FROM usage_hours
		WHERE hour >= ? AND hour < ? AND (cluster_id = ? OR ? = '')`,
		from.Add(-2*time.Hour).UnixMilli(), to.Add(2*time.Hour).UnixMilli(), clusterID, clusterID)
	hours, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.id, &r.at, &r.recorded, &r.reported, &r.populated)
	})
	for _, r := range hours {
		if c := clusters[r.id]; c != nil {
			c.hours[r.at] = r.hour
		}
	}
	return clusters, err
}

// bounds returns the first minute whose bit is set in what, and the minute after the last, of
// the first hour in that order that has one. Zero: there is none.
func bounds(ctx context.Context, tx *db.Tx, clusterID, what, order string) (first, end time.Time, err error) {
	var at, bits int64
	err = tx.QueryRowContext(ctx, `SELECT hour, `+what+` FROM usage_hours WHERE cluster_id = ? AND `+what+` <> 0 ORDER BY hour `+order+` LIMIT 1`, clusterID).
		Scan(&at, &bits)
	if errors.Is(err, sql.ErrNoRows) {
		return first, end, nil
	}
	begin := time.UnixMilli(at).UTC()
	for minute := range 60 {
		if bits>>minute&1 == 0 {
			continue
		}
		if first.IsZero() {
			first = begin.Add(time.Duration(minute) * time.Minute)
		}
		end = begin.Add(time.Duration(minute+1) * time.Minute)
	}
	return first, end, err
}

// missing returns why the minute is a gap, or nothing.
func (c *cluster) missing(at time.Time) string {
	if c.has(at, func(h hour) int64 { return h.recorded }) {
		return ""
	}
	// A record is about the begin of its minute: a report in the same minute comes after it.
	before, known := c.counted(at.Add(-time.Minute), -time.Minute)
	after, heard := c.counted(at, time.Minute)
	switch {
	case !known || !heard:
		return ReasonSilent
	case before && after:
		return ReasonUnrecorded
	}
	return ""
}

// counted reports whether the first report from that minute on counted pods, and whether
// there is one within [reach].
func (c *cluster) counted(at time.Time, step time.Duration) (pods, known bool) {
	for range reach {
		if c.has(at, func(h hour) int64 { return h.reported }) {
			return c.has(at, func(h hour) int64 { return h.populated }), true
		}
		at = at.Add(step)
	}
	return false, false
}

// has returns a bit of a minute.
func (c *cluster) has(at time.Time, of func(hour) int64) bool {
	begin, minute := hourOf(at)
	return of(c.hours[begin])&minute != 0
}
