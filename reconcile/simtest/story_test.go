package simtest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// defective is the scenario of a planted defect.
func defective(name string) func() simtest.Scenario {
	s := scenario(planted[name])
	s.Rest = time.Hour
	return always(s)
}

// failing returns the first history in which a scenario is wrong.
func failing(t *testing.T, s func() simtest.Scenario) *simtest.Report {
	t.Helper()
	for seed := range uint64(100) {
		if r := simtest.Simulate(t, s, seed+1); len(r.Wrong) > 0 {
			return r
		}
	}
	require.Fail(t, "no history is wrong")
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// TestAFailureIsShrunk: the smaller history goes wrong in the same way, has nothing that
// can be left out by halves, and its text replays it.
func TestAFailureIsShrunk(t *testing.T) {
	t.Parallel()
	for name, most := range map[string][2]int{ // edits, disturbances
		"a write on every pass after convergence": {1, 0},
		"a foreign object adopted by its name":    {2, 0},
		"crash between two writes never repaired": {2, 1},
		"transient error swallowed":               {17, 10}, // a disturbance at the 63rd list needs what was listed before
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defective(name)
			r := failing(t, s)
			story, small, edits, disturbances, before := simtest.Shrunk(t, s, r)
			t.Logf("seed %d: %d disturbances of %d\n%s%s", r.Seed, disturbances, before, story, small.Wrong[0])
			require.LessOrEqual(t, edits, most[0], story)
			require.LessOrEqual(t, disturbances, most[1], story)
			require.Less(t, disturbances, before)

			again := simtest.Told(t, s, "for people\n"+story+"-- trace --\nlife 1: starts\n")
			require.Equal(t, small.Trace, again.Trace)
			require.Equal(t, firstLine(small.Wrong[0]), firstLine(again.Wrong[0]))
		})
	}
}

// TestAnotherFailureIsNotShrunkTo has a scenario that is wrong in another way without an edit.
func TestAnotherFailureIsNotShrunkTo(t *testing.T) {
	t.Parallel()
	s := func() simtest.Scenario {
		s, edits := pods(simtest.Kubelet{}), 0
		s.Edits, s.Settle, s.Rest, s.Edit = 4, time.Minute, time.Minute, func(*simtest.World) { edits++ }
		s.Converged = func(*simtest.World) error {
			if edits > 0 {
				return errors.New("edited")
			}
			return errors.New("untouched")
		}
		return s
	}
	_, small, edits, _, _ := simtest.Shrunk(t, s, simtest.Simulate(t, s, 1))
	require.Equal(t, "not converged: edited", firstLine(small.Wrong[0]))
	require.Equal(t, 1, edits)
}

// TestACoverageIsChecked is the program of the test below it.
func TestACoverageIsChecked(t *testing.T) {
	c := simtest.Coverage{Boundaries: 10, Reached: 9}
	switch os.Getenv("SIMTEST_SUBJECT") {
	case "few":
		c.Check(t, 91)
	case "wrong":
		c.Failed = []*simtest.Report{{Cut: simtest.Cut{Request: 3, What: "kill after"}, Wrong: []string{"a", "b"}}}
		c.Check(t, 0)
	default:
		c.Check(t, 90)
	}
}

func TestACoverageThatIsShortFails(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{"few": "9 of 10 boundaries were reached, want 91 %", "wrong": "3 kill after: a\n        b"} {
		program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestACoverageIsChecked$")
		program.Env = append(os.Environ(), "SIMTEST_SUBJECT="+subject)
		out, err := program.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), want)
	}
}

// TestAFailureWritesItsStoryAndItsPage runs a test that fails, and then the command that it
// prints.
func TestAFailureWritesItsStoryAndItsPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(env ...string) string {
		program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSubject$", "-test.v")
		program.Env = append(append(os.Environ(), "SIMTEST_SUBJECT=lazy", "SIMTEST_HISTORIES=1", "TMPDIR="+dir), env...)
		out, err := program.CombinedOutput()
		require.Error(t, err, "%s", out)
		return string(out)
	}
	out := run()
	story, html := filepath.Join(dir, "simtest", "TestSubject-1", "story.txtar"), filepath.Join(dir, "simtest", "TestSubject-1", "trace.html")
	require.Contains(t, out, "SIMTEST_STORY='"+story+"' GODEBUG=randautoseed=0 go test -count=1 -v -run '^TestSubject$'\n")
	require.Regexp(t, `smaller, 0 of 4 edits and 0 of \d+ disturbances: `, out)
	require.Contains(t, out, "page: "+html)

	text, err := os.ReadFile(story)
	require.NoError(t, err)
	require.Contains(t, string(text), "-- wrong --\nnot converged: ")
	again := run("SIMTEST_STORY=" + story)
	require.Contains(t, again, "not converged: ")
	require.Contains(t, run("SIMTEST_STORY=none"), "open none: no such file")
	require.NoError(t, os.WriteFile(story, []byte("-- history --\nseed x\n"), 0o600))
	require.Contains(t, run("SIMTEST_STORY="+story), story+`: line 2: "seed x"`)

	page, err := os.ReadFile(html)
	require.NoError(t, err)
	require.Contains(t, string(page), `<pre class="wrong">not converged: `)
	require.Contains(t, string(page), "<title>TestSubject, seed 1</title>")
	require.Contains(t, string(page), "&#39; GODEBUG=randautoseed=0 go test", "the command, escaped")
	require.Regexp(t, `<tr><td>[\d.]+m?s</td><td class="others">user: create [^<]+</td><td class="program"></td>`+
		`<td class="faults"></td><td class="events"></td></tr>`, string(page))
	require.Regexp(t, `<td class="wrong" colspan="4">WRONG: not converged: `, string(page))
}

func TestEachLineOfATraceHasItsLane(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"900µs |  | program | life 1: starts",
		"1.5s |  | others | user: create configmaps shop/a: 201",
		"1.6s |  | faults | life 1: kill after create configmaps shop/b",
		"1.7s |  | program | life 1: create configmaps shop/b: 201 b",
		"2m3s | 2m1s | events | watch 3: ADDED configmaps shop/a at 102",
		"2m3s |  | faults | another replica starts",
		"2m4s |  | others | garbage collector: delete parts.example.com shop/p",
		"1h2m4s | 1h0m0s | clock | no more faults",
		"1h2m5s |  | wrong | WRONG: the end differs:\ngot  a\nwant b",
	}, simtest.Rows(`900µs life 1: starts
1.5s user: create configmaps shop/a: 201
1.6s life 1: kill after create configmaps shop/b
1.7s life 1: create configmaps shop/b: 201 b
2m3s watch 3: ADDED configmaps shop/a at 102
2m3s another replica starts
2m4s garbage collector: delete parts.example.com shop/p
1h2m4s no more faults
1h2m5s WRONG: the end differs:
got  a
want b
`))
}

func TestAStoryIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	const text = `-- history --
seed 38
edit 9 7063673a7b717b26bc1ddb3322e59c7c7a9c7344
no slow requests
always: deliver late
kill after: create pods shop/web #1
kill before: patch widgets.example.com/status shop/w #12
`
	got, err := simtest.ParseStory("go test\n" + text + "\n# a comment\n-- trace --\nlife 1: starts\n")
	require.NoError(t, err)
	require.Equal(t, text, got)
	for text, want := range map[string]string{
		"":                                            "there is no line \"-- history --\"",
		"-- history --\nno slow requests":             "there is no line \"seed N\"",
		"-- history --\nseed one":                     `line 2: "seed one": strconv.ParseUint`,
		"-- history --\nseed 1\nedit 1 00":            `line 3: "edit 1 00": invalid PCG encoding`,
		"-- history --\nseed 1\nedit one":             `line 3: "edit one": expected integer`,
		"-- history --\nseed 1\nalways: hail":         `line 3: "always: hail": "hail" is no disturbance of this scenario`,
		"-- history --\nseed 1\nhail: get a #1":       `line 3: "hail: get a #1": "hail" is no disturbance of this scenario`,
		"-- history --\nseed 1\nkill after get":       `want a disturbance and a request, such as "kill after: create pods shop/web #1"`,
		"-- history --\nseed 1\nkill after: get a #x": `strconv.Atoi: parsing "x"`,
	} {
		_, err := simtest.ParseStory(text)
		require.ErrorContains(t, err, want, text)
	}
}
