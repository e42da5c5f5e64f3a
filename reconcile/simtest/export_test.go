package simtest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Expire forgets the history of a server.
func (s *Server) Expire() { s.expire() }

// Collect has the garbage collector do what it has to do next.
func (s *Server) Collect() int { return len(s.collect()) }

// OnChange calls a function after each change.
func (s *Server) OnChange(changed func(Change)) { s.changed = changed }

// OnUnserved calls a function with the cure of each answer that has one.
func (s *Server) OnUnserved(unserved func(cure string)) {
	s.unserved = func(_ call, a *answer) { unserved(a.cure) }
}

// SpinAtMost sets how long a program may work in one moment of virtual time.
func SpinAtMost(limit time.Duration) { spins = limit }

// Watch panics if no step is counted within limit.
func Watch(name string, beats *atomic.Int64, limit time.Duration) (stop func()) {
	return watch(name, beats, limit)
}

// Advance lets time pass on an agenda that counts its steps.
func Advance(ctx context.Context, beats *atomic.Int64, d time.Duration) {
	newAgenda(beats).advance(ctx, d)
}

// Shrunk is a smaller history with the symptom of r: its story, and how many edits and
// disturbances it has. before is how many r has.
func Shrunk(t *testing.T, scenario func() Scenario, r *Report) (story string, small *Report, edits, disturbances, before int) {
	t.Helper()
	small = shrink(t, scenario, r, time.Hour)
	told := small.story
	return told.String(), small, len(told.edits), len(told.happenings) + len(told.always), len(r.story.happenings) + len(r.story.always)
}

// ParseStory returns the text of a story that was read, or the error.
func ParseStory(text string) (string, error) {
	told, err := parseStory(text, new(Scenario).everyDisturbance())
	if err != nil {
		return "", err
	}
	return told.String(), nil
}

// Rows returns the lines of a trace with their lanes, as a page shows them.
func Rows(trace string) (all []string) {
	for _, row := range rows(trace, new(Scenario).everyDisturbance()) {
		all = append(all, strings.Join([]string{row.At, row.Gap, row.Lane, row.Text}, " | "))
	}
	return all
}

// Told simulates the history of a story.
func Told(t *testing.T, scenario func() Scenario, text string) *Report {
	t.Helper()
	told, err := parseStory(text, new(Scenario).everyDisturbance())
	if err != nil {
		t.Fatal(err)
	}
	return bubble(t, scenario, plan{seed: told.seed, story: told})
}

// MovesAlone reports whether a write changed managedFields alone.
func MovesAlone(c Change) bool { return c.movesAlone() }
