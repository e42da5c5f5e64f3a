package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// axis goes from 0 to its last tick.
type axis struct {
	ticks []float64
	step  float64
}

// newAxis makes an axis with about five round ticks: 1, 2 or 5, and noughts. One of whole
// numbers has no tick between them.
func newAxis(most float64, whole bool) axis {
	if !(most > 0) || math.IsInf(most, 0) {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, factor := range []float64{2, 2.5, 2} { // to 2, 5 and 10 times as much
		if most/step <= 6 {
			break
		}
		step *= factor
	}
	if whole {
		step = max(1, math.Round(step))
	}
	a := axis{step: step}
	for n := 0; ; n++ {
		a.ticks = append(a.ticks, float64(n)*step)
		if float64(n)*step >= most-step*1e-9 {
			return a
		}
	}
}

// at is the place of a value, from 0 to 1.
func (a axis) at(v float64) float64 { return v / a.ticks[len(a.ticks)-1] }

// format writes a tick with as many digits as its step needs.
func (a axis) format(v float64) string {
	digits := max(0, int(math.Ceil(-math.Log10(a.step)-1e-9)))
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// timeTicks are at most twelve round times up to the end.
func timeTicks(end time.Duration) []time.Duration {
	const day = 24 * time.Hour
	step := time.Second
	for _, step = range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 360 * day,
	} {
		if end/step <= 12 {
			break
		}
	}
	var ticks []time.Duration
	for at := time.Duration(0); at <= end; at += step {
		ticks = append(ticks, at)
	}
	return ticks
}

// span writes a time such as 45s, 1h30m or 2d.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d == 0 {
		return "0"
	}
	if d < time.Second {
		return d.String()
	}
	var b strings.Builder
	rest, days := int64(d/time.Second), d%day == 0 || d > 2*day
	for _, unit := range []struct {
		seconds int64
		name    string
	}{{86_400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}} {
		if n := rest / unit.seconds; n > 0 && (unit.name != "d" || days) {
			b.WriteString(strconv.FormatInt(n, 10) + unit.name)
			rest -= n * unit.seconds
		}
	}
	return b.String()
}
