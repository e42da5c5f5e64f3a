package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/seed-9e1ffd66/trueup"

// root is the folder of the repository.
const root = "../.."

// TestPolicy holds the repository to the rules that no compiler checks. The
// rules are in rules_test.go and docs_test.go, and planted_test.go shows that each
// of them catches what it is for.
//
// A rule that is in the way is changed in the commit that needs it, with the
// reason beside it.
func TestPolicy(t *testing.T) {
	t.Parallel()
	// The files are read here, before any child process runs: go test sees what
	// this process reads, not what go list reads, and would otherwise serve a
	// pass from its cache after the files have changed.
	r, err := readRepo(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range slices.Concat(rules, docRules) {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range rule.check(r) {
				t.Errorf("%s: %s", rule.name, f)
			}
		})
	}
	t.Run("budgets", func(t *testing.T) {
		t.Parallel()
		for _, f := range overBudget(r, goListDeps(root)) {
			t.Errorf("budgets: %s", f)
		}
	})
}

// A finding is one place where a rule is broken.
type finding struct {
	file   string
	line   int // 0: the whole file
	reason string
}

func (f finding) String() string {
	if f.line == 0 {
		return f.file + ": " + f.reason
	}
	return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.reason)
}

// repo is what the rules look at.
type repo struct {
	files []goFile
	mods  map[string]string // content of each go.mod, by its path
	pages map[string]string // content of each Markdown file, by its path
	paths map[string]bool   // every file and folder
}

// there reports whether there is such a file or folder.
func (r repo) there(name string) bool { return r.paths[path.Clean(name)] }

type goFile struct {
	path    string // from the root, with slashes
	module  string // folder of its go.mod; "." is the root module
	content []byte
	fset    *token.FileSet
	ast     *ast.File
}

func (f goFile) dir() string { return path.Dir(f.path) }

func (f goFile) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f goFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

func (f goFile) found(n ast.Node, format string, args ...any) finding {
	return finding{f.path, f.line(n), fmt.Sprintf(format, args...)}
}

// imports returns the paths that f imports with the place of each.
func (f goFile) imports() map[string]ast.Node {
	all := map[string]ast.Node{}
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			all[p] = spec
		}
	}
	return all
}

// production returns the files of the root module that its importers compile.
func (r repo) production() []goFile {
	return slices.DeleteFunc(slices.Clone(r.files), func(f goFile) bool { return f.module != "." || f.test() })
}

// packages returns the files that are no tests, by folder.
func (r repo) packages() map[string][]goFile {
	all := map[string][]goFile{}
	for _, f := range r.files {
		if !f.test() {
			all[f.dir()] = append(all[f.dir()], f)
		}
	}
	return all
}

// readRepo reads every Go file, go.mod and page below fsys, but for those that the go
// command skips too.
func readRepo(fsys fs.FS) (repo, error) {
	r := repo{mods: map[string]string{}, pages: map[string]string{}, paths: map[string]bool{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		r.paths[name] = true
		if d.IsDir() {
			if base == "node_modules" ||
				name != "." && base != ".github" &&
					(strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if base != "go.mod" && path.Ext(base) != ".go" && path.Ext(base) != ".md" {
			return nil
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		switch {
		case base == "go.mod":
			r.mods[name] = string(content)
			return nil
		case path.Ext(base) == ".md":
			r.pages[name] = string(content)
			return nil
		}
		f := goFile{path: name, content: content, fset: token.NewFileSet()}
		f.ast, err = parser.ParseFile(f.fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
		r.files = append(r.files, f)
		return err
	})
	for i := range r.files {
		r.files[i].module = r.moduleOf(r.files[i].dir())
	}
	return r, err
}

// moduleOf returns the nearest folder at or above dir that has a go.mod.
func (r repo) moduleOf(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := r.mods[path.Join(dir, "go.mod")]; ok {
			return dir
		}
	}
	return "."
}

// goListDeps returns a function that lists what the production code of the
// package in a folder reaches outside the standard library and its own module.
func goListDeps(root string) func(dir string) ([]string, error) {
	return func(dir string) ([]string, error) {
		const format = "{{if not .Standard}}{{if not .Module.Main}}{{.ImportPath}}{{end}}{{end}}"
		cmd := exec.Command("go", "list", "-deps", "-f", format, "./"+dir)
		cmd.Dir = root
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("go list: %s", bytes.TrimSpace(exit.Stderr))
		}
		return strings.Fields(string(out)), err
	}
}
