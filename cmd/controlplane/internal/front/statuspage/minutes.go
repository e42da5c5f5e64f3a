package statuspage

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

// minuteWindow is how long the records of a cluster are shown for.
const minuteWindow = time.Hour

// late is how long after the end of a minute its records may come without being missed.
const late = 90 * time.Second

// minutes is how many billing records of a cluster there are about each minute of the
// last hour.
type minutes struct {
	ID, Region string
	// Empty is a cluster without a record in that time.
	Empty bool
	State state
	// Last is of the newest minute, at LastAt; Peak and Low are of the hour.
	Last, Peak, Low int64
	LastAt          time.Time
	// Missing counts the minutes without a record between others, and since the last.
	Missing                 int
	Bars, Gaps              string
	Hours, Levels           []tick
	Left, Right, Top, Floor int
	Width, Height           int
}

// newMinutes draws the hour that ends at now.
func newMinutes(c *clusters.ClusterOverview, now time.Time) minutes {
	m := minutes{
		ID: c.ClusterID, Region: c.Region, Empty: len(c.Snapshots) == 0,
		Left: plotLeft, Right: plotRight, Top: plotTop, Floor: plotBottom, Width: plotWidth, Height: plotHeight,
	}
	if m.Empty {
		return m
	}
	newest := c.Snapshots[len(c.Snapshots)-1]
	m.Last, m.LastAt, m.Low = newest.Records, newest.At, newest.Records
	for _, minute := range c.Snapshots {
		m.Peak, m.Low = max(m.Peak, minute.Records), min(m.Low, minute.Records)
	}
	end := now.Truncate(time.Minute)
	width := float64(plotRight-plotLeft) / minuteWindow.Minutes()
	x := func(at time.Time) float64 { return plotRight - width*end.Sub(at).Minutes() }
	top := ceiling(m.Peak)
	y := func(n int64) float64 { return plotBottom - (plotBottom-plotTop)*float64(n)/float64(top) }
	m.draw(c.Snapshots, now, width, x, y)
	m.Levels = levels(top, y)
	const step = 15 * time.Minute
	for at := end.Truncate(step); at.After(end.Add(-minuteWindow)); at = at.Add(-step) {
		if left := x(at); left > plotLeft+12 && left < plotRight-12 {
			m.Hours = append(m.Hours, tick{left, at.Format("15:04")})
		}
	}
	m.State = state{"no gap", "good"}
	if m.Missing > 0 {
		m.State = state{"gap", "busy"}
	}
	return m
}

// draw sets the bars, and a mark for each minute that has no records although one before
// it has.
func (m *minutes) draw(list []clusters.SnapshotMinute, now time.Time, width float64, x func(time.Time) float64, y func(int64) float64) {
	const share = 0.7 // of its minute
	var bars, gaps strings.Builder
	records := map[time.Time]int64{}
	for _, minute := range list {
		records[minute.At] = minute.Records
		left := x(minute.At)
		if left < plotLeft {
			continue
		}
		fmt.Fprintf(&bars, "M%.1f %dV%.1fh%.1fV%dZ", left, plotBottom, y(minute.Records), share*width, plotBottom)
	}
	for at := list[0].At; !at.Add(time.Minute + late).After(now); at = at.Add(time.Minute) {
		if _, has := records[at]; has {
			continue
		}
		m.Missing++
		if left := x(at); left >= plotLeft {
			fmt.Fprintf(&gaps, "M%.1f %dh%.1f", left, plotBottom-1, share*width)
		}
	}
	m.Bars, m.Gaps = bars.String(), gaps.String()
}
