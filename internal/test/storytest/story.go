// Package storytest runs tests that read like stories: a txtar file begins with a script,
// whose lines are comments (#), commands, and after each command what it prints, each
// line after ">". With -update-stories the outputs are rewritten, for a person to read.
package storytest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update-stories", false, "rewrite the outputs in the stories of testdata")

// Story is one file.
type Story struct {
	// Files are those after the script.
	Files map[string]string

	path, script, archive string
}

// Each runs test as a subtest, in parallel, for each file that the pattern matches. One
// must.
func Each(t *testing.T, pattern string, test func(t *testing.T, s *Story)) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no story is %s: %v", pattern, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			test(t, parse(path, string(text)))
		})
	}
}

var fileLine = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

func parse(path, text string) *Story {
	s := &Story{path: path, script: text, Files: map[string]string{}}
	names := fileLine.FindAllStringSubmatchIndex(text, -1)
	if len(names) > 0 {
		s.script, s.archive = text[:names[0][0]], text[names[0][0]:]
	}
	for i, at := range names {
		end := len(text)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		s.Files[text[at[2]:at[3]]] = text[at[1]:end]
	}
	s.script = strings.TrimSuffix(s.script, "\n")
	return s
}

// Play runs the commands in their order, and compares what each prints with the story.
// Empty lines of it are left out.
func (s *Story) Play(t *testing.T, command func(line string) string) {
	t.Helper()
	var result []string
	lines := strings.Split(s.script, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ">") {
			continue // compared below
		}
		result = append(result, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var want []string
		for j := i + 1; j < len(lines) && strings.HasPrefix(lines[j], ">"); j++ {
			want = append(want, lines[j])
		}
		got := quoted(command(line))
		if !*update && !slices.Equal(want, got) {
			t.Fatalf("%s:%d: %s\nprinted:\n%s\nthe story has:\n%s", s.path, i+1, line, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		result = append(result, got...)
	}
	if *update {
		if err := os.WriteFile(s.path, []byte(strings.Join(result, "\n")+"\n"+s.archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func quoted(text string) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			lines = append(lines, "> "+strings.TrimRight(line, " "))
		}
	}
	return lines
}
