package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

const module = "github.com/seed-9e1ffd66/trueup"

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a build
	FailedBuild                   string
	Elapsed                       float64
}

// A result is how a test or a package ended.
type result struct {
	pkg, test string
	seconds   float64
	output    []string
	command   string // runs it alone
}

// A batch collects what one go test printed.
type batch struct {
	command func(pkg, test string) string
	report  func(line string)
	total   int // packages

	running map[string]time.Time
	output  map[[2]string][]string
	build   map[string][]string
	tests   []result // that passed or failed, without subtests
	failed  []result
	skipped map[string]int // by reason
	// untimely are the packages that were left out for want of time.
	untimely []string
	// crashed are the packages in which the runtime has crashed, which is not the program's panic. With
	// once set they are run again, and have not failed.
	crashed []string
	once    bool
	done    int
}

func newBatch(total int, report func(string), command func(pkg, test string) string) *batch {
	return &batch{
		total: total, report: report, command: command, running: map[string]time.Time{}, output: map[[2]string][]string{},
		build: map[string][]string{}, skipped: map[string]int{},
	}
}

// read takes the events until the stream ends. A line that is no event is reported.
func (b *batch) read(events io.Reader, lock, unlock func()) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			lock()
			var e event
			if json.Unmarshal(line, &e) == nil {
				b.take(e)
			} else if text := strings.TrimSpace(string(line)); text != "" {
				b.report(text)
			}
			unlock()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *batch) take(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "start":
		b.running[e.Package] = time.Now()
	case "build-output":
		b.build[e.ImportPath] = append(b.build[e.ImportPath], e.Output)
	case "output":
		b.output[key] = append(b.output[key], e.Output)
		if e.Test == "" && isUntimely(e.Output) {
			b.untimely = append(b.untimely, short(e.Package))
		}
	case "skip":
		if e.Test != "" {
			b.skipped[reason(b.output[key])]++
		}
		b.end(e)
	case "pass", "fail":
		b.end(e)
	}
}

// end takes the end of a test or of a package.
func (b *batch) end(e event) {
	key := [2]string{e.Package, e.Test}
	r := result{pkg: short(e.Package), test: e.Test, seconds: e.Elapsed, output: b.output[key], command: b.command(e.Package, e.Test)}
	delete(b.output, key)
	if e.Test != "" {
		if e.Action == "fail" && e.FailedBuild == "" && !b.onlyParent(r) {
			b.failed = append(b.failed, r)
		}
		if e.Action != "skip" && !strings.Contains(e.Test, "/") {
			r.output = nil
			b.tests = append(b.tests, r)
		}
		return
	}
	delete(b.running, e.Package)
	b.done++
	if e.Action == "fail" {
		b.packageFailed(e, r)
	}
	if e.Action != "skip" { // a package without tests
		b.report(
			fmt.Sprintf("%-4s %3d of %d %6.1f s  %s", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], b.done, b.total, e.Elapsed, r.pkg),
		)
	}
}

// onlyParent reports whether the test failed because a subtest did.
func (b *batch) onlyParent(r result) bool {
	return slices.ContainsFunc(b.failed, func(f result) bool { return f.pkg == r.pkg && strings.HasPrefix(f.test, r.test+"/") })
}

// packageFailed adds what no test has been blamed for: a build, a panic, a time-out.
func (b *batch) packageFailed(e event, r result) {
	if e.FailedBuild != "" {
		r.output = b.build[e.FailedBuild]
		b.failed = append(b.failed, r)
		return
	}
	if b.once && b.crash(e.Package) {
		b.crashed = append(b.crashed, e.Package)
		return
	}
	// A test that was running when the process ended has no end of its own.
	for key, output := range b.output {
		if key[0] == e.Package && key[1] != "" && slices.ContainsFunc(output, func(line string) bool {
			return strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "WARNING: DATA RACE") ||
				strings.HasPrefix(line, "SIGSEGV: ")
		}) {
			b.failed = append(b.failed, result{pkg: r.pkg, test: key[1], output: output, command: b.command(e.Package, key[1])})
		}
	}
	if !slices.ContainsFunc(b.failed, func(f result) bool { return f.pkg == r.pkg }) {
		b.failed = append(b.failed, r)
	}
}

// crash reports whether a process ended by a signal that the runtime does not make a panic of, or because
// the race detector found a fault in itself. With Go 1.26 it does so if two threads run timers of one
// synctest bubble at the same time (golang/go#78156).
func (b *batch) crash(pkg string) bool {
	for key, output := range b.output {
		at := slices.Index(output, "SIGSEGV: segmentation violation\n")
		if key[0] == pkg && at >= 0 && at+1 < len(output) && strings.HasPrefix(output[at+1], "PC=") {
			return true
		}
		inItself := func(line string) bool { return strings.HasPrefix(line, "ThreadSanitizer: CHECK failed: ") }
		if key[0] == pkg && slices.ContainsFunc(output, inItself) {
			return true
		}
	}
	return false
}

// reason returns why a test was skipped: the text of its last line.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			_, text, _ = strings.Cut(text, ": ")
			return text
		}
		return line
	}
	return "no reason given"
}

// blames matches the line that an assertion, a wait of package await, the runtime or the
// race detector begins with.
var blames = regexp.MustCompile(`Error Trace:|^\s+\S+\.go:\d+: waited |^panic:|^WARNING: DATA RACE|^fatal error:|^SIGSEGV: `)

// essence returns the lines that say why a test failed, twenty at most.
func (r result) essence() []string {
	const most = 20
	var lines []string
	for _, line := range r.output {
		line = strings.TrimRight(line, "\n")
		if text := strings.TrimSpace(line); text == "" || strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- PASS") {
			continue
		}
		if len(line) > 240 {
			line = line[:240] + " ..."
		}
		lines = append(lines, line)
	}
	if len(lines) <= most {
		return lines
	}
	// The first line that blames, and what follows it.
	at := slices.IndexFunc(lines, blames.MatchString)
	if at < 0 || len(lines)-at < most {
		at = len(lines) - most
	}
	return lines[at : at+most]
}

func short(pkg string) string {
	return "." + strings.TrimPrefix(pkg, module)
}

func slowest(tests []result, n int) []result {
	tests = slices.Clone(tests)
	slices.SortStableFunc(tests, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
	return tests[:min(n, len(tests))]
}
