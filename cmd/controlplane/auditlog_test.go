package main_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheAuditIsExportedWithAddresses has a login, guesses, and a read of a var group.
func TestTheAuditIsExportedWithAddresses(t *testing.T) {
	program, token, keys := binary(t), writeFile(t, adminToken), writeFile(t, "one "+strings.Repeat("QUFB", 10)+"QUE=\n")
	for _, to := range []string{filepath.Join(t.TempDir(), "audit.jsonl"), "-"} {
		p := serveProcess(
			t,
			program,
			"--listen",
			"127.0.0.1:0",
			"--metrics-bind-address",
			"127.0.0.1:0",
			"--database",
			filepath.Join(t.TempDir(), "db"),
			"--admin-token-file",
			token,
			"--var-group-keys-file",
			keys,
			"--audit-log",
			to,
		)
		base := "http://" + p.address
		const project, group = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
		for _, step := range []struct{ method, path, body string }{
			{http.MethodPut, "clusters/" + clusterID, `{"region":"nyc3"}`},
			{http.MethodPut, "projects/" + project, `{"workspace_id":"` + project + `","workspace_slug":"acme","slug":"shop","cluster_id":"` + clusterID + `"}`},
			{http.MethodPut, "projects/" + project + "/var-groups/" + group, `{"name":"db","entries":[{"key":"PASSWORD","value":"hunter2"}]}`},
			{http.MethodGet, "projects/" + project + "/var-groups/" + group, ""},
		} {
			status, answer := request(t, http.DefaultClient, step.method, base+"/api/v1/admin/"+step.path, adminToken, step.body)
			require.Less(t, status, 300, answer)
		}
		client := clientFrom(t, "127.0.0.9")
		for _, guess := range []string{adminToken, "a-guess"} {
			r, err := http.NewRequestWithContext(
				t.Context(),
				http.MethodPost,
				base+"/status/login",
				strings.NewReader(url.Values{"token": {guess}}.Encode()),
			)
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			response, err := client.Do(r)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
		}
		_, listed := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/admin/audit?log=refused", adminToken, "")
		require.Contains(t, listed, `"from":"127.0.0.9"`)
		require.NoError(t, p.command.Process.Kill())
		text := (<-p.ended).stderr
		if to != "-" {
			content, err := os.ReadFile(to)
			require.NoError(t, err)
			text = string(content)
		}
		require.NotContains(t, text, "hunter2")
		require.NotContains(t, text, "a-guess")
		require.NotContains(t, text, adminToken)
		found := map[string]string{}
		for line := range strings.Lines(text) {
			var e struct{ Msg, Log, Actor, From, Verb, Kind, Name string }
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			if e.Msg == "audit" {
				found[e.Log+" "+e.Verb+" "+e.Kind+" "+e.Name] = e.From
			}
		}
		require.Equal(t, map[string]string{
			"changes put cluster " + clusterID: "127.0.0.1", "changes put project " + project: "127.0.0.1",
			"changes put var-group " + project + "/" + group: "127.0.0.1", "access read var-group " + project + "/" + group: "127.0.0.1",
			"access login session ": "127.0.0.9", "refused authenticate credential login": "127.0.0.9",
		}, found)
	}
	got := execute(
		t,
		program,
		nil,
		"--admin-token-file",
		token,
		"--database",
		filepath.Join(t.TempDir(), "db"),
		"--audit-log",
		"/no/such/folder/audit",
	)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr, `--audit-log: is "/no/such/folder/audit", must be a file that can be written: no such file or directory`)
}
