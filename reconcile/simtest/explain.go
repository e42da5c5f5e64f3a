package simtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// reproducer is the command that repeats the history alone.
func (r *Report) reproducer(t *testing.T) string {
	t.Helper()
	set := fmt.Sprintf("SIMTEST_SEED=%d ", r.Seed)
	if r.Cut.Request > 0 {
		set += fmt.Sprintf("SIMTEST_CUT=%s ", quoted(r.Cut.String()))
	}
	if without := os.Getenv("SIMTEST_WITHOUT"); without != "" {
		set += fmt.Sprintf("SIMTEST_WITHOUT=%s ", quoted(without))
	}
	return command(t, set)
}

// command is the command that runs the test with variables of the environment. The variable
// GODEBUG makes math/rand repeat, of which client-go draws pauses.
func command(t *testing.T, set string) string {
	t.Helper()
	name := strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^")
	return fmt.Sprintf("%sGODEBUG=randautoseed=0 go test -count=1 -v -run %s", set, quoted("^"+name+"$"))
}

// quoted returns a word as a shell reads it.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// explain shrinks a history that is wrong, writes its story and its page, and returns what a
// person needs to read it.
func explain(t *testing.T, scenario func() Scenario, r *Report) string {
	t.Helper()
	small := shrink(t, scenario, r, shrinkTime)
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune(`/\: `, c) {
			return '_'
		}
		return c
	}, t.Name())
	dir := filepath.Join(os.TempDir(), "simtest", fmt.Sprintf("%s-%d", name, r.Seed))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err.Error()
	}
	s := scenario()
	known := s.everyDisturbance()
	again, text := small.reproducer(t), ""
	if small != r {
		file := filepath.Join(dir, "story.txtar")
		told := fmt.Sprintf("%s\n%s-- wrong --\n%s\n-- trace --\n%s", command(t, ""), small.story, strings.Join(small.Wrong, "\n"), small.Trace)
		if err := os.WriteFile(file, []byte(told), 0o600); err != nil {
			return err.Error()
		}
		again = command(t, fmt.Sprintf("SIMTEST_STORY=%s ", quoted(file)))
		text = fmt.Sprintf("smaller, %d of %d edits and %d of %d disturbances: %s\n%s", len(small.story.edits), len(r.story.edits),
			len(small.story.happenings), len(r.story.happenings), again, small.story)
	} else if r.story != nil {
		text = "not made smaller: its disturbances alone did not go wrong in the same way, so the program leaves something to chance\n"
	}
	file := filepath.Join(dir, "trace.html")
	html, err := tracePage(small, fmt.Sprintf("%s, seed %d", t.Name(), r.Seed), again, known)
	if err == nil {
		err = os.WriteFile(file, []byte(html), 0o600)
	}
	if err != nil {
		return text + err.Error()
	}
	return text + "page: " + file
}
