package main_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

func TestRestoredStartsEpochsForAllWhileTheProgramRuns(t *testing.T) {
	program, token := binary(t), writeFile(t, adminToken)
	for _, database := range []string{filepath.Join(t.TempDir(), "db"), pgtest.NewDatabase(t)} {
		p := serveProcess(
			t,
			program,
			"--listen",
			"127.0.0.1:0",
			"--metrics-bind-address",
			"127.0.0.1:0",
			"--database",
			database,
			"--admin-token-file",
			token,
		)
		base := "http://" + p.address
		create := func(path, body string) string {
			status, answer := request(t, http.DefaultClient, http.MethodPut, base+"/api/v1/admin/"+path, adminToken, body)
			require.Equal(t, http.StatusCreated, status, answer)
			var created struct{ Token string }
			require.NoError(t, json.Unmarshal([]byte(answer), &created))
			return created.Token
		}
		cluster := create("clusters/"+clusterID, `{"region":"nyc3"}`)
		create("regions/eu", `{"name":"eu-1","platform":"aws"}`)
		epoch := func() string {
			status, answer := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/clusters/"+clusterID+"/desired-state", cluster, "")
			require.Equal(t, http.StatusOK, status, answer)
			var state struct{ Epoch string }
			require.NoError(t, json.Unmarshal([]byte(answer), &state))
			return state.Epoch
		}
		log := func() string {
			status, answer := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/admin/regions/eu", adminToken, "")
			require.Equal(t, http.StatusOK, status, answer)
			var region struct {
				Epoch string `json:"log_epoch"`
			}
			require.NoError(t, json.Unmarshal([]byte(answer), &region))
			require.NotEmpty(t, region.Epoch)
			return region.Epoch
		}
		before, logBefore := epoch(), log()
		got := execute(t, program, nil, "restored", "--database", database)
		require.Zero(t, got.code, got.stderr)
		require.Contains(t, got.stdout, ": 1 clusters and 1 regions have a new epoch\n")
		for _, path := range []string{"clusters/" + clusterID, "regions/eu"} {
			require.Contains(t, got.stdout, "\ntoken of the backup: POST /api/v1/admin/"+path+"/rotate-token\n")
		}
		require.NotEqual(t, before, epoch())
		require.NotEqual(t, logBefore, log())
		require.NoError(t, p.command.Process.Kill())
		<-p.ended
	}
}

func TestRestoredRefusesADatabaseThatNoControlPlaneHasMade(t *testing.T) {
	program, dir := binary(t), t.TempDir()
	empty, foreign := filepath.Join(dir, "empty"), filepath.Join(dir, "foreign")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(foreign, []byte(strings.Repeat("no database ", 1000)), 0o600))
	for database, want := range map[string]struct {
		code int
		text string
	}{
		"mysql://somewhere":            {2, "--database: the name of the database is not valid"},
		filepath.Join(dir, "mistyped"): {2, "--database: is " + strconv.Quote(filepath.Join(dir, "mistyped")) + ", must be a file, in a folder that exists: no such file"},
		empty:                          {2, "--database: database " + empty + ": no control plane has made it"},
		foreign:                        {1, "belongs to another program"},
		pgtest.NewDatabase(t):          {2, "no control plane has made it"},
	} {
		got := execute(t, program, nil, "restored", "--database", database)
		require.Equal(t, want.code, got.code, got.stderr)
		require.Contains(t, got.stderr, want.text)
		require.Empty(t, got.stdout)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 2, "nothing is made")
}

// TestHostileTokensThatEndedAreVoidAfterARestore rotates tokens before and after a backup,
// deletes a region after it, and puts the backup back.
func TestHostileTokensThatEndedAreVoidAfterARestore(t *testing.T) {
	program, admin := binary(t), writeFile(t, adminToken)
	dir := t.TempDir()
	database, backup, exported := filepath.Join(dir, "db"), filepath.Join(dir, "backup"), filepath.Join(dir, "audit.jsonl")
	serve := func() *process {
		return serveProcess(
			t,
			program,
			"--listen",
			"127.0.0.1:0",
			"--metrics-bind-address",
			"127.0.0.1:0",
			"--database",
			database,
			"--admin-token-file",
			admin,
			"--audit-log",
			exported,
		)
	}
	stop := func(p *process) {
		require.NoError(t, p.command.Process.Kill())
		<-p.ended
	}
	p := serve()
	ask := func(method, path, body string) (token string) {
		status, answer := request(t, http.DefaultClient, method, "http://"+p.address+"/api/v1/admin/"+path, adminToken, body)
		require.Less(t, status, 300, answer)
		var got struct{ Token string }
		if status != http.StatusNoContent {
			require.NoError(t, json.Unmarshal([]byte(answer), &got))
		}
		return got.Token
	}
	region := func(id string) string {
		return ask(http.MethodPut, "regions/"+id, `{"name":"`+id+`","platform":"aws"}`)
	}
	rotate := func(path string, overlap int) string {
		return ask(http.MethodPost, path+"/rotate-token", fmt.Sprintf(`{"overlap_seconds":%d}`, overlap))
	}
	open := func(token, path string) (valid bool) {
		r, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			"http://"+p.address+"/ctrl.v1.ClusterService/Heartbeat",
			strings.NewReader("{}"),
		)
		if path != "" {
			r, err = http.NewRequestWithContext(
				t.Context(),
				http.MethodGet,
				"http://"+p.address+"/api/v1/clusters/"+path+"/desired-state",
				http.NoBody,
			)
		}
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusTooManyRequests
	}
	leaked := ask(http.MethodPut, "clusters/"+clusterID, `{"region":"nyc3"}`)
	superseded := region("overlap")
	successor := rotate("regions/overlap", 3600)
	rotated, gone, same := region("rotated"), region("gone"), region("same")
	got := execute(t, program, nil, "backup", "--database", database, backup)
	require.Zero(t, got.code, got.stderr)
	rotate("clusters/"+clusterID, 0)
	rotate("regions/rotated", 3600)
	ask(http.MethodDelete, "regions/gone", "")
	stop(p)

	// restore puts the backup back, runs the command, and starts the program.
	restore := func(args ...string) string {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			require.NoError(t, os.RemoveAll(database+suffix))
		}
		content, err := os.ReadFile(backup)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(database, content, 0o600))
		got := execute(t, program, nil, append([]string{"restored", "--database", database}, args...)...)
		require.Zero(t, got.code, got.stderr)
		p = serve()
		return got.stdout
	}
	for name, test := range map[string]struct {
		args  []string
		valid map[string]bool
		says  []string
	}{
		"without a record": {nil, map[string]bool{"leaked": true, "rotated": true, "gone": true, "same": true, "successor": true}, []string{
			"older token revoked: POST /api/v1/admin/regions/overlap/rotate-token\n", "5 tokens are those of the backup",
		}},
		"with the record": {[]string{"--audit-log", exported}, map[string]bool{"same": true, "successor": true}, []string{
			"token revoked      : POST /api/v1/admin/clusters/" + clusterID + "/rotate-token\n", "token revoked      : POST /api/v1/admin/regions/gone/rotate-token\n",
			"token of the backup: POST /api/v1/admin/regions/same/rotate-token\n", "2 tokens are those of the backup",
		}},
		"with all revoked": {[]string{"--revoke-tokens"}, nil, []string{"token revoked      : POST /api/v1/admin/regions/same/rotate-token\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			said := restore(test.args...)
			defer func() { stop(p) }()
			for _, line := range test.says {
				require.Contains(t, said, line)
			}
			require.Equal(t, test.valid["leaked"], open(leaked, clusterID), "leaked")
			for token, name := range map[string]string{superseded: "superseded", successor: "successor", rotated: "rotated", gone: "gone", same: "same"} {
				require.Equal(t, test.valid[name], open(token, ""), name)
			}
			require.True(t, open(rotate("clusters/"+clusterID, 0), clusterID), "the request that is printed works")
		})
	}
}

// TestWhatAnEarlierRestoreHasRevokedStaysSo puts the same backup back twice.
func TestWhatAnEarlierRestoreHasRevokedStaysSo(t *testing.T) {
	program, admin := binary(t), writeFile(t, adminToken)
	dir := t.TempDir()
	database, backup, exported := filepath.Join(dir, "db"), filepath.Join(dir, "backup"), filepath.Join(dir, "audit.jsonl")
	p := serveProcess(
		t,
		program,
		"--listen",
		"127.0.0.1:0",
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--database",
		database,
		"--admin-token-file",
		admin,
		"--audit-log",
		exported,
	)
	status, answer := request(
		t,
		http.DefaultClient,
		http.MethodPut,
		"http://"+p.address+"/api/v1/admin/regions/eu",
		adminToken,
		`{"name":"eu","platform":"aws"}`,
	)
	require.Equal(t, http.StatusCreated, status, answer)
	got := execute(t, program, nil, "backup", "--database", database, backup)
	require.Zero(t, got.code, got.stderr)
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
	for _, args := range [][]string{{"--revoke-tokens"}, nil} {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			require.NoError(t, os.RemoveAll(database+suffix))
		}
		content, err := os.ReadFile(backup)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(database, content, 0o600))
		got := execute(t, program, nil, append([]string{"restored", "--database", database, "--audit-log", exported}, args...)...)
		require.Zero(t, got.code, got.stderr)
		require.Contains(t, got.stdout, "token revoked      : POST /api/v1/admin/regions/eu/rotate-token\n", args)
	}
}

// TestARestoredDatabaseDoesNotSayWhichKeysReplicasKnow: the first key may be one that is newer
// than the backup, and every replica knows it.
func TestARestoredDatabaseDoesNotSayWhichKeysReplicasKnow(t *testing.T) {
	program, token, database := binary(t), writeFile(t, adminToken), filepath.Join(t.TempDir(), "db")
	key := func(name string) string {
		return name + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32])) + "\n"
	}
	args := func(keys string) []string {
		return []string{
			"--listen",
			"127.0.0.1:0",
			"--metrics-bind-address",
			"127.0.0.1:0",
			"--database",
			database,
			"--admin-token-file",
			token,
			"--var-group-keys-file",
			writeFile(t, keys),
		}
	}
	p := serveProcess(t, program, args(key("old"))...)
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
	newer := args(key("new") + key("old"))
	got := execute(t, program, nil, newer...)
	require.Equal(t, 2, got.code, got.stderr)
	require.Contains(t, got.stderr, "put it last")
	got = execute(t, program, nil, "restored", "--database", database)
	require.Zero(t, got.code, got.stderr)
	p = serveProcess(t, program, newer...)
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
}
