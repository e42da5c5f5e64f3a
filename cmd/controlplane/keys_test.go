package main_test

import (
	"encoding/base64"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProgramDoesNotStartWithoutAKeyThatIsInUse(t *testing.T) {
	program, token, database := binary(t), writeFile(t, adminToken), filepath.Join(t.TempDir(), "db")
	key := func(id string, b byte) string {
		return id + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32))) + "\n"
	}
	flags := func(keys string) []string {
		list := []string{"--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0", "--database", database, "--admin-token-file", token}
		if keys != "" {
			list = append(list, "--var-group-keys-file", writeFile(t, keys))
		}
		return list
	}
	stop := func(p *process) string {
		require.NoError(t, p.command.Process.Kill())
		return (<-p.ended).stderr
	}
	p := serveProcess(t, program, flags(key("one", 'a')+key("two", 'b'))...)
	const project, group = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	for _, step := range [][2]string{
		{"clusters/" + clusterID, `{"region":"nyc3"}`},
		{"projects/" + project, `{"workspace_id":"` + project + `","workspace_slug":"acme","slug":"shop","cluster_id":"` + clusterID + `"}`},
		{"projects/" + project + "/var-groups/" + group, `{"name":"db","entries":[{"key":"PASSWORD","value":"hunter2"},{"key":"USER","value":"u"}]}`},
	} {
		status, answer := request(t, http.DefaultClient, http.MethodPut, "http://"+p.address+"/api/v1/admin/"+step[0], adminToken, step[1])
		require.Less(t, status, 300, answer)
	}
	stop(p)
	for keys, says := range map[string]string{
		key("two", 'b'):                   "key one: values of var groups are encrypted with it (2), and it is not among the keys: add its line again, as the last\n",
		key("one", 'c') + key("two", 'b'): "key one: values of var groups are encrypted with it (2), and none is read with its bytes, which are others: put back the line of that key as it was\n",
		"":                                "key one: values of var groups are encrypted with it (2), and it is not among the keys",
	} {
		got := execute(t, program, nil, flags(keys)...)
		require.Equal(t, 2, got.code, got.stderr)
		require.Contains(t, got.stderr, "--var-group-keys-file: ")
		require.Contains(t, got.stderr, says)
		require.NotContains(t, got.stderr, "YWFh")
	}
	log := stop(serveProcess(t, program, flags(key("two", 'b')+key("one", 'a'))...))
	require.Contains(t, log, `"var group values re-encrypted","values":2,"key":"two"}`)
	require.NotContains(t, log, `"error":null`)
	stop(serveProcess(t, program, flags(key("two", 'b'))...))
}
