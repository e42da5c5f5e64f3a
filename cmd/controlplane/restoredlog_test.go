package main_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// copies is a control plane with an export of its audit, whose database is copied and put back.
type copies struct {
	*testing.T
	program, admin, database, exported string

	serving *process
}

func newCopies(t *testing.T) *copies {
	t.Helper()
	dir := t.TempDir()
	return &copies{
		T:        t,
		program:  binary(t),
		admin:    writeFile(t, adminToken),
		database: filepath.Join(dir, "db"),
		exported: filepath.Join(dir, "audit.jsonl"),
	}
}

func (c *copies) start() {
	c.serving = serveProcess(
		c,
		c.program,
		"--listen",
		"127.0.0.1:0",
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--database",
		c.database,
		"--admin-token-file",
		c.admin,
		"--audit-log",
		c.exported,
	)
}

func (c *copies) stop() {
	require.NoError(c, c.serving.command.Process.Kill())
	<-c.serving.ended
}

// ask returns the token of the answer, if it has one.
func (c *copies) ask(method, path, body string) string {
	status, answer := request(c, http.DefaultClient, method, "http://"+c.serving.address+"/api/v1/admin/"+path, adminToken, body)
	require.Less(c, status, 300, answer)
	var got struct{ Token string }
	if status != http.StatusNoContent {
		require.NoError(c, json.Unmarshal([]byte(answer), &got))
	}
	return got.Token
}

func (c *copies) region() string {
	return c.ask(http.MethodPut, "regions/r1", `{"name":"r1","platform":"aws"}`)
}

func (c *copies) rotate() string {
	return c.ask(http.MethodPost, "regions/r1/rotate-token", `{"overlap_seconds":0}`)
}

func (c *copies) valid(token string) bool {
	status, _ := request(c, http.DefaultClient, http.MethodPost, "http://"+c.serving.address+"/ctrl.v1.ClusterService/Heartbeat", token, "{}")
	return status != http.StatusUnauthorized
}

func (c *copies) backup() string {
	file := filepath.Join(c.TempDir(), "backup")
	got := execute(c.T, c.program, nil, "backup", "--database", c.database, file)
	require.Zero(c, got.code, got.stderr)
	return file
}

func (c *copies) putBack(backup string) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(c, os.RemoveAll(c.database+suffix))
	}
	content, err := os.ReadFile(backup)
	require.NoError(c, err)
	require.NoError(c, os.WriteFile(c.database, content, 0o600))
}

func (c *copies) restored(args ...string) string {
	got := execute(c.T, c.program, nil, append([]string{"restored", "--database", c.database}, args...)...)
	require.Zero(c, got.code, got.stderr)
	return got.stdout
}

const revokedLine = "token revoked      : POST /api/v1/admin/regions/r1/rotate-token\n"

// TestALaterRestoreRevokesNoTokenThatIsValid rotates a token after each of several restores, each
// of which reads the same export.
func TestALaterRestoreRevokesNoTokenThatIsValid(t *testing.T) {
	for name, args := range map[string][]string{"with the export": nil, "first with all revoked": {"--revoke-tokens"}} {
		t.Run(name, func(t *testing.T) {
			c := newCopies(t)
			c.start()
			first := c.region()
			oldest := c.backup()
			c.rotate()
			c.stop()
			c.putBack(oldest)
			if args == nil {
				args = []string{"--audit-log", c.exported}
			}
			require.Contains(t, c.restored(args...), revokedLine)
			require.Contains(t, c.restored("--audit-log", c.exported), revokedLine, "a second run finds it revoked")
			c.start()
			require.False(t, c.valid(first))
			second := c.rotate()
			require.True(t, c.valid(second))
			newer := c.backup()
			require.NotContains(t, c.restored("--audit-log", c.exported), revokedLine, "once more, while it runs")
			require.True(t, c.valid(second))
			c.stop()

			c.putBack(newer)
			require.NotContains(t, c.restored("--audit-log", c.exported), revokedLine)
			c.start()
			require.True(t, c.valid(second), "nothing has ended it")
			third := c.rotate()
			c.stop()
			c.putBack(newer)
			require.Contains(t, c.restored("--audit-log", c.exported), revokedLine)
			c.start()
			require.False(t, c.valid(second))
			require.False(t, c.valid(third))
			c.stop()
			c.putBack(oldest)
			require.Contains(t, c.restored("--audit-log", c.exported), revokedLine)
			c.start()
			require.False(t, c.valid(first))
			c.stop()
		})
	}
}

// TestRestoredReadsAnExportInEachOfItsForms has the lines of a container runtime, those of
// kubectl and Docker, and entries of a replica whose clock is behind.
func TestRestoredReadsAnExportInEachOfItsForms(t *testing.T) {
	c := newCopies(t)
	c.start()
	c.region()
	backup := c.backup()
	c.rotate()
	c.stop()
	content, err := os.ReadFile(c.exported)
	require.NoError(t, err)
	lines := strings.SplitAfter(strings.TrimSpace(string(content))+"\n", "\n")
	for name, form := range map[string]func(line string) string{
		"plain":              func(line string) string { return line },
		"CRI":                func(line string) string { return "2026-11-24T10:00:00.123456789Z stdout F " + line },
		"kubectl --prefix":   func(line string) string { return "[pod/controlplane-0/controlplane] " + line },
		"cut by a full disk": func(line string) string { return `{"msg":"audit","id":"18` + line },
		"Docker": func(line string) string {
			text, err := json.Marshal(map[string]string{"log": line, "stream": "stdout", "time": "2026-11-24T10:00:00Z"})
			require.NoError(t, err)
			return string(text) + "\n"
		},
		"a clock that is behind": func(line string) string {
			return regexp.MustCompile(`"id":"[0-9a-f]{16}`).ReplaceAllString(line, `"id":"0000000000000001`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			text.WriteString(`{"level":"INFO","msg":"starting"}` + "\npanic: no JSON {\n" + strings.Repeat("x{", 80_000) + "\n")
			for _, line := range lines {
				if line != "" {
					text.WriteString(form(line))
				}
			}
			c.T = t
			c.putBack(backup)
			file := writeFile(t, text.String())
			said := c.restored("--audit-log", file)
			require.Contains(t, said, revokedLine)
			require.Regexp(t, `(?m)^`+regexp.QuoteMeta(file)+`: 2 entries of the audit were read, from 20\S+Z to 20\S+Z$`, said)
		})
	}
}

func TestRestoredRefusesAnExportWithoutEntriesOfItsControlPlane(t *testing.T) {
	other := newCopies(t)
	other.start()
	other.ask(http.MethodPut, "regions/r2", `{"name":"r2","platform":"aws"}`)
	other.stop()
	c := newCopies(t)
	c.start()
	c.region()
	backup := c.backup()
	c.stop()
	c.putBack(backup)
	before, err := os.ReadFile(c.database)
	require.NoError(t, err)
	for file, says := range map[string]string{
		writeFile(t, ""): "has no entry of an audit",
		writeFile(t, "{\"msg\":\"starting\"}\nDear Sir,\n"):                           "has no entry of an audit",
		writeFile(t, `{"msg":"audit","id":"1","log":"changes","kind":"region"}`+"\n"): "has no entry of an audit",
		other.exported:                   "has no entry of the control plane of this database",
		"-":                              "- is no file that can be read",
		filepath.Join(t.TempDir(), "no"): "no such file",
	} {
		content, _ := os.ReadFile(file) // some are not there
		got := execute(t, c.program, nil, "restored", "--database", c.database, "--audit-log", file)
		require.Equal(t, 2, got.code, file)
		require.Contains(t, got.stderr, "--audit-log: ")
		require.Contains(t, got.stderr, says)
		require.Empty(t, got.stdout)
		after, _ := os.ReadFile(file)
		require.Equal(t, content, after, "nothing is appended")
	}
	after, err := os.ReadFile(c.database)
	require.NoError(t, err)
	require.Equal(t, string(before[100:]), string(after[100:]), "beyond the header, which has the mode of the journal")
}
