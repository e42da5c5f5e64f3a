package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheFrontPageNamesEachPackage compares the documentation of the root package, which pkg.go.dev shows
// first, with the table of packages in README.md.
func TestTheFrontPageNamesEachPackage(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	front := read("doc.go")
	rows := regexp.MustCompile("(?m)^\\| \\[`([a-z/]+)`\\]\\(").FindAllStringSubmatch(read("README.md"), -1)
	if len(rows) < 20 {
		t.Fatalf("README.md has %d rows of packages", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(front, "/trueup/"+row[1]+"]:") && !strings.Contains(front, "/trueup/"+row[1]+":") {
			t.Errorf("doc.go does not name %s, which is in the table of README.md", row[1])
		}
	}
}
