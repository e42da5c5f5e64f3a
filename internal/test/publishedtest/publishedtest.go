// Package publishedtest simulates histories of controllers that other projects have
// published, and compares what is found with what is on record.
package publishedtest

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Defect is one of a published controller that upstream has on record, or that was
// found here.
type Defect struct {
	Name, Controller, Record string
	// Symptom is a pattern of how it shows. Within is how many seeds it takes, or
	// ByChance.
	Symptom string
	Within  int
	// File, From and To are a change that ends it, made after the description of the
	// defect. They are empty if none is made.
	File, From, To string
}

// ByChance is the number of seeds of a defect whose seeds do not repeat.
const ByChance = math.MaxInt

// Seeds is how many histories of each controller are simulated: PUBLISHED_SEEDS, and
// otherwise 40.
func Seeds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PUBLISHED_SEEDS")
	if text == "" {
		return 40
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("PUBLISHED_SEEDS: %v", err)
	}
	return n
}

// Run simulates histories of a controller. The test fails with a symptom of no
// defect of it, and with a defect that does not show within its seeds. With
// SIMTEST_SEED it simulates that one history.
func Run(t *testing.T, controller string, scenario func() simtest.Scenario, defects []Defect) {
	t.Helper()
	if os.Getenv("SIMTEST_SEED") != "" {
		simtest.Run(t, scenario)
		return
	}
	n := Seeds(t)
	found := simtest.Survey(t, scenario, n)
	t.Log(found)
	for _, wrong := range compare(found, controller, defects) {
		t.Error(wrong)
	}
	fmt.Printf("figure sim_published_%s %d count\n", controller, n)
}

// compare returns the symptoms of no defect, and the defects that should have shown.
func compare(found simtest.Findings, controller string, defects []Defect) (wrong []string) {
	shown := map[string]bool{}
	for _, s := range found.Symptoms {
		known := false
		for _, d := range defects {
			if d.Controller == controller && regexp.MustCompile(d.Symptom).MatchString(s.Wrong) {
				known, shown[d.Name] = true, true
			}
		}
		if !known {
			wrong = append(wrong, fmt.Sprintf("not on record: %s, seeds %v\n%s", s.Wrong, s.Seeds, s.Report.Trace))
		}
	}
	for _, d := range defects {
		if d.Controller == controller && d.Within <= found.Histories && !shown[d.Name] {
			wrong = append(wrong, fmt.Sprintf("%s is not found: %s", d.Name, d.Record))
		}
	}
	return wrong
}
