package guide_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTheTutorialWorksWhenItIsPasted runs docs/tutorial.md line by line in a shell, with this repository as the clone.
func TestTheTutorialWorksWhenItIsPasted(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a shell builds and tests an operator, with modules from a proxy")
	}
	t.Parallel()
	page, err := os.ReadFile("../../../docs/tutorial.md")
	require.NoError(t, err)
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	const clone = "git clone https://github.com/seed-9e1ffd66/trueup\n"
	commands := blocks(t, string(page))
	require.Contains(t, commands, clone)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(root, filepath.Join(dir, "trueup")))
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-u", "-x", "-o", "pipefail")
	shell.Dir = dir
	shell.Env = append(os.Environ(), "GOWORK=") // as where there is none: the one of a folder above counts
	shell.Stdin = strings.NewReader("trap 'kill $(jobs -p) || true' EXIT\n" + strings.Replace(commands, clone, "", 1) + "echo the end\n")
	shell.WaitDelay = 30 * time.Second
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := string(out)
	for _, want := range []string{
		`site.example.com/web +web:1 +2 +True +Ready`,
		`pod/web-\S+ +1/1 +Running`,
		`node\(s\) were unschedulable`,
		`configmaps\], verbs: \[get, list, watch, create, patch, delete\]`,
		`\{"index.html":"This is web"\}`,
		`writes at rest, the first of them: patch configmaps shop/w\d-page`,
		`reproduce: SIMTEST_SEED=`,
		`No resources found in default namespace.`,
		`the end`,
	} {
		require.Regexp(t, want, text)
	}
}
