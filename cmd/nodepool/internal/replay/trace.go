package replay

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// A Pod is one pod of a trace.
type Pod struct {
	// Name is for people.
	Name string
	// Arrival is when it was created, from the beginning of the trace.
	Arrival time.Duration
	// Duration is how long it runs once it is on a machine. More than 0.
	Duration time.Duration
	Requests demand.Resources
}

const (
	// maxSpan bounds a trace, and the duration of a pod.
	maxSpan = 366 * 24 * time.Hour
	// maxPods bounds the pods of a trace.
	maxPods = 1_000_000
	// maxProblems bounds how many wrong values one error names.
	maxProblems = 10
)

// ReadTrace reads a trace as CSV. Its first line names the columns, in any order:
//
//   - arrival: a time as in RFC 3339, or seconds from the beginning; one way in the whole
//     file. The earliest of the times is the beginning.
//   - duration: a span such as 90s or 1h30m, or seconds.
//   - cpu, memory: what the pod requests, such as 500m and 2Gi; empty for nothing.
//   - name: empty or no column for a name made of the line.
//   - count: how many such pods arrive at once; empty or no column for one.
//
// Empty lines, and lines that begin with #, are left out. The pods are in the order of
// their arrival. The error names the line, the column and the invalid value.
func ReadTrace(r io.Reader) ([]Pod, error) {
	lines := csv.NewReader(r)
	lines.Comment, lines.TrimLeadingSpace, lines.ReuseRecord, lines.FieldsPerRecord = '#', true, true, -1
	header, err := lines.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the trace is empty, must begin with a line such as arrival,duration,cpu,memory")
	} else if err != nil {
		return nil, err
	}
	t := trace{columns: map[string]int{}, names: map[string]int{}}
	if err := t.header(header); err != nil {
		return nil, err
	}
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.Join(append(t.problems, err)...)
		}
		t.line, _ = lines.FieldPos(0)
		t.add(record, len(header))
		if len(t.problems) >= maxProblems || t.total > maxPods {
			break
		}
	}
	if err := errors.Join(t.problems...); err != nil {
		return nil, err
	}
	if len(t.pods) == 0 {
		return nil, errors.New("the trace has no pods: a line for each follows the first")
	}
	if t.dated {
		for i := range t.pods {
			t.pods[i].Arrival -= t.earliest
		}
	}
	slices.SortStableFunc(t.pods, func(a, b Pod) int { return cmp.Compare(a.Arrival, b.Arrival) })
	if last := t.pods[len(t.pods)-1]; last.Arrival > maxSpan {
		return nil, fmt.Errorf("column arrival: pod %q arrives %s after the beginning, must be at most %s", last.Name, last.Arrival, maxSpan)
	}
	return t.pods, nil
}

// trace is a trace that is being read.
type trace struct {
	columns  map[string]int
	line     int
	pods     []Pod
	total    int
	names    map[string]int // the line of each
	problems []error
	// dated reports that arrivals are times; the first pod decides. They are counted from
	// epoch.
	dated    bool
	decided  bool
	epoch    time.Time
	earliest time.Duration
}

func (t *trace) header(names []string) error {
	known := []string{"arrival", "duration", "cpu", "memory", "name", "count"}
	for i, name := range names {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if !slices.Contains(known, name) {
			return fmt.Errorf("line 1, column %d: is %q, must be one of %s", i+1, name, strings.Join(known, ", "))
		}
		if _, twice := t.columns[name]; twice {
			return fmt.Errorf("line 1, column %d: %q stands there twice", i+1, name)
		}
		t.columns[name] = i
	}
	for _, name := range known[:4] {
		if _, ok := t.columns[name]; !ok {
			return fmt.Errorf("line 1: column %s is missing", name)
		}
	}
	return nil
}

func (t *trace) wrong(column, value, must string) {
	t.problems = append(t.problems, fmt.Errorf("line %d, column %s: is %q, must be %s", t.line, column, value, must))
}

func (t *trace) add(record []string, width int) {
	if len(record) != width {
		t.problems = append(t.problems, fmt.Errorf("line %d: has %d values, must have %d, as the first line has", t.line, len(record), width))
		return
	}
	value := func(column string) string {
		if i, ok := t.columns[column]; ok {
			return strings.TrimSpace(record[i])
		}
		return ""
	}
	before := len(t.problems)
	p := Pod{Name: value("name")}
	p.Arrival = t.arrival(value("arrival"))
	p.Duration = t.duration(value("duration"))
	p.Requests.CPU = t.quantity("cpu", value("cpu"), "500m", resource.Milli)
	p.Requests.Memory = t.quantity("memory", value("memory"), "2Gi", 0)
	count := 1
	if text := value("count"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil || count < 1 || count > maxPods {
			t.wrong("count", text, fmt.Sprintf("a number from 1 to %d", maxPods))
		}
	}
	if p.Name == "" {
		p.Name = fmt.Sprintf("line-%d", t.line)
	}
	if first, twice := t.names[p.Name]; twice {
		t.wrong("name", p.Name, fmt.Sprintf("unique: line %d has it too", first))
	}
	t.names[p.Name] = t.line
	if len(t.problems) > before {
		return
	}
	if t.total += count; t.total > maxPods {
		t.problems = append(t.problems, fmt.Errorf("line %d: the trace has more than %d pods", t.line, maxPods))
		return
	}
	for n := range count {
		one := p
		if count > 1 {
			one.Name = fmt.Sprintf("%s/%d", p.Name, n+1)
		}
		t.pods = append(t.pods, one)
	}
}

// arrival returns a time from the beginning, or from epoch.
func (t *trace) arrival(text string) time.Duration {
	const must = "a time such as 2026-01-02T15:04:05Z, or seconds from the beginning such as 12.5"
	at, err := time.Parse(time.RFC3339, text)
	dated := err == nil
	offset, ok := seconds(text)
	switch {
	case !dated && !ok:
		t.wrong("arrival", text, must)
		return 0
	case !t.decided:
		t.decided, t.dated, t.epoch = true, dated, at
	case t.dated && !dated:
		t.wrong("arrival", text, "a time, as in the lines before")
		return 0
	case !t.dated && dated:
		t.wrong("arrival", text, "seconds, as in the lines before")
		return 0
	}
	if dated {
		offset = at.Sub(t.epoch)
		if offset.Abs() > maxSpan {
			t.wrong("arrival", text, "within a year of the other arrivals")
			return 0
		}
		t.earliest = min(t.earliest, offset)
	}
	return offset
}

func (t *trace) duration(text string) time.Duration {
	d, ok := seconds(text)
	if !ok {
		var err error
		d, err = time.ParseDuration(text)
		ok = err == nil
	}
	if !ok || d <= 0 || d > maxSpan {
		t.wrong("duration", text, "a span such as 90s or 1h30m, or seconds such as 90, more than 0 and at most a year")
	}
	return d
}

// seconds reads a number of seconds, from 0 to a year.
func seconds(text string) (time.Duration, bool) {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(s) || s < 0 || s > maxSpan.Seconds() {
		return 0, false
	}
	return time.Duration(math.Round(s * float64(time.Second))), true
}

// quantity reads an amount in units of 10^scale.
func (t *trace) quantity(column, text, example string, scale resource.Scale) int64 {
	if text == "" {
		return 0
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 || q.Cmp(*resource.NewScaledQuantity(1, resource.Exa)) > 0 {
		t.wrong(column, text, "a quantity such as "+example)
		return 0
	}
	return q.ScaledValue(scale)
}
