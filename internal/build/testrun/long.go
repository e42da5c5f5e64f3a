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
	functions, err := testFunctions(dir)
	if err != nil {
		return nil, err
	}
	calls := map[string]map[string]bool{} // by the name of the function or method
	for _, f := range functions {
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

// onlyLong returns how many tests a folder has, if each of them begins with a skip under
// -short, and 0 otherwise: its examples, and what a fuzz test is given, run always.
func onlyLong(dir string) (int, error) {
	functions, err := testFunctions(dir)
	if err != nil {
		return 0, err
	}
	tests := 0
	for _, f := range functions {
		switch name := f.Name.Name; {
		case f.Recv != nil || name == "TestMain":
		case strings.HasPrefix(name, "Test") && skipsFirst(f):
			tests++
		case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"), strings.HasPrefix(name, "Example"):
			return 0, nil
		}
	}
	return tests, nil
}

// skipsFirst reports whether a test begins with if testing.Short() { t.Skip(...) }.
func skipsFirst(f *ast.FuncDecl) bool {
	if len(f.Body.List) == 0 {
		return false
	}
	first, ok := f.Body.List[0].(*ast.IfStmt)
	if !ok || first.Init != nil || len(first.Body.List) == 0 || !calls(first.Cond, "testing", "Short") {
		return false
	}
	skip, ok := first.Body.List[0].(*ast.ExprStmt)
	return ok && calls(skip.X, f.Type.Params.List[0].Names[0].Name, "Skip")
}

// calls reports whether an expression is a call of a method, or of a package's function.
func calls(x ast.Expr, of, name string) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	selected, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selected.Sel.Name != name {
		return false
	}
	on, ok := selected.X.(*ast.Ident)
	return ok && on.Name == of
}

// testFunctions returns the functions and methods of a folder's test files.
func testFunctions(dir string) (functions []*ast.FuncDecl, _ error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				functions = append(functions, f)
			}
		}
	}
	return functions, nil
}
