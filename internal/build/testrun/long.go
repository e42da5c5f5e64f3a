package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// longTests returns the names of the tests in a folder that ask testing.Short, themselves
// or by a function of the same folder: those that -short skips or shortens.
func longTests(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	calls := map[string]map[string]bool{} // by the name of the function or method
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if calls[f.Name.Name] == nil {
				calls[f.Name.Name] = map[string]bool{}
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					name := n.Sel.Name
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "testing" {
						name = "testing." + name
					}
					calls[f.Name.Name][name] = true
				case *ast.Ident:
					calls[f.Name.Name][n.Name] = true
				}
				return true
			})
		}
	}
	long := map[string]bool{"testing.Short": true}
	for grown := true; grown; {
		grown = false
		for name, called := range calls {
			if !long[name] && slices.ContainsFunc(slices.Collect(maps.Keys(called)), func(c string) bool { return long[c] }) {
				long[name], grown = true, true
			}
		}
	}
	var tests []string
	for name := range calls {
		if long[name] && strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests, nil
}
