package statuspage

import (
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

const (
	// capacityWindow is the time of which the fewest and the most pods of a cluster are shown.
	capacityWindow = 24 * time.Hour
	// late is how long after the end of a minute its records may come without being missed.
	late = 90 * time.Second

	// fullPercent and nearPercent are how much of its limit a cluster has that is full, and that
	// is nearly full: then the next one should be built.
	fullPercent = 100
	nearPercent = 80
)

// load is how full a cluster is, and how many billing records come from it.
type load struct {
	ID, Region, Path string
	State            state
	// Reported is false for a cluster without a capacity report in the last 24 hours. Pods is
	// of the newest, at TakenAt, Low and Peak are of that time.
	Reported                        bool
	Pods, Limit, Percent, Low, Peak int64
	TakenAt                         time.Time
	// Billed is false for a cluster without a record in the last hour. Records counts them for
	// the newest minute, at RecordsAt; Fewest and Most are of the hour.
	Billed                bool
	Records, Fewest, Most int64
	RecordsAt             time.Time
	// Missing counts the minutes without a record between others, and since the last.
	Missing int
}

func newLoad(c *clusters.ClusterOverview, now time.Time) load {
	l := load{ID: c.ClusterID, Region: c.Region, Path: clustersPath + "/" + c.ClusterID, State: state{"no report", "idle"}}
	if c.Latest != nil && c.Low != nil {
		l.Reported, l.Pods, l.Limit, l.TakenAt = true, c.Latest.Pods, c.Latest.SoftLimit, c.Latest.TakenAt
		l.Low, l.Peak = *c.Low, *c.Peak
		l.Percent, l.State = fullness(l.Pods, l.Limit)
	}
	if len(c.Snapshots) == 0 {
		return l
	}
	newest := c.Snapshots[len(c.Snapshots)-1]
	l.Billed, l.Records, l.RecordsAt, l.Fewest = true, newest.Records, newest.At, newest.Records
	recorded := make(map[time.Time]bool, len(c.Snapshots))
	for _, minute := range c.Snapshots {
		l.Most, l.Fewest = max(l.Most, minute.Records), min(l.Fewest, minute.Records)
		recorded[minute.At] = true
	}
	for at := c.Snapshots[0].At; !at.Add(time.Minute + late).After(now); at = at.Add(time.Minute) {
		if !recorded[at] {
			l.Missing++
		}
	}
	return l
}

// fullness returns how full a cluster is.
func fullness(pods, limit int64) (percent int64, is state) {
	const whole = 100
	if limit == 0 {
		return 0, state{"no limit", "idle"}
	}
	percent = pods * whole / limit
	switch {
	case percent >= fullPercent:
		return percent, full
	case percent >= nearPercent:
		return percent, nearlyFull
	}
	return percent, state{"room left", "good"}
}
