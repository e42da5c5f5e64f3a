package program_test

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// larger are packages whose variables take more bytes, for a reason.
var larger = map[string]int{
	"cmd/controlplane/internal/front/statuspage": 700_000, // the parsed pages
	"cmd/controlplane/internal/state/audit":      500_000, // its patterns are in the description of the API, with their bounds
}

// TestNoProgramHasWhatItDoesNotUse: a program that executes a text/template may call any exported
// method of any type by its name, so the linker keeps all of them, and it grows by a fifth to a half.
// And nothing large is made before main, such as a pattern with a bound in the hundreds.
func TestNoProgramHasWhatItDoesNotUse(t *testing.T) {
	t.Parallel()
	initialized := regexp.MustCompile(`(?m)^init \S+/trueup/(\S+) .* clock, (\d+) bytes, `)
	names := []string{"agentjob", "application", "controlplane", "krane", "nodepool", "shuttle", "trueup"}
	dir := programs.Dir(t, names...)
	for _, name := range names {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		// The names of functions are in every program, also without symbols. The status page is a template.
		require.Equal(t, name == "controlplane", bytes.Contains(data, []byte("text/template.(*state).evalField")),
			"%s executes text/template: -ldflags=-dumpdep shows why", name)

		code, _, stderr := callWith(t, []string{"GODEBUG=inittrace=1"}, path, "--version")
		require.Zero(t, code, stderr)
		packages := initialized.FindAllStringSubmatch(stderr, -1)
		require.NotEmpty(t, packages, stderr)
		for _, p := range packages {
			took, err := strconv.Atoi(p[2])
			require.NoError(t, err)
			most := cmp.Or(larger[p[1]], 250_000)
			require.Less(t, took, most, "bytes for the variables of package %s in %s", p[1], name)
		}
	}
}
