package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheTableOfWhatIsExpectedIsWhole: docs/expected.md has 44 rows. A row "yes" has a link, and a row "no" a
// reason. A rule of TestPolicy checks where the links of all pages lead.
func TestTheTableOfWhatIsExpectedIsWhole(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/expected.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, there := map[string]bool{}, 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[2]) == "there" {
			continue
		}
		name, state, where := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
		if rows[name] {
			t.Errorf("%s is there twice", name)
		}
		rows[name] = true
		switch state {
		case "yes":
			there++
			if !pageLink.MatchString(where) {
				t.Errorf("%s: %q has no link to what is there", name, where)
			}
		case "no":
			if len(strings.Fields(where)) < 4 {
				t.Errorf("%s: %q is no reason", name, where)
			}
		default:
			t.Errorf("%s: %q, must be yes or no", name, state)
		}
	}
	if len(rows) != 44 {
		t.Errorf("%d rows, must be 44", len(rows))
	}
	fmt.Printf("figure door_rows_there %d count (of %d)\n", there, len(rows))
}
