// Package metrictest keeps the list of the metrics that each program exports, against
// which alerts and dashboards are checked.
package metrictest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// described matches the text of a [prometheus.Desc], which has no methods for its fields.
var (
	described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)
	// constant is a label with its value.
	constant = regexp.MustCompile(`([A-Za-z0-9_]+)="(?:[^"\\]|\\.)*"`)
)

// Names returns a line for each metric of the collectors: its name, and its labels with
// commas between. Those of the Go runtime are left out: they are not the program's own.
func Names(tb testing.TB, collectors ...prometheus.Collector) []string {
	tb.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		for _, c := range collectors {
			c.Describe(descriptions)
		}
	}()
	var lines []string
	for d := range descriptions {
		found := described.FindStringSubmatch(strings.ReplaceAll(d.String(), "\n", " "))
		if found == nil {
			tb.Fatalf("%s has no name", d)
		}
		if strings.HasPrefix(found[1], "go_") {
			continue
		}
		var labels []string
		for _, pair := range constant.FindAllStringSubmatch(found[2], -1) {
			labels = append(labels, pair[1])
		}
		for name := range strings.SplitSeq(found[3], ",") {
			if name != "" {
				labels = append(labels, strings.TrimSpace(name))
			}
		}
		slices.Sort(labels)
		lines = append(lines, strings.TrimSpace(found[1]+" "+strings.Join(labels, ",")))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// File returns the path of the list of a program.
func File(tb testing.TB, program string) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, "ops", "metrics", program+".txt")
		}
		up := filepath.Dir(dir)
		if up == dir {
			tb.Fatal("there is no go.work above the test")
		}
		dir = up
	}
}

// Check fails the test if the metrics of the collectors are not those in the list of the
// program. With TRUEUP_UPDATE=1 it writes the list.
func Check(tb testing.TB, program string, collectors ...prometheus.Collector) {
	tb.Helper()
	lines := Names(tb, collectors...)
	want := []byte(strings.Join(lines, "\n") + "\n")
	file := File(tb, program)
	if os.Getenv("TRUEUP_UPDATE") == "1" {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		tb.Errorf(
			"%s is not what the program exports; TRUEUP_UPDATE=1 rewrites it, then look at its alerts and its dashboard. It exports:\n%s",
			file,
			want,
		)
	}
}
