package servertest_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// upstream is the module whose tests hold sequences of writers: who applies or
// updates what, one after the other. Kubernetes merges by its code. The module is
// a requirement of ours; its tests are read where the go command keeps them, and
// nothing of them is copied.
const upstream = "sigs.k8s.io/structured-merge-diff/v4"

// sequence is one of its cases.
type sequence struct {
	name   string // file, function, case
	parser string // name of its schema
	ops    []op
	reason string // why it cannot be replayed; empty when it can
}

// op is one write.
type op struct {
	kind      string // Apply, ForceApply, Update
	manager   string
	version   string
	object    string // YAML
	conflicts bool   // an Apply that is to be refused
}

// schemas are the type definitions of the cases, as YAML, by the names of their
// parsers.
type schemas map[string]definition

type definition struct {
	types string
	root  string // type of every version; empty: the type is named as the version
}

// readSequences reads all cases.
func readSequences(t *testing.T) ([]sequence, schemas) {
	t.Helper()
	folder := moduleFolder(t.Context(), t)
	files, err := filepath.Glob(filepath.Join(folder, "merge", "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var found []sequence
	known := schemas{"DeducedParser": {}}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool { known.read(n); return true })
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				found = append(found, readFunc(strings.TrimSuffix(filepath.Base(name), "_test.go"), f)...)
			}
		}
	}
	return found, known
}

func moduleFolder(ctx context.Context, t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", upstream).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// read takes name = func() … { typed.NewParser(`types: …`) … }.
func (s schemas) read(n ast.Node) {
	var names []ast.Expr
	var values []ast.Expr
	switch n := n.(type) {
	case *ast.ValueSpec:
		for _, name := range n.Names {
			names = append(names, name)
		}
		values = n.Values
	case *ast.AssignStmt:
		names, values = n.Lhs, n.Rhs
	}
	if len(names) != 1 || len(values) != 1 {
		return
	}
	name, ok := names[0].(*ast.Ident)
	if !ok {
		return
	}
	var d definition
	ast.Inspect(values[0], func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		switch text := literal(call.Args[0]); f.Sel.Name {
		case "NewParser":
			d.types = text
		case "Type":
			d.root = text
		}
		return true
	})
	if d.types != "" && strings.HasSuffix(name.Name, "Parser") {
		s[name.Name] = d
	}
}

// readFunc returns the cases of a test function, all of which have one parser.
func readFunc(file string, f *ast.FuncDecl) []sequence {
	schema, converter := "", false
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		arg, ident := call.Args[0].(*ast.Ident)
		if ok && ident && (method.Sel.Name == "Test" || method.Sel.Name == "TestWithConverter") {
			schema, converter = arg.Name, method.Sel.Name == "TestWithConverter"
		}
		return true
	})
	var found []sequence
	add := func(name string, c *ast.CompositeLit) {
		s := sequence{name: file + "/" + f.Name.Name + "/" + name, parser: schema}
		s.read(c)
		if converter && s.reason == "" {
			s.reason = "needs a conversion that renames fields: a webhook"
		}
		found = append(found, s)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if c, ok := n.Value.(*ast.CompositeLit); ok && c.Type == nil && hasField(c, "Ops") {
				add(literal(n.Key), c)
				return false
			}
		case *ast.CompositeLit:
			if name, ok := n.Type.(*ast.Ident); ok && name.Name == "TestCase" {
				add("", n)
				return false
			}
			if name, ok := n.Type.(*ast.SelectorExpr); ok && name.Sel.Name == "TestCase" {
				add("", n)
				return false
			}
		}
		return true
	})
	return found
}

func hasField(c *ast.CompositeLit, name string) bool {
	return field(c, name) != nil
}

func field(c *ast.CompositeLit, name string) ast.Expr {
	for _, element := range c.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				return pair.Value
			}
		}
	}
	return nil
}

func (s *sequence) read(c *ast.CompositeLit) {
	if hasField(c, "IgnoreFilter") || hasField(c, "IgnoredFields") {
		s.reason = "sets the server's own ignored fields, which are not for users"
		return
	}
	ops, _ := field(c, "Ops").(*ast.CompositeLit)
	if ops == nil {
		s.reason = "its operations are computed"
		return
	}
	for _, element := range ops.Elts {
		write, ok := element.(*ast.CompositeLit)
		if !ok {
			s.reason = "its operations are computed"
			return
		}
		kind := ""
		switch name := write.Type.(type) {
		case *ast.Ident:
			kind = name.Name
		case *ast.SelectorExpr:
			kind = name.Sel.Name
		}
		switch kind {
		case "Apply", "ForceApply", "Update":
		case "ExtractApply":
			s.reason = "extracts what a manager owns with the schema, a function of clients"
			return
		default:
			s.reason = kind + " changes the schema between two writes of one version"
			return
		}
		o := op{
			kind: kind, manager: literal(field(write, "Manager")), version: literal(field(write, "APIVersion")),
			object: untabbed(literal(field(write, "Object"))), conflicts: hasField(write, "Conflicts"),
		}
		if o.manager == "" || o.version == "" || !isLiteral(field(write, "Object")) {
			s.reason = "its operations are computed"
			return
		}
		s.ops = append(s.ops, o)
	}
}

// literal returns a string constant, "" for anything else.
func literal(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 { // a conversion
		e = call.Args[0]
	}
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(basic.Value)
	if err != nil {
		return ""
	}
	return text
}

func isLiteral(e ast.Expr) bool {
	_, ok := e.(*ast.BasicLit)
	return ok
}

// untabbed takes the indentation of the Go source off a YAML text.
func untabbed(text string) string {
	lines := strings.Split(strings.Trim(text, "\n\t "), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return strings.Join(lines, "\n")
}

// open writes the OpenAPI schema of a type of the upstream's schema language.
func (s schemas) open(name, root string) (map[string]any, error) {
	if name == "DeducedParser" {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}, nil
	}
	var parsed struct {
		Types []map[string]any `json:"types"`
	}
	if err := yaml.Unmarshal([]byte(s[name].types), &parsed); err != nil {
		return nil, err
	}
	types := map[string]map[string]any{}
	for _, d := range parsed.Types {
		types[d["name"].(string)] = d
	}
	d, ok := types[root]
	if !ok {
		return nil, fmt.Errorf("no type %s", root)
	}
	schema := openType(types, d, 0)
	delete(schema, "nullable")
	return schema, nil
}

// deepest bounds the types that contain themselves, which OpenAPI cannot say.
const deepest = 6

func openType(types map[string]map[string]any, d map[string]any, depth int) map[string]any {
	anything := map[string]any{"x-kubernetes-preserve-unknown-fields": true, "nullable": true}
	if depth > deepest {
		return anything
	}
	if name, ok := d["namedType"].(string); ok {
		schema := openType(types, types[name], depth+1)
		if r, ok := d["elementRelationship"].(string); ok {
			keys, _ := schema["x-kubernetes-list-map-keys"].([]any)
			relate(schema, r, keys)
		}
		return schema
	}
	if scalar, ok := d["scalar"].(string); ok {
		kind, ok := map[string]string{"numeric": "number", "string": "string", "boolean": "boolean"}[scalar]
		if !ok {
			return anything
		}
		return map[string]any{"type": kind, "nullable": true}
	}
	if list, ok := d["list"].(map[string]any); ok {
		items := openType(types, list["elementType"].(map[string]any), depth+1)
		schema := map[string]any{"type": "array", "items": items, "nullable": true}
		r, _ := list["elementRelationship"].(string)
		keys, _ := list["keys"].([]any)
		relate(schema, r, keys)
		delete(items, "nullable")
		if len(keys) > 0 {
			required := []any{}
			for _, key := range keys {
				property := items["properties"].(map[string]any)[key.(string)].(map[string]any)
				delete(property, "nullable")
				if property["default"] == nil {
					required = append(required, key)
				}
			}
			if len(required) > 0 {
				items["required"] = required
			}
		}
		return schema
	}
	m, ok := d["map"].(map[string]any)
	if !ok {
		return anything
	}
	schema := map[string]any{"type": "object", "nullable": true}
	if fields, ok := m["fields"].([]any); ok {
		properties := map[string]any{}
		for _, f := range fields {
			f := f.(map[string]any)
			property := openType(types, f["type"].(map[string]any), depth+1)
			if v, ok := f["default"]; ok {
				property["default"] = v
			}
			properties[f["name"].(string)] = property
		}
		schema["properties"] = properties
	}
	switch element, ok := m["elementType"].(map[string]any); {
	case ok && schema["properties"] == nil:
		schema["additionalProperties"] = openType(types, element, depth+1)
	case ok || schema["properties"] == nil:
		schema["x-kubernetes-preserve-unknown-fields"] = true
	}
	r, _ := m["elementRelationship"].(string)
	relate(schema, r, nil)
	return schema
}

func relate(schema map[string]any, relationship string, keys []any) {
	switch schema["type"] {
	case "array":
		schema["x-kubernetes-list-type"] = "atomic"
		delete(schema, "x-kubernetes-list-map-keys")
		if relationship == "associative" && len(keys) > 0 {
			schema["x-kubernetes-list-type"] = "map"
			schema["x-kubernetes-list-map-keys"] = slices.Clone(keys)
		} else if relationship == "associative" {
			schema["x-kubernetes-list-type"] = "set"
		}
	case "object":
		delete(schema, "x-kubernetes-map-type")
		if relationship == "atomic" {
			schema["x-kubernetes-map-type"] = "atomic"
		}
	}
}

// readPairs returns the pairs of objects of one type, as sequences of two writes
// of one manager: first the one, then the other.
func readPairs(t *testing.T) ([]sequence, schemas) {
	t.Helper()
	name := filepath.Join(moduleFolder(t.Context(), t), "typed", "symdiff_test.go")
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	known := schemas{}
	var found []sequence
	ast.Inspect(file, func(n ast.Node) bool {
		c, ok := n.(*ast.CompositeLit)
		if !ok || !hasField(c, "quints") {
			return true
		}
		schema := fmt.Sprintf("pair%d", len(known))
		known[schema] = definition{types: literal(field(c, "schema")), root: literal(field(c, "rootTypeName"))}
		for i, element := range field(c, "quints").(*ast.CompositeLit).Elts {
			pair, ok := element.(*ast.CompositeLit)
			require.True(t, ok)
			sides := []string{literal(field(pair, "lhs")), literal(field(pair, "rhs"))}
			for j := range sides {
				found = append(found, sequence{
					name: fmt.Sprintf("symdiff/%s/%d.%d", literal(field(c, "name")), i, j), parser: schema,
					ops: []op{
						{kind: "ForceApply", manager: "me", version: "v1", object: sides[j]},
						{kind: "Update", manager: "other", version: "v1", object: sides[1-j]},
						{kind: "ForceApply", manager: "me", version: "v1", object: sides[1-j]},
						{kind: "ForceApply", manager: "me", version: "v1", object: sides[j]},
					},
				})
			}
		}
		return false
	})
	return found, known
}
