package simtest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Findings is what went wrong in many histories.
type Findings struct {
	// Histories is how many were simulated.
	Histories int
	// Symptoms are what went wrong, the most frequent first.
	Symptoms []Symptom
	// Chance is where two simulations of one seed began to differ: there the program
	// left something to chance. It is empty if those that were simulated twice, the
	// first of each symptom and the one of seed 1, did not differ.
	Chance string
}

// Symptom is what went wrong first in some histories.
type Symptom struct {
	// Wrong is the first thing that was wrong in the first of the histories.
	Wrong string
	// Seeds are those of the histories, ascending.
	Seeds []uint64
	// Report is that of the first.
	Report *Report
	// Repeats is whether the first was wrong in the same way when it was simulated
	// again.
	Repeats bool
}

// String returns a table: how many, which seeds, and what.
func (f Findings) String() string {
	var b strings.Builder
	wrong := 0
	for _, s := range f.Symptoms {
		wrong += len(s.Seeds)
	}
	_, _ = fmt.Fprintf(&b, "%d of %d histories are wrong", wrong, f.Histories) // a Builder takes everything
	for _, s := range f.Symptoms {
		again := "repeats"
		if !s.Repeats {
			again = "did not repeat"
		}
		first, _, _ := strings.Cut(s.Wrong, "\n")
		_, _ = fmt.Fprintf(&b, "\n%5d: %s\n       seeds %s (%s)", len(s.Seeds), first, some(s.Seeds), again) // likewise
	}
	if f.Chance != "" {
		b.WriteString("\nthe program leaves something to chance:\n" + f.Chance)
	}
	return b.String()
}

func some(seeds []uint64) string {
	const most = 12
	text := strings.Trim(fmt.Sprint(seeds[:min(len(seeds), most)]), "[]")
	if len(seeds) > most {
		text += " ..."
	}
	return text
}

// Survey simulates the histories of the seeds 1 to n, also after one that is wrong,
// and groups them by what went wrong first, numbers and generated names aside.
func Survey(t *testing.T, scenario func() Scenario, n int) Findings {
	t.Helper()
	found := Findings{Histories: n}
	index := map[string]int{}
	for seed := range uint64(n) {
		r := Simulate(t, scenario, seed+1)
		if len(r.Wrong) == 0 {
			if seed == 0 {
				found.Chance = chance(r, Simulate(t, scenario, 1))
			}
			continue
		}
		class := classOf(r.Wrong[0])
		i, ok := index[class]
		if !ok {
			i = len(found.Symptoms)
			index[class] = i
			again := Simulate(t, scenario, r.Seed)
			repeats := len(again.Wrong) > 0 && classOf(again.Wrong[0]) == class
			found.Symptoms = append(found.Symptoms, Symptom{Wrong: r.Wrong[0], Report: r, Repeats: repeats})
			found.Chance = cmp.Or(found.Chance, chance(r, again))
		}
		found.Symptoms[i].Seeds = append(found.Symptoms[i].Seeds, r.Seed)
	}
	slices.SortStableFunc(found.Symptoms, func(a, b Symptom) int { return cmp.Compare(len(b.Seeds), len(a.Seeds)) })
	return found
}

// varying is what differs between two occurrences of one symptom: words with a digit.
var varying = regexp.MustCompile(`[\w.:-]*\d[\w.:-]*`)

func classOf(wrong string) string {
	first, _, _ := strings.Cut(wrong, "\n")
	return varying.ReplaceAllString(first, "N")
}

// chance returns where two simulations of one history differ first, with the line
// before, or nothing.
func chance(once, again *Report) string {
	a, b := strings.Split(once.Trace, "\n"), strings.Split(again.Trace, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			before := ""
			if i > 0 {
				before = "after " + a[i-1] + "\n"
			}
			return fmt.Sprintf("seed %d, line %d of the trace, %sonce  %s\nagain %s", once.Seed, i+1, before, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("seed %d: one trace has %d lines, the other %d", once.Seed, len(a), len(b))
	}
	return ""
}
