package upgrade_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// lastRelease is the commit of the release before this one; raise it with each release.
const lastRelease = "1c2d9c731a6136526937c013bef3489233695730"

// versions are the paths of three control planes.
type versions struct {
	// old is the one of lastRelease, now the one of this tree, and next has one more migration,
	// which adds a column to each table that the tests write, and a table. The agents of a
	// version are in its folder.
	old, now, next string
}

const program = "controlplane"

func build(t *testing.T) versions {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir := t.TempDir()
	v := versions{
		old:  filepath.Join(dir, "old", program),
		now:  filepath.Join(programs.Dir(t, program, "shuttle", "krane"), program),
		next: filepath.Join(dir, "next", program),
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", lastRelease+"^{commit}").Run(); err != nil {
		t.Skip("the history of git is not here: a shallow clone, or an archive")
	}
	source := filepath.Join(dir, "source")
	require.NoError(t, os.Mkdir(source, 0o700))
	archive := filepath.Join(dir, "source.tar")
	command(t, root, "git", "archive", "-o", archive, lastRelease)
	command(t, source, "tar", "-xf", archive)
	compile(t, source, v.old, nil, program, "shuttle", "krane")

	const migrations = "cmd/controlplane/internal/state/db/migrations"
	added := write(t, dir, "added.sql", "-- expands\n"+strings.Join([]string{
		"ALTER TABLE clusters ADD COLUMN next_note TEXT NOT NULL DEFAULT '';",
		"ALTER TABLE services ADD COLUMN next_note TEXT NOT NULL DEFAULT '';",
		"ALTER TABLE regions ADD COLUMN next_note TEXT NOT NULL DEFAULT '';",
		"ALTER TABLE deployment_topology ADD COLUMN next_note TEXT NOT NULL DEFAULT '';",
		"CREATE TABLE next_notes (id TEXT NOT NULL PRIMARY KEY);",
	}, "\n"))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, migrations, "9000_next.sql"): added}})
	require.NoError(t, err)
	compile(t, root, v.next, []string{"-overlay", write(t, dir, "overlay.json", string(overlay))}, program)
	return v
}

// compile builds the programs into the folder of the path.
func compile(t *testing.T, source, path string, flags []string, names ...string) {
	t.Helper()
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-o", filepath.Dir(path) + "/"}, flags...)
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	command(t, source, "go", args...)
}

func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"))
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

func write(t *testing.T, dir, name, content string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
