package statuspage

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

const (
	plotWindow = 24 * time.Hour
	plotStep   = 10 * time.Minute
	// plotGap is how long reports may be missing before the line is broken.
	plotGap = 2 * plotStep
)

// The picture, in units of its viewBox.
const (
	plotWidth  = 480
	plotHeight = 150
	plotLeft   = 46
	plotRight  = 474
	plotTop    = 8
	plotBottom = 126
)

// plot is how full a cluster was in the last 24 hours.
type plot struct {
	ID, Region string
	// Empty is a cluster without a report in that time.
	Empty                   bool
	Pods, Limit, Peak, Low  int64
	Percent                 int64
	State                   state
	TakenAt                 time.Time
	PodsLine, PodsArea      string
	LimitLine               string
	Hours, Levels           []tick
	Left, Right, Top, Floor int
	Width, Height           int
}

// tick is a line of the grid with its label.
type tick struct {
	At    float64
	Label string
}

// newPlot draws the window that ends at end.
func newPlot(c *clusters.ClusterOverview, end time.Time) plot {
	p := plot{
		ID: c.ClusterID, Region: c.Region, Empty: len(c.Capacity) == 0 || c.Latest == nil,
		Left: plotLeft, Right: plotRight, Top: plotTop, Floor: plotBottom, Width: plotWidth, Height: plotHeight,
	}
	if p.Empty {
		return p
	}
	p.Pods, p.Limit, p.TakenAt, p.Low = c.Latest.Pods, c.Latest.SoftLimit, c.Latest.TakenAt, c.Capacity[0].Pods
	var highest int64 = 1
	for _, point := range c.Capacity {
		p.Peak, p.Low = max(p.Peak, point.Pods), min(p.Low, point.Pods)
		highest = max(highest, point.Pods, point.SoftLimit)
	}
	p.Percent, p.State = fullness(p.Pods, p.Limit)
	top := ceiling(highest)
	x := func(at time.Time) float64 {
		return plotRight - (plotRight-plotLeft)*float64(end.Sub(at))/float64(plotWindow)
	}
	y := func(n int64) float64 { return plotBottom - (plotBottom-plotTop)*float64(n)/float64(top) }
	p.draw(c.Capacity, x, y)
	p.Levels = levels(top, y)
	for at := end.Truncate(6 * time.Hour); at.After(end.Add(-plotWindow)); at = at.Add(-6 * time.Hour) {
		// A label at the very edge would be cut.
		if left := x(at); left > plotLeft+12 && left < plotRight-12 {
			p.Hours = append(p.Hours, tick{left, at.Format("15:04")})
		}
	}
	return p
}

// levels returns the horizontal lines up to top: four, or two if it has no four parts.
func levels(top int64, y func(int64) float64) (list []tick) {
	const parts = 4
	for n := range int64(parts + 1) {
		if top%parts == 0 || n%parts == 0 {
			list = append(list, tick{y(top * n / parts), number(top * n / parts)})
		}
	}
	return list
}

// draw sets the lines. They break where reports are missing.
func (p *plot) draw(points []clusters.CapacityPoint, x func(time.Time) float64, y func(int64) float64) {
	var pods, area, limit strings.Builder
	var from, last float64
	closeArea := func() {
		if area.Len() > 0 {
			fmt.Fprintf(&area, "L%.1f %dL%.1f %dZ", last, plotBottom, from, plotBottom)
		}
	}
	for i, point := range points {
		// In the middle of its step.
		at := x(point.TakenAt.Add(plotStep / 2))
		verb := "L"
		if i == 0 || point.TakenAt.Sub(points[i-1].TakenAt) > plotGap {
			closeArea()
			verb, from = "M", at
		}
		last = at
		fmt.Fprintf(&pods, "%s%.1f %.1f", verb, at, y(point.Pods))
		fmt.Fprintf(&area, "%s%.1f %.1f", verb, at, y(point.Pods))
		fmt.Fprintf(&limit, "%s%.1f %.1f", verb, at, y(point.SoftLimit))
		if verb == "M" {
			// So that a point without neighbours is seen.
			pods.WriteString("h.1")
			limit.WriteString("h.1")
		}
	}
	closeArea()
	p.PodsLine, p.PodsArea, p.LimitLine = pods.String(), area.String(), limit.String()
}

// fullness returns how full a cluster is. At four fifths of its limit it is nearly full,
// and the next cluster should be built.
func fullness(pods, limit int64) (percent int64, is state) {
	const whole, near = 100, 80
	if limit == 0 {
		return 0, state{"no limit", "idle"}
	}
	percent = pods * whole / limit
	switch {
	case percent >= whole:
		return percent, state{"full", "bad"}
	case percent >= near:
		return percent, state{"nearly full", "busy"}
	}
	return percent, state{"room left", "good"}
}

// ceiling returns a round number that is a little above n, which is above 0.
func ceiling(n int64) int64 {
	unit := int64(1)
	for unit*10 <= n {
		unit *= 10
	}
	for _, tenths := range []int64{12, 16, 20, 24, 32, 40, 48, 60, 80, 100, 120} {
		if round := unit * tenths / 10; round > n && (unit >= 10 || round%4 == 0) {
			return round
		}
	}
	return unit * 12
}
