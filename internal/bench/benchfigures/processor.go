package benchfigures

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticks is how many there are in a second of /proc: USER_HZ is 100 on all that Go runs
// on.
const ticks = 100

// Processor is the processor time of programs in seconds.
type Processor map[string]float64

// ProcessorTime reads what the contender with this process ID has used since its start, by the
// name "self", and what each other process that this one has started has, by the name of the
// program, where that is Linux. The contender may be this process. Without it there is an error.
func ProcessorTime(contender int) (Processor, error) {
	used := Processor{}
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		begin, end := strings.IndexByte(string(data), '('), strings.LastIndexByte(string(data), ')')
		if begin < 0 || end < begin {
			return nil, fmt.Errorf("%s: want a name in brackets", path)
		}
		name, fields := string(data[begin+1:end]), strings.Fields(string(data[end+1:]))
		if len(fields) < 13 {
			return nil, fmt.Errorf("%s: %d fields after the name, want 13 or more", path, len(fields))
		}
		switch {
		case filepath.Base(filepath.Dir(path)) == strconv.Itoa(contender):
			name = "self"
		case fields[1] != strconv.Itoa(os.Getpid()):
			continue // the parent is another benchmark or test
		}
		for _, field := range fields[11:13] { // utime, stime
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			used[name] += n / ticks
		}
	}
	if _, ok := used["self"]; !ok {
		return nil, fmt.Errorf("process %d: is not in /proc, must run", contender)
	}
	return used, nil
}

// Since returns what was used after before.
func (p Processor) Since(before Processor) Processor {
	used := Processor{}
	for name, seconds := range p {
		used[name] = seconds - before[name]
	}
	return used
}
