package chart

import (
	"slices"
	"time"
)

// A Sample holds the counts at one time. They are valid until the next sample.
type Sample struct {
	// At is the time from the beginning.
	At time.Duration
	// Counts are the machines in each state, in the order of [States.Names].
	Counts []int
	// Line is the value drawn as a line, such as the number of waiting pods.
	Line int
}

// States are machines by state over time: an area for each state, one on the other.
type States struct {
	// Title is the headline.
	Title string
	// Names are the states, from the bottom to the top. At most six.
	Names []string
	// Line is the name of the line and of its axis. Empty: there is none.
	Line string
	// Samples are in the order of time. The last one ends the picture.
	Samples []Sample
}

//nolint:gochecknoglobals // a table
var areas = []string{"#2f6fb0", "#86c5ee", "#f2a541", "#9b9b9b", "#cfe5c9", "#c9b7dd"}

const lineColor = "#b3261e"

// maxSteps is above how many samples a picture shows one mean for each pixel: an area then
// keeps its size, and the line shows the most.
const maxSteps = 1200

// SVG returns the picture as a document.
func (s States) SVG() []byte { return Page("", s) }

// step is what is drawn from one place to another.
type step struct {
	from, to float64 // from 0 to 1
	counts   []float64
	line     float64
}

func (s States) draw(c *canvas, top float64) {
	end := time.Duration(1)
	if n := len(s.Samples); n > 0 {
		end = max(end, s.Samples[n-1].At)
	}
	most, line := 0, 0
	for _, sample := range s.Samples {
		sum := 0
		for _, n := range sample.Counts {
			sum += n
		}
		most, line = max(most, sum), max(line, sample.Line)
	}
	machines, lines := newAxis(float64(most), true), newAxis(float64(line), true)
	c.frame(top, s.Title, "time from the beginning")
	var entries []entry
	for i, name := range s.Names {
		entries = append(entries, entry{name: name, color: areas[i%len(areas)]})
	}
	if s.Line != "" {
		entries = append(entries, entry{s.Line, lineColor, true})
		c.vertical(top, lines, s.Line, lineColor, true)
	}
	c.legend(top, entries)
	c.vertical(top, machines, "machines", ink, false)
	for _, at := range timeTicks(end) {
		x := left + float64(at)/float64(end)*(right-left)
		c.line(x, top+head+plot, x, top+head+plot+5, faint, "")
		c.text(x, top+head+plot+20, text{anchor: "middle"}, span(at))
	}
	steps := s.steps(end)
	if len(steps) == 0 {
		return
	}
	at := func(x, y float64) point { return point{left + x*(right-left), top + head + plot*(1-y)} }
	low := make([]float64, len(steps))
	for state := range s.Names {
		var upper, lower []point
		some := false
		for i, p := range steps {
			n := p.counts[state]
			some = some || n > 0
			upper = append(upper, at(p.from, machines.at(low[i]+n)), at(p.to, machines.at(low[i]+n)))
			lower = append(lower, at(p.from, machines.at(low[i])), at(p.to, machines.at(low[i])))
			low[i] += n
		}
		if some {
			slices.Reverse(lower)
			c.path(append(corners(upper), corners(lower)...), `fill="`+areas[state%len(areas)]+`"`, true)
		}
	}
	if s.Line != "" {
		var points []point
		for _, p := range steps {
			points = append(points, at(p.from, lines.at(p.line)), at(p.to, lines.at(p.line)))
		}
		c.path(corners(points), `fill="none" stroke="`+lineColor+`" stroke-width="1.5"`, false)
	}
}

// corners leaves out the points of a line on which it goes straight on, up or down.
func corners(points []point) []point {
	var out []point
	for i, p := range points {
		if i > 0 && i < len(points)-1 {
			a, b := points[i-1], points[i+1]
			if a.y == p.y && p.y == b.y || a == p {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// steps are the samples, or a mean of them for each pixel if there are many.
func (s States) steps(end time.Duration) []step {
	var exact []step
	for i, sample := range s.Samples {
		to := end
		if i+1 < len(s.Samples) {
			to = s.Samples[i+1].At
		}
		if to <= sample.At && i > 0 {
			continue
		}
		p := step{
			from:   float64(sample.At) / float64(end),
			to:     float64(to) / float64(end),
			counts: make([]float64, len(s.Names)),
			line:   float64(sample.Line),
		}
		for state := range p.counts {
			if state < len(sample.Counts) {
				p.counts[state] = float64(sample.Counts[state])
			}
		}
		exact = append(exact, p)
	}
	if len(exact) <= maxSteps {
		return exact
	}
	const columns = right - left
	means := make([]step, columns)
	for i := range means {
		means[i] = step{from: float64(i) / columns, to: float64(i+1) / columns, counts: make([]float64, len(s.Names))}
	}
	for _, p := range exact {
		for i := int(p.from * columns); i < columns && means[i].from < p.to; i++ {
			share := (min(p.to, means[i].to) - max(p.from, means[i].from)) * columns
			for state, n := range p.counts {
				means[i].counts[state] += n * max(0, share)
			}
			means[i].line = max(means[i].line, p.line)
		}
	}
	return means
}
