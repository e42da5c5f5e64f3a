package main

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

// processor is the processor time of programs in seconds.
type processor map[string]float64

// processorTime reads what a contender has used since its start, by the name "self", and
// what each program of the cluster has, by the name of the program, where that is Linux.
func (c *contender) processorTime() (processor, error) {
	used := processor{}
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
		if fields[1] != strconv.Itoa(os.Getpid()) {
			continue // the parent is another benchmark or test
		}
		if filepath.Base(filepath.Dir(path)) == strconv.Itoa(c.process.Process.Pid) {
			name = "self"
		}
		for _, field := range fields[11:13] { // utime, stime
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			used[name] += n / ticks
		}
	}
	return used, nil
}

// since returns what was used after before.
func (p processor) since(before processor) processor {
	used := processor{}
	for name, seconds := range p {
		used[name] = seconds - before[name]
	}
	return used
}
