package simtest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// story is a history whose disturbances are listed, instead of drawn from its seed. The
// seed still decides the edits, the pauses and the latency.
type story struct {
	seed  uint64
	edits []edit
	// always are the habits of the whole history, happenings what happens at requests.
	always     []applytest.Disturbance
	happenings []happening
	// prompt has no request that takes seconds.
	prompt bool
}

// edit is one of the edits that the seed stands for.
type edit struct {
	n      int    // counted from 1
	random []byte // the state of World.Random before it
}

func (e edit) String() string { return fmt.Sprintf("%s%d %x", storyEdit, e.n, e.random) }

// happening is a disturbance at a request: which of those that look like it.
type happening struct {
	what    applytest.Disturbance
	request string
	nth     int
}

func (h happening) sameRequest(other happening) bool {
	return h.request == other.request && h.nth == other.nth
}

func (h happening) String() string { return fmt.Sprintf("%s: %s #%d", h.what, h.request, h.nth) }

// The lines of a story.
const (
	storyBegin  = "-- history --"
	storySeed   = "seed "
	storyEdit   = "edit "
	storyPrompt = "no slow requests"
	storyAlways = "always: "
)

// String returns the story as parseStory reads it.
func (s *story) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s%d\n", storyBegin, storySeed, s.seed)
	for _, each := range s.edits {
		b.WriteString(each.String() + "\n")
	}
	if s.prompt {
		b.WriteString(storyPrompt + "\n")
	}
	for _, each := range s.always {
		b.WriteString(storyAlways + string(each) + "\n")
	}
	for _, each := range s.happenings {
		b.WriteString(each.String() + "\n")
	}
	return b.String()
}

// parseStory reads the section "history" of a txtar archive; what is before and after it is
// for people. known are the disturbances that it may name.
func parseStory(text string, known []applytest.Disturbance) (*story, error) {
	s, inside, begun := &story{}, false, false
	for lines, n := bufio.NewScanner(strings.NewReader(text)), 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(line, " --") {
			inside = line == storyBegin
			begun = begun || inside
			continue
		}
		if !inside || line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.read(line, known); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, line, err)
		}
	}
	switch {
	case !begun:
		return nil, fmt.Errorf("there is no line %q", storyBegin)
	case s.seed == 0:
		return nil, fmt.Errorf("there is no line %q", storySeed+"N")
	}
	return s, nil
}

func (s *story) read(line string, known []applytest.Disturbance) (err error) {
	disturbance := func(name string) (applytest.Disturbance, error) {
		if d := applytest.Disturbance(name); slices.Contains(known, d) {
			return d, nil
		}
		return "", fmt.Errorf("%q is no disturbance of this scenario; want one of %q", name, known)
	}
	switch {
	case line == storyPrompt:
		s.prompt = true
	case strings.HasPrefix(line, storySeed):
		s.seed, err = strconv.ParseUint(line[len(storySeed):], 10, 64)
	case strings.HasPrefix(line, storyEdit):
		var e edit
		if _, err = fmt.Sscanf(line, storyEdit+"%d %x", &e.n, &e.random); err == nil {
			err = new(rand.PCG).UnmarshalBinary(e.random)
		}
		s.edits = append(s.edits, e)
	case strings.HasPrefix(line, storyAlways):
		var d applytest.Disturbance
		d, err = disturbance(line[len(storyAlways):])
		s.always = append(s.always, d)
	default:
		name, rest, found := strings.Cut(line, ": ")
		at := strings.LastIndex(rest, " #")
		if !found || at < 0 {
			return fmt.Errorf("want a disturbance and a request, such as %q", happening{applytest.KillAfter, "create pods shop/web", 1})
		}
		h := happening{request: rest[:at]}
		if h.what, err = disturbance(name); err != nil {
			return err
		}
		h.nth, err = strconv.Atoi(rest[at+2:])
		s.happenings = append(s.happenings, h)
	}
	return err
}

// Replay simulates the history of a story: of the file that a failing test has written, or
// of one that is kept as a regression test. The test fails if the history is wrong.
func Replay(t *testing.T, scenario func() Scenario, file string) *Report {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // the caller names it
	if err != nil {
		t.Fatal(err)
	}
	s := scenario()
	told, err := parseStory(string(text), s.everyDisturbance())
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	r := bubble(t, scenario, plan{seed: told.seed, story: told})
	if r.story != nil && len(told.happenings) > 0 && len(r.story.happenings) == 0 {
		t.Errorf("%s: it tests nothing any more: none of its %d disturbances met its request, such as %q",
			file, len(told.happenings), told.happenings[0])
	}
	if len(r.Wrong) > 0 {
		t.Log(r.Trace)
		t.Error(strings.Join(r.Wrong, "\n"))
	}
	return r
}
