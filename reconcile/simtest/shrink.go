package simtest

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// How much a failure may cost to shrink.
const (
	shrinkRuns = 2000
	shrinkTime = 30 * time.Second
)

// shrinker looks for a smaller history with the same symptom.
type shrinker struct {
	t        *testing.T
	scenario func() Scenario
	class    string
	best     *Report
	runs     int
	end      time.Time
}

// shrink returns the history with the fewest edits and disturbances that it finds for what
// went wrong in a history: r itself, if the story of r is not wrong in the same way, since
// the program leaves something to chance. It ends after limit, in real time.
func shrink(t *testing.T, scenario func() Scenario, r *Report, limit time.Duration) *Report {
	t.Helper()
	if r.story == nil || len(r.Wrong) == 0 {
		return r
	}
	s := &shrinker{t: t, scenario: scenario, class: classOf(r.Wrong[0]), best: r, end: time.Now().Add(limit)}
	if !s.wrong(*r.story) {
		return r
	}
	for size := -1; size != s.size() && s.left(); {
		size = s.size()
		halve(s, func(told *story) *[]edit { return &told.edits })
		halve(s, func(told *story) *[]happening { return &told.happenings })
		halve(s, func(told *story) *[]applytest.Disturbance { return &told.always })
		if told := *s.best.story; !told.prompt {
			told.prompt = true
			s.wrong(told)
		}
	}
	return s.best
}

func (s *shrinker) size() int {
	told := s.best.story
	n := len(told.edits) + len(told.always) + len(told.happenings)
	if !told.prompt {
		n++
	}
	return n
}

func (s *shrinker) left() bool { return s.runs < shrinkRuns && time.Now().Before(s.end) }

// wrong reports whether a story goes wrong in the same way, and keeps it then.
func (s *shrinker) wrong(told story) bool {
	if !s.left() {
		return false
	}
	s.runs++
	r := bubble(s.t, s.scenario, plan{seed: told.seed, story: &told})
	if len(r.Wrong) == 0 || classOf(r.Wrong[0]) != s.class {
		return false
	}
	s.best = r
	return true
}

// halve leaves out halves of a list of the story, then quarters, and so on.
func halve[T any](s *shrinker, list func(*story) *[]T) {
	length := func() int { return len(*list(s.best.story)) }
	for size := (length() + 1) / 2; size > 0 && s.left(); size /= 2 {
		for at := 0; at < length() && s.left(); {
			told := *s.best.story
			some := list(&told)
			*some = slices.Delete(slices.Clone(*some), at, min(at+size, len(*some)))
			if !s.wrong(told) {
				at += size
			}
		}
	}
}
