package crds_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/crds"
)

var allowed = regexp.MustCompile(`c\.type in \[([^]]*)\]`)

// TestTheDefinitionsAllowTheConditionsOfTheCode is the part of C16 about the types of
// conditions: the constants, their list and the rules of both definitions are one set.
func TestTheDefinitionsAllowTheConditionsOfTheCode(t *testing.T) {
	t.Parallel()
	declared := constants(t, "../../../api/platform/v1alpha1")
	require.ElementsMatch(t, declared, v1alpha1.ConditionTypes())
	text, err := crds.YAML()
	require.NoError(t, err)
	rules := allowed.FindAllStringSubmatch(strings.Join(strings.Fields(string(text)), " "), -1)
	require.Len(t, rules, 2)
	for _, rule := range rules {
		var types []string
		for quoted := range strings.SplitSeq(rule[1], ",") {
			types = append(types, strings.Trim(quoted, "' "))
		}
		require.ElementsMatch(t, declared, types)
	}
}

// TestTheOperatorWritesNoOtherConditions looks for types of conditions that are written
// as text.
func TestTheOperatorWritesNoOtherConditions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../operator/*.go")
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				require.NotRegexp(t, `^"([A-Z][a-z]+)?Ready"$`, literal.Value, "%s: use a constant of the package v1alpha1", path)
			}
			return true
		})
	}
}

// constants returns the values of the constants Condition... of a package.
func constants(t *testing.T, dir string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Condition") {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				values = append(values, value)
			}
			return true
		})
	}
	require.NotEmpty(t, values)
	return values
}
