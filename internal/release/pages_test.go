package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAPageThatSaysThatThereIsNoVersionIsFound: its words may be on two lines, also of a comment.
func TestAPageThatSaysThatThereIsNoVersionIsFound(t *testing.T) {
	t.Parallel()
	write := func(root, name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "docs"), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	const table = "| File | Words |\n|---|---|\n| `README.md` | \"No version is published\", \"once there is one\" |\n| `doc.go` | \"No version yet\" |\n"
	for want, pages := range map[string][2]string{
		"":                       {"Install v0.1.0.", "package x // v0.1.0\n"},
		"README.md:2: says \"No": {"# x\nNo version is published.", "package x\n"},
		"README.md:1: says \"No": {"No version\nis  published.", "package x\n"},
		"says \"once there is":   {"Later, once there\nis one.", "package x\n"},
		"doc.go:1: says \"No":    {"Install v0.1.0.", "// No version\n// yet.\npackage x\n"},
	} {
		root := t.TempDir()
		write(root, "docs/releasing.md", table)
		write(root, "README.md", pages[0])
		write(root, "doc.go", pages[1])
		err := (&release{root: root}).pagesAreOfARelease()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	root := t.TempDir()
	write(root, "docs/releasing.md", table)
	require.ErrorIs(t, (&release{root: root}).pagesAreOfARelease(), os.ErrNotExist, "a page that the table names")
	write(root, "docs/releasing.md", "# Releasing\n")
	require.ErrorContains(t, (&release{root: root}).pagesAreOfARelease(), "has no table")
}
