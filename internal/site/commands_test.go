//go:build unix

package site_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// notPasted are the pages whose shell blocks no test pastes, with the test that does the same, if there is one, and
// why. A page that a test reads needs no row. Go blocks are quoted from tested files: internal/policy.
var notPasted = map[string]struct{ test, why string }{
	"README.md":         {"", "the module is not published; make demo and make test are steps of continuous integration"},
	"CONTRIBUTING.md":   {"", "continuous integration runs these targets, each for minutes"},
	"docs/command.md":   {"cmd/trueup/story_test.go", "the stories run the built program; a clone needs the network"},
	"docs/protocol.md":  {"statesync/readers/readers_test.go", "the reader ends with its server only; the last block is this test"},
	"docs/provider.md":  {"cmd/nodepool/main_test.go", "needs a cluster whose Nodes are this machine"},
	"docs/releasing.md": {"internal/release/seal_test.go", "renames the module, commits, and downloads from it"},
}

// TestEachShellBlockIsPastedOrSaysWhyNot finds pages of the site with shell blocks that no test reads.
func TestEachShellBlockIsPastedOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	named := regexp.MustCompile(`"(?:[^"\s]*/)?([a-z]+\.md)"`)
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"node_modules", ".git", "dist", "bin"}, entry.Name()) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, root+"/internal/site") {
			return nil
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte("ReadFile(")) {
			for _, found := range named.FindAllStringSubmatch(string(text), -1) {
				read["docs/"+found[1]] = true
			}
		}
		return err
	}))
	for page, text := range pages(t) {
		has := len(shellBlocks(text)) > 0
		row, exempt := notPasted[page]
		switch {
		case !has && exempt:
			t.Errorf("%s: has no shell block: remove its row", page)
		case has && !exempt && !read[page]:
			t.Errorf("%s: no test reads the page to run its shell blocks, as cmd/e2e/guide does; nor does it say why", page)
		case exempt && row.test != "":
			require.FileExists(t, filepath.Join(root, row.test), page)
		}
	}
	for page := range notPasted {
		require.FileExists(t, filepath.Join(root, page))
	}
}

// TestTheCommandsOfPagesExist looks at each line of each shell block: its syntax, the targets of make, the folders of
// Go commands, and the flags of our programs.
func TestTheCommandsOfPagesExist(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		missing(t, "bash is not installed")
	}
	looked := 0
	for page, text := range pages(t) {
		for _, block := range shellBlocks(text) {
			check := exec.CommandContext(t.Context(), "bash", "-n")
			check.Stdin = strings.NewReader(block)
			out, err := check.CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", page, block, out)
			for _, fault := range faults(t, block) {
				t.Errorf("%s: %s", page, fault)
			}
			looked++
		}
	}
	require.Greater(t, looked, 30)
}

func TestAFaultOfACommandIsFound(t *testing.T) {
	t.Parallel()
	for block, fault := range map[string]string{
		"make nonsense VERSION=v1\n":                       `make nonsense: is no target of the Makefile`,
		"go run ./cmd/nonsense --flag\n":                   `go run ./cmd/nonsense --flag: ./cmd/nonsense is no folder`,
		"go -C cmd build -o bin/x ./trueupp\n":             `go -C cmd build -o bin/x ./trueupp: ./trueupp is no folder`,
		"go -C trueup/cmd build ./trueupp\n":               `go -C trueup/cmd build ./trueupp: ./trueupp is no folder`,
		"A=b bin/trueup diff --fodler x && make site\n":    `bin/trueup diff --fodler x: trueup has no flag --fodler`,
		"go run ./cmd/shuttle manifests \\\n  --nowhere\n": `go run ./cmd/shuttle manifests --nowhere: shuttle has no flag --nowhere`,
	} {
		require.Equal(t, []string{fault}, faults(t, block))
	}
	require.Empty(t, faults(t, "make site SERVE=1 # ok\ngo -C cmd build ./trueup && bin/trueup diff -f x --part y\ncurl --fail x\n"))
}

var (
	separator  = regexp.MustCompile(`\s*(?:&&|\|\||[|;&])\s*|\n`)
	assignment = regexp.MustCompile(`^[A-Za-z_]+=`)
	comment    = regexp.MustCompile(`(?m)(^|\s)#.*$`)
	quoted     = regexp.MustCompile(`'[^']*'`)
)

// faults returns what is wrong with the commands of a block.
func faults(t *testing.T, block string) (all []string) {
	t.Helper()
	block = quoted.ReplaceAllString(strings.ReplaceAll(block, "\\\n", " "), "''")
	for _, line := range separator.Split(comment.ReplaceAllString(block, ""), -1) {
		words := strings.Fields(line)
		for len(words) > 0 && assignment.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		line = strings.Join(words, " ")
		switch program := path.Base(words[0]); {
		case words[0] == "make":
			all = append(all, makeFaults(t, line, words[1:])...)
		case words[0] == "go":
			all = append(all, goFaults(t, line, words[1:])...)
		case ours(program):
			all = append(all, flagFaults(t, line, program, words[1:])...)
		}
	}
	return all
}

func makeFaults(t *testing.T, line string, targets []string) (all []string) {
	t.Helper()
	for _, target := range targets {
		if assignment.MatchString(target) {
			continue
		}
		declared := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`)
		if !declared.MatchString(content(t, "Makefile")) && !declared.MatchString(content(t, "internal/bench/bench.mk")) {
			return []string{line[:strings.Index(line, target)+len(target)] + ": is no target of the Makefile"}
		}
	}
	return nil
}

func goFaults(t *testing.T, line string, words []string) []string {
	t.Helper()
	from := root
	if words[0] == "-C" {
		from = filepath.Join(root, strings.TrimPrefix(words[1], "trueup/")) // a clone of this repository
	}
	for i, word := range words {
		if !strings.HasPrefix(word, "./") || strings.HasSuffix(word, "...") {
			continue
		}
		if _, err := os.Stat(filepath.Join(from, word)); err != nil {
			return []string{line + ": " + word + " is no folder"}
		}
		if program := path.Base(word); ours(program) && slices.Contains(words[:i], "run") {
			return flagFaults(t, line, program, words[i+1:])
		}
	}
	return nil
}

func flagFaults(t *testing.T, line, program string, words []string) (all []string) {
	t.Helper()
	for _, word := range words {
		flag, _, _ := strings.Cut(word, "=")
		known := regexp.MustCompile("`(-., )?" + regexp.QuoteMeta(flag) + "[ `]")
		if strings.HasPrefix(flag, "--") && !known.MatchString(content(t, "docs/reference/"+program+".md")) {
			all = append(all, line+": "+program+" has no flag "+flag)
		}
	}
	return all
}

func ours(program string) bool {
	return slices.Contains([]string{"agentjob", "application", "controlplane", "krane", "nodepool", "shuttle", "trueup"}, program)
}

func content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// pages returns the text of each page of the site, by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := fs.Glob(os.DirFS(root), pattern)
		require.NoError(t, err)
		for _, file := range files {
			all[file] = content(t, file)
		}
	}
	require.Greater(t, len(all), 20)
	return all
}

var shellBlock = regexp.MustCompile("(?ms)^```(?:sh|bash|console)\n(.*?)^```$")

func shellBlocks(page string) (all []string) {
	for _, found := range shellBlock.FindAllStringSubmatch(page, -1) {
		all = append(all, found[1])
	}
	return all
}
