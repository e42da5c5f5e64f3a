package policy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	unpublishedRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*\"[^|]*) \\|")
	quotedWords    = regexp.MustCompile(`"([^"]+)"`)
	noVersion      = regexp.MustCompile(`(?i)(no version|nothing) is (published|released)|once there is one|first tag is published`)
)

// flat is a text in one line, without the marks of comments.
func flat(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "//", " ")), " ")
}

// TestWhatIsPublishedIsSaidInOnePlace: "make release" goes by the table in docs/releasing.md. Before the
// first version its words are in the files that it names, and no other page says the same; after it, none is.
func TestWhatIsPublishedIsSaidInOnePlace(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rows := unpublishedRow.FindAllStringSubmatch(read("docs/releasing.md"), -1)
	if len(rows) < 5 {
		t.Fatalf("docs/releasing.md has %d rows of files that say that there is no version", len(rows))
	}
	listed, found, missing := map[string]bool{"docs/releasing.md": true}, 0, []string(nil)
	for _, row := range rows {
		listed[row[1]] = true
		for _, words := range quotedWords.FindAllStringSubmatch(row[2], -1) {
			if strings.Contains(flat(read(row[1])), words[1]) {
				found++
			} else {
				missing = append(missing, row[1]+": "+words[1])
			}
		}
	}
	if found > 0 && len(missing) > 0 {
		t.Errorf("docs/releasing.md quotes what is not there: %s", strings.Join(missing, "; "))
	}
	if found == 0 {
		return // a version is published
	}
	for _, folder := range []string{".", "docs", ".github"} {
		entries, err := fs.Glob(os.DirFS(root), filepath.Join(folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range entries {
			if ext := filepath.Ext(name); (ext != ".md" && ext != ".go") || listed[name] {
				continue
			}
			if words := noVersion.FindString(flat(read(name))); words != "" {
				t.Errorf("%s says %q, and the table of docs/releasing.md does not name it", name, words)
			}
		}
	}
}
