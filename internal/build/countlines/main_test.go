package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnOperatorHasFewLines(t *testing.T) {
	t.Parallel()
	counted, err := count("../../../examples")
	require.NoError(t, err)
	for _, name := range []string{"trueup", "embedded", "createorupdate"} {
		t.Logf("figure operator_lines_%s %d count", name, counted[name])
	}
	require.LessOrEqual(t, counted["trueup"], 100)
	require.LessOrEqual(t, counted["embedded_program"], 60)
	require.Less(t, 2*counted["embedded"], counted["createorupdate"])
}

// TestTheReadmeHasTheLines: of kubebuilder's a part is downloaded to be counted.
func TestTheReadmeHasTheLines(t *testing.T) {
	t.Parallel()
	counted, err := count("../../../examples")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf("| %d, in a Manager %d | %d (`CreateOrUpdate`), ",
		counted["trueup"], counted["embedded"], counted["createorupdate"]))
}

func TestBlankAndCommentLinesDoNotCount(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.go")
	text := "// Package a.\npackage a\n\nimport (\n\t\"fmt\"\n\n\t\"os\"\n)\n\n" +
		"// F is one.\nfunc F() {\n\t// no\n\tfmt.Println(os.Args) // yes\n}\n\nfunc G() {}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	n, err := lines(file, all)
	require.NoError(t, err)
	require.Equal(t, 9, n)
	n, err = lines(file, named("F"))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	_, err = lines(file+"x", all)
	require.Error(t, err)
}
