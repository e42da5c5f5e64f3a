package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// withinVariable has how long a run may take, such as 60m. What has not begun by then is left out,
// and named at the end: on a machine that is slow for a day, the rest is better proven than nothing.
const withinVariable = "TRUEUP_TEST_WITHIN"

// untimely is what a package prints that was left out.
const untimely = "testrun: left out for want of time"

// lastStart returns the time after which nothing begins, zero without a limit.
func lastStart(now time.Time) (time.Time, error) {
	text := os.Getenv(withinVariable)
	if text == "" {
		return time.Time{}, nil
	}
	within, err := time.ParseDuration(text)
	if err != nil || within <= 0 {
		return time.Time{}, fmt.Errorf("%w: %s is %q, must be a duration above zero, such as 60m", errMachine, withinVariable, text)
	}
	return now.Add(within), nil
}

// within returns the flags that have go test start each package by testrun itself, see begin.
func (r *runner) within() []string {
	if r.last.IsZero() {
		return nil
	}
	return []string{fmt.Sprintf("-exec=%s begin %d", r.self, r.last.Unix())}
}

// late reports whether nothing may begin any more; what is left out is then named at the end.
func (r *runner) late(name string) bool {
	if r.last.IsZero() || time.Now().Before(r.last) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.untimely = append(r.untimely, name)
	return true
}

// begin is testrun as the starter of a test: it runs the program, or says that there is no time.
// The arguments are the time in seconds after 1970, the program and its arguments.
func begin(args []string, out io.Writer) error {
	const least = 2
	if len(args) < least {
		return fmt.Errorf("%w: begin needs a time and a program, has %q", errMachine, args)
	}
	last, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: begin: %w", errMachine, err)
	}
	if time.Now().Unix() < last {
		return become(args[1:])
	}
	_, err = fmt.Fprintln(out, untimely)
	return err
}

// isUntimely reports whether a package's output says that it was left out.
func isUntimely(line string) bool { return strings.TrimSpace(line) == untimely }
