// Package benchfigures is how the benchmarks below internal/bench report: a line
// for each figure, which commands can read, and at the end a table, which people
// can.
package benchfigures

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Book collects figures and prints each as a line: figure NAME VALUE UNIT. Its
// methods are safe for concurrent use.
type Book struct {
	// Out receives the lines. Required.
	Out io.Writer

	mu      sync.Mutex
	figures map[string]Figure
}

// Figure is a measured value.
type Figure struct {
	Name  string // without spaces
	Value float64
	Unit  string
}

// Add prints a figure and keeps it. A name that was added before is replaced.
func (b *Book) Add(name string, value float64, unit string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.figures == nil {
		b.figures = map[string]Figure{}
	}
	f := Figure{name, value, unit}
	b.figures[name] = f
	_, _ = fmt.Fprintln(b.Out, f) // a reader that is gone does not stop a measurement
}

// Get returns a figure, and whether it was added.
func (b *Book) Get(name string) (Figure, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.figures[name]
	return f, ok
}

// Ratio adds the quotient of two figures, if there are both and the divisor is above zero.
func (b *Book) Ratio(name, dividend, divisor string) {
	over, ok := b.Get(dividend)
	under, found := b.Get(divisor)
	if ok && found && under.Value > 0 {
		b.Add(name, over.Value/under.Value, "x")
	}
}

// String is the line of the figure.
func (f Figure) String() string {
	return "figure " + f.Name + " " + f.number() + " " + f.Unit
}

// number has at least three significant digits, and no exponent.
func (f Figure) number() string {
	digits := 0
	for limit := 100.0; digits < 6 && f.Value != 0 && f.Value < limit && f.Value > -limit; limit /= 10 {
		digits++
	}
	text := strconv.FormatFloat(f.Value, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Parse reads a line that [Book.Add] has printed, or a test has logged.
func Parse(line string) (Figure, bool) {
	if place, rest, logged := strings.Cut(line, ": "); logged && strings.Contains(place, ".go:") {
		line = rest
	}
	fields := strings.Fields(line)
	if len(fields) != 4 || fields[0] != "figure" {
		return Figure{}, false
	}
	value, err := strconv.ParseFloat(fields[2], 64)
	return Figure{fields[1], value, fields[3]}, err == nil
}

// Percentile returns the value below which the share p, from 0 to 1, of the
// sample lies, 0 for none. The median is 0.5.
func Percentile(sample []float64, p float64) float64 {
	if len(sample) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(sample))
	at := p * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Ratios returns the quotient for each round of two samples, which have the same rounds: what slows
// the whole machine in one cancels out.
func Ratios(over, under []float64) []float64 {
	all := make([]float64, len(over))
	for i := range over {
		all[i] = over[i] / under[i]
	}
	return all
}
