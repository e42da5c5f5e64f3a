// Command countlines prints how many lines one small operator takes: a WebApp with a Deployment,
// a Service and a ConfigMap, a status and a finalizer. Lines that are blank or a comment do not
// count, nor does the type. The function that states the children does.
//
//	go run ./internal/build/countlines [-kubebuilder]
//
// A test of examples/internal/createorupdate shows that all forms do the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// kubebuilder is the program whose scaffold is counted.
const kubebuilder = "sigs.k8s.io/kubebuilder/v4@v4.16.0"

func main() {
	scaffold := flag.Bool("kubebuilder", false, "also count what "+kubebuilder+" writes, which it downloads (two minutes)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *scaffold)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "countlines:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, scaffold bool) error {
	counted, err := count("examples")
	if err != nil {
		return err
	}
	names := []string{"trueup", "embedded", "createorupdate"}
	if scaffold {
		written, err := scaffolded(ctx)
		if err != nil {
			return err
		}
		counted["kubebuilder"] += written
		names = append(names, "kubebuilder")
	}
	for _, name := range names {
		fmt.Printf("figure operator_lines_%s %d count\n", name, counted[name])
	}
	return nil
}

// part is some of a file.
type part struct {
	file string
	has  func(ast.Decl) bool
}

// count returns the lines of each form of the operator below the folder of the examples. That
// of kubebuilder is the controller alone, without imports: its main function is the scaffold's.
func count(examples string) (map[string]int, error) {
	children := part{"internal/webapp/webapp.go", named("Children", "child")}
	peer, wiring := "internal/createorupdate/main.go", named("main", "start")
	controller := func(d ast.Decl) bool { return !imports(d) && !wiring(d) }
	counted := map[string]int{}
	for name, parts := range map[string][]part{
		"trueup":           {{"operator/main.go", all}, children},
		"embedded":         {{"embed/main.go", all}, children},
		"embedded_program": {{"embed/main.go", all}},
		"createorupdate":   {{peer, all}},
		"kubebuilder":      {{peer, controller}},
	} {
		for _, p := range parts {
			n, err := lines(filepath.Join(examples, p.file), p.has)
			if err != nil {
				return nil, err
			}
			counted[name] += n
		}
	}
	return counted, nil
}

func all(ast.Decl) bool { return true }

func imports(d ast.Decl) bool {
	g, ok := d.(*ast.GenDecl)
	return ok && g.Tok == token.IMPORT
}

func named(names ...string) func(ast.Decl) bool {
	return func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && slices.Contains(names, f.Name.Name)
	}
}

// lines counts the lines of code of the declarations of a file that has selects, without blank
// lines and comments. The package clause counts with the imports.
func lines(file string, has func(ast.Decl) bool) (n int, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, data, 0)
	if err != nil {
		return 0, err
	}
	for _, d := range parsed.Decls {
		if !has(d) {
			continue
		}
		if imports(d) {
			n++
		}
		for line := range strings.Lines(string(data[files.Position(d.Pos()).Offset:files.Position(d.End()).Offset])) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				n++
			}
		}
	}
	return n, nil
}

// scaffolded returns the lines of the main function's file that kubebuilder writes for one kind.
func scaffolded(ctx context.Context) (n int, err error) {
	folder, err := os.MkdirTemp("", "countlines")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	for _, args := range [][]string{
		{"init", "--domain", "example.com", "--repo", "example.com/webapp", "--skip-go-version-check", "--fetch-deps=false"},
		{"create", "api", "--group", "web", "--version", "v1", "--kind", "WebApp", "--resource", "--controller", "--make=false"},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", kubebuilder}, args...)...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("kubebuilder %s: %w: %s", args[0], err, out)
		}
	}
	return lines(filepath.Join(folder, "cmd", "main.go"), all)
}
