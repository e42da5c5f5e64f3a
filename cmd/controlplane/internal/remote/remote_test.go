package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

const (
	cluster = "0b8a3c52-9f0e-4c35-8a77-3d1f2f9c5a10"
	project = "5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22"
	service = "c1d2e3f4-0a1b-4c2d-8e3f-4a5b6c7d8e9f"
)

// shell runs the commands against one control plane.
type shell struct {
	t           *testing.T
	environment map[string]string
}

func newShell(t *testing.T) (*shell, *controlplanetest.Plane) {
	t.Helper()
	return newShellOf(t, controlplanetest.Options{Source: filepath.Join(t.TempDir(), "db")})
}

func newShellOf(t *testing.T, options controlplanetest.Options) (*shell, *controlplanetest.Plane) {
	t.Helper()
	plane := controlplanetest.Start(t, options)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(controlplanetest.AdminToken+"\n"), 0o600))
	return &shell{t, map[string]string{
		"TRUEUP_CONTROLPLANE_SERVER": "http://" + plane.Address, "TRUEUP_CONTROLPLANE_TOKEN_FILE": file,
	}}, plane
}

func (s *shell) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "controlplane",
		Short: "Serve",
		Args:  program.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return nil },
	}
	root.AddCommand(remote.Commands()...)
	program.Bind(root, "TRUEUP_CONTROLPLANE_", func(name string) (string, bool) {
		value, ok := s.environment[name]
		return value, ok
	})
	return root
}

// run runs a line of words and returns what it prints, and its errors.
func (s *shell) run(stdin, line string) (code int, out, errs string) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	command := s.command()
	command.SetIn(strings.NewReader(stdin))
	code = program.Run(s.t.Context(), command, strings.Fields(line), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// must is run for a line that succeeds.
func (s *shell) must(stdin, line string) string {
	s.t.Helper()
	code, out, errs := s.run(stdin, line)
	require.Zero(s.t, code, "%s: %s", line, errs)
	require.Empty(s.t, errs, line)
	return out
}

func (s *shell) fill() {
	s.t.Helper()
	s.must("region: nyc3", "put cluster "+cluster+" -f -")
	s.must(`{"cluster_id":"`+cluster+`","workspace_id":"22222222-2222-4222-8222-222222222222","workspace_slug":"acme","slug":"shop"}`,
		"put project "+project+" -f -")
	s.must("service_name: web\nimage: registry.example.com/shop:1\nreplicas: 2\nports: [{container_port: 8080}]\n",
		"put service "+project+" "+service+" production -f -")
}

// TestAPersonRunsAControlPlane is a day of an administrator, against a real one.
func TestAPersonRunsAControlPlane(t *testing.T) {
	t.Parallel()
	s, plane := newShell(t)
	s.fill()
	table := s.must("", "list services "+project)
	require.Equal(t, [][]string{
		{"ID", "ENVIRONMENT", "NAME", "IMAGE", "REPLICAS", "DELETED"},
		{service, "production", "web", "registry.example.com/shop:1", "2", "false"},
	}, cells(table))
	require.Contains(t, s.must("", "get service "+project+" "+service+" production"), "image: registry.example.com/shop:1\n")
	var shown struct{ Region string }
	require.NoError(t, json.Unmarshal([]byte(s.must("", "get cluster "+cluster+" -o json")), &shown))
	require.Equal(t, "nyc3", shown.Region)
	var list []struct{ Slug string }
	require.NoError(t, json.Unmarshal([]byte(s.must("", "list projects --cluster "+cluster+" -o json")), &list))
	require.Equal(t, "shop", list[0].Slug)
	require.Len(t, cells(s.must("", "list audit --object service --since 1h")), 2)
	require.Len(t, cells(s.must("", "list audit --object service --since 1d")), 2)
	require.Contains(t, s.must("", "list tokens"), "administrator")
	_, out, errs := s.run("", "list audit --limit 2")
	require.Len(t, cells(out), 3)
	require.Contains(t, errs, "There are more than 2")

	// The agent holds deletions: a person looks, and approves these.
	require.Contains(t, s.must("", "rotate cluster "+cluster+" --overlap 1h"), "overlap_seconds: 3600\n")
	token := strings.TrimPrefix(lineOf(s.must("", "rotate cluster "+cluster), "token: "), "token: ")
	// What an agent reports neither moves the cursor nor keeps an object from being shown.
	const odd = "\x1b[2J\r\n\x7f\u009b31m\u202e\ufffe"
	report := func(digest string) {
		held := map[string]any{
			"digest": digest,
			"count":  1,
			"units":  []any{map[string]any{"unit": "project x", "objects": 6, "reason": "absent"}},
		}
		class := ""
		if digest == "" {
			held, class = nil, "DeletionsNotRecorded"
		}
		state := ask(t, "GET", "http://"+plane.Address+"/api/v1/clusters/"+cluster+"/desired-state", token, "")
		var version struct {
			Epoch      string
			Generation int64
		}
		require.NoError(t, json.Unmarshal(state, &version))
		body, err := json.Marshal(map[string]any{
			"epoch":          version.Epoch,
			"generation":     version.Generation,
			"instance_id":    "one",
			"services":       []any{},
			"held_deletions": held, "cluster_error_class": class, "cluster_message": "ConfigMap a/b is garbage" + odd,
		})
		require.NoError(t, err)
		ask(t, "POST", "http://"+plane.Address+"/api/v1/clusters/"+cluster+"/status", token, string(body))
	}
	require.Contains(t, s.must("", "approve cluster "+cluster), "holds no deletions")
	report("")
	require.Contains(t, s.must("", "approve cluster "+cluster), "that can be approved. It reports DeletionsNotRecorded: "+
		"ConfigMap a/b is garbage"+strings.ReplaceAll("?[2J????31m??\n", "?", "\uFFFD"))
	for _, line := range []string{
		"get cluster " + cluster, "list clusters -o yaml", "get cluster " + cluster + " -o json", "list clusters -o json", "list clusters",
	} {
		require.NotRegexp(t, `[^\n\P{Cc}]`, s.must("", line), line)
	}
	var reported struct {
		Message string `json:"reported_message"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.must("", "get cluster "+cluster+" -o json")), &reported))
	require.Equal(t, "ConfigMap a/b is garbage"+odd, reported.Message)
	report("first")
	require.Contains(t, s.must("", "approve cluster "+cluster), "Approve them with: controlplane approve cluster "+cluster+" first\n")
	report("second")
	code, _, errs := s.run("", "approve cluster "+cluster+" first")
	require.Equal(t, 1, code)
	require.Contains(t, errs, `digest is "first": what is held has the digest "second"`)
	require.Contains(t, s.must("", "approve cluster "+cluster+" second"), "approved_deletions: second\n")
	require.Contains(t, s.must("", "approve cluster "+cluster), "They are approved")

	s.must("", "delete service "+project+" "+service+" production")
	require.Equal(t, "true", cells(s.must("", "list services "+project))[1][5])
	code, _, errs = s.run("", "delete cluster "+cluster)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "409 not_empty")
	s.must("name: eu-1\nplatform: aws\n", "put region eu -f -")
	require.Equal(t, "deleted: true\n", s.must("", "delete region eu --abandon"))
}

func ask(t *testing.T, method, url, token, body string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Less(t, answer.StatusCode, 300, "%s", text)
	return text
}

func cells(table string) (all [][]string) {
	for line := range strings.Lines(table) {
		all = append(all, strings.Fields(line))
	}
	return all
}

func lineOf(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestAMistypedLineNamesWhatIsWrong has what people type.
func TestAMistypedLineNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s, _ := newShell(t)
	other := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(other, []byte("two words"), 0o600))
	for line, want := range map[string]string{
		"get":                                "KIND: is not set, must be one of attached-var-groups, cluster, config, deployment, log, policy, ",
		"get clustr x":                       `KIND: is "clustr", must be one of`,
		"get audit":                          `KIND: is "audit", must be one of`,
		"get cluster":                        "CLUSTER_ID: is not set; the names are CLUSTER_ID",
		"get service a b":                    "ENVIRONMENT: is not set; the names are PROJECT_ID SERVICE_ID ENVIRONMENT",
		"get log x":                          "x: is one name too many, must be none",
		"get cluster ..":                     `CLUSTER_ID: is "..", must be a name`,
		"get cluster x":                      `cluster_id is "x": want a UUID in lower case in the path (400 invalid`,
		"get cluster a/b":                    `cluster_id is "a/b": want a UUID`,
		"get log -o xml":                     `--output: is "xml", must be json or yaml`,
		"get log --server control":           `--server: is "control", must be a URL such as https://control.example.com:8443`,
		"get log --server http://a/b":        `--server: is "http://a/b", must be a URL`,
		"get log --token-file=":              "--token-file: is not set, must be a file with the token of an administrator",
		"get log --token-file " + other:      "has a token with spaces",
		"get log --ca-file /none":            "--ca-file: is \"/none\", must be a file that can be read: no such file or directory",
		"get log --ca-file " + other:         "must be a PEM file with a certificate",
		"list":                               "KIND: is not set, must be one of audit, cluster, deployment, ",
		"list log":                           `KIND: is "log", must be one of audit, `,
		"list services":                      "PROJECT_ID: is not set; the names are PROJECT_ID",
		"list projects --object x":           "--object: is for audit, not for projects",
		"list clusters --limit 0":            "--limit: is 0, must be at least 1",
		"list audit --since yesterday":       `since is "yesterday": want a time of RFC 3339`,
		"watch clusters --interval 1ms":      "--interval: is 1ms, must be at least 1s",
		"put log -f -":                       `KIND: is "log", must be one of`,
		"put cluster " + cluster:             "--filename: is not set, must be a file, or - for the standard input",
		"put cluster " + cluster + " -f -":   "--filename: - has no object, must be YAML or JSON",
		"put cluster " + cluster + " -f /no": "--filename: open /no",
		"delete log":                         `KIND: is "log", must be one of`,
		"delete config " + cluster:           `KIND: is "config", must be one of`,
		"delete project x --abandon":         "--abandon: is for a cluster or a region, not for a project",
		"approve project x":                  `KIND: is "project", must be one of cluster, region`,
		"rotate cluster x --overlap -1s":     "--overlap: is -1s, must be whole seconds",
	} {
		code, out, errs := s.run("[1, 2]", line)
		require.NotZero(t, code, line)
		require.Empty(t, out, line)
		require.Contains(t, errs, "controlplane: ", line)
		require.Contains(t, errs, want, line)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
	code, _, errs := s.run("region: a\nregion: b\n", "put cluster "+cluster+" -f -")
	require.Equal(t, 2, code)
	require.Contains(t, errs, `key "region" already set`)
	code, _, errs = s.run("region: a\n---\nregion: b\n", "put cluster "+cluster+" -f -")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "has several YAML documents, must have one")
	code, _, errs = s.run(`{"region":"a"} {"region":"b"}`, "put cluster "+cluster+" -f -")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "has something after the JSON object")
	code, _, errs = s.run("", "get log --token-file 9b1c6f0e2d7a48538c4e17f6a0d3b592")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--token-file: must be a file with the token, not the token")
	require.NotContains(t, errs, "9b1c6f0e")
	code, _, errs = s.run("", "rotate cluster "+cluster+" --overlap 1500ms")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--overlap: is 1.5s, must be whole seconds")
	code, _, errs = s.run("regio: a\n", "put cluster "+cluster+" -f -")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "regio: want no such field (400 unknown_field")
	s.environment["TRUEUP_CONTROLPLANE_SERVER"] = "http://192.0.2.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var stderr bytes.Buffer
	require.Equal(t, 1, program.Run(ctx, s.command(), []string{"get", "log"}, io.Discard, &stderr))
	require.Contains(t, stderr.String(), "a token is sent without encryption: use https")
}

// TestTheShellCompletesKindsAndNames asks for what may follow.
func TestTheShellCompletesKindsAndNames(t *testing.T) {
	s, _ := newShell(t)
	s.fill()
	for name, value := range s.environment {
		t.Setenv(name, value)
	}
	for line, want := range map[string][]string{
		"get":                                    {"attached-var-groups", "cluster", "config", "deployment", "log", "policy", "project", "region", "sentinel", "service", "var-group"},
		"list":                                   {"audit", "clusters", "deployments", "policies", "projects", "regions", "sentinels", "services", "tokens", "usage", "usage-gaps", "var-groups"},
		"rotate":                                 {"cluster", "region"},
		"get cluster":                            {cluster},
		"list services":                          {project},
		"get service":                            {project},
		"get service " + project:                 {service},
		"get service " + project + " " + service: {"production"},
		"delete service " + project + " " + cluster: {},
		"get log":       {},
		"get none":      {},
		"list clusters": {},
	} {
		var stdout bytes.Buffer
		require.Zero(t, program.Run(t.Context(), s.command(), append(strings.Fields("__complete "+line), ""), &stdout, io.Discard))
		found := []string{}
		for text := range strings.Lines(stdout.String()) {
			if word, _, _ := strings.Cut(strings.TrimSpace(text), "\t"); word != "" && !strings.HasPrefix(word, ":") {
				found = append(found, word)
			}
		}
		require.ElementsMatch(t, want, found, line)
	}
}

// lines collects what a watch prints.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) take() [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := cells(l.text.String())
	l.text.Reset()
	return all
}

// TestAWatchPrintsWhatChanges has lists in virtual time: two of them differ, one fails, one
// is refused.
func TestAWatchPrintsWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var list func() (string, error)
		out, errs := &lines{}, &lines{}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- remote.Watch(ctx, "clusters", 2*time.Second, out, errs, func(context.Context) ([]json.RawMessage, error) {
				text, err := list()
				var items []json.RawMessage
				if err == nil {
					err = json.Unmarshal([]byte(text), &items)
				}
				return items, err
			})
		}()
		next := func(text string, err error) ([][]string, [][]string) {
			list = func() (string, error) { return text, err }
			time.Sleep(2 * time.Second)
			synctest.Wait()
			return out.take(), errs.take()
		}
		list = func() (string, error) { return `[{"cluster_id":"a","region":"r"},{"cluster_id":"b"}]`, nil }
		synctest.Wait()
		require.Equal(t, [][]string{
			{"EVENT", "ID", "REGION", "GENERATION", "REPORTED", "LAST-REPORT", "HELD", "ERROR"},
			{"ADDED", "a", "r", "-", "-", "-", "-", "-"},
			{"ADDED", "b", "-", "-", "-", "-", "-", "-"},
		}, out.take())
		printed, _ := next(`[{"cluster_id":"a","region":"r"},{"cluster_id":"b"}]`, nil)
		require.Empty(t, printed, "nothing has changed")
		printed, _ = next(`[{"cluster_id":"b","region":"s\u001b[2J"},{"cluster_id":"c"}]`, nil)
		require.Equal(t, [][]string{
			{
				"CHANGED",
				"b",
				"s\uFFFD[2J",
				"-",
				"-",
				"-",
				"-",
				"-",
			},
			{"ADDED", "c", "-", "-", "-", "-", "-", "-"},
			{"DELETED", "a", "r", "-", "-", "-", "-", "-"},
		}, printed)
		_, failed := next("", io.ErrUnexpectedEOF)
		require.Len(t, failed, 1, "it is said once")
		printed, failed = next("", io.ErrUnexpectedEOF)
		require.Empty(t, printed)
		require.Empty(t, failed)
		_, failed = next("", &client.Error{Status: 503})
		require.Empty(t, failed, "it is the same outage")
		printed, _ = next(`[{"cluster_id":"c"}]`, nil)
		require.Equal(t, "DELETED", printed[0][0])
		_, failed = next("", &client.Error{Status: 429, RetryAfter: time.Second})
		require.Len(t, failed, 1, "another outage")
		printed, _ = next(`[{"cluster_id":"c","nonce":"of another column"}]`, nil)
		require.Equal(t, "CHANGED", printed[0][0])
		printed, _ = next(`[]`, nil)
		require.Len(t, printed, 1)
		printed, _ = next(`[]`, nil)
		require.Empty(t, printed)
		cancel()
		require.NoError(t, <-ended)
	})
}
