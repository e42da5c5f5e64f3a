package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTableOfVersionsIsTrue compares docs/versions.md with the go.mod files and with what
// make test-all takes as the newest.
func TestTheTableOfVersionsIsTrue(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// minor returns the major and minor version that the first group of the expression finds.
	minor := func(name, expression string) string {
		m := regexp.MustCompile(`(?m)` + expression).FindStringSubmatch(read(name))
		if m == nil {
			t.Fatalf("%s: nothing matches %s", name, expression)
		}
		return m[1]
	}
	require := func(file, module string) string {
		return minor(file, `^\s+`+regexp.QuoteMeta(module)+` v(\d+\.\d+)\.`)
	}
	const plans = "internal/build/testrun/newest.go"
	oldestGo, newestGo := minor("go.mod", `^go (\d+\.\d+)`), minor(plans, `newestGo = "go(\d+\.\d+)`)
	clients, newest := require("go.mod", "k8s.io/client-go"), minor(plans, `newestMinor   = "v(\d+\.\d+)"`)
	manager := require("reconcile/controllerruntime/go.mod", "sigs.k8s.io/controller-runtime")
	server := minor("internal/kube/go.mod", `^\s+k8s\.io/kubernetes v(\d+\.\d+)\.`)
	sqlite := require("statesync/sqlstore/go.mod", "modernc.org/sqlite")

	rows := map[string][2]string{}
	for line := range strings.Lines(read("docs/versions.md")) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			subject, _, _ := strings.Cut(strings.TrimSpace(cells[1]), " (")
			rows[subject] = [2]string{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		}
	}
	for subject, want := range map[string][2]string{
		"Go":                      {oldestGo, oldestGo + ", " + newestGo},
		"client-go, apimachinery": {clients, clients + ", " + newest},
		"controller-runtime":      {manager, manager + ", " + minor(plans, `newestManager = "v(\d+\.\d+)"`)},
		"Kubernetes, the server":  {"one with server-side apply", server},
		"PostgreSQL":              {minor("statesync/sqlstore/dialect.go", `PostgreSQL is PostgreSQL (\d+) or newer`), "what Debian stable has"},
		"SQLite":                  {minor("statesync/sqlstore/dialect.go", `SQLite is SQLite (\d+\.\d+) or newer`), "`modernc.org/sqlite` " + sqlite},
		"Linux, macOS, Windows":   {"any of them", "Linux; the others are built"},
	} {
		if got := rows[subject]; got != want {
			t.Errorf("docs/versions.md: the row of %s has %q, the repository %q", subject, got, want)
		}
	}
	// Every module states the same Go: a user who imports two of them has one floor.
	for _, nested := range []string{
		"cmd", "examples", "cloud/aws", "statesync/sqlstore", "reconcile/controllerruntime", "reconcile/operatormetrics", "reconcile/tracing",
	} {
		if got := minor(nested+"/go.mod", `^go (\d+\.\d+)`); got != oldestGo {
			t.Errorf("%s/go.mod: go %s, the root has %s", nested, got, oldestGo)
		}
	}
}
