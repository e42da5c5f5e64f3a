package main_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

const (
	clusterID   = "00000000-0000-4000-8000-000000000001"
	workspaceID = "00000000-0000-4000-8000-000000000002"
	projectID   = "00000000-0000-4000-8000-000000000003"
	goodID      = "00000000-0000-4000-8000-000000000004"
	badID       = "00000000-0000-4000-8000-000000000005"
	adminToken  = "an-admin-token-for-tests"
)

// build compiles the two programs into a folder.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"shuttle", "controlplane"} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "github.com/seed-9e1ffd66/trueup/cmd/"+name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// run runs shuttle with nothing in its environment but env.
func run(t *testing.T, program string, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	if err := cmd.Run(); err != nil {
		_, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, "%v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	program := filepath.Join(build(t), "shuttle")
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("x"), 0o600))
	env := []string{
		"STARFORM_STARBASE_URL=https://starbase.example.com", "STARFORM_CLUSTER_ID=" + clusterID, "STARFORM_REGION=nyc3", "STARFORM_AUTH_TOKEN_FILE=" + token,
	}
	code, stdout, _ := run(t, program, nil, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "STARFORM_STARBASE_URL")
	code, stdout, _ = run(t, program, nil, "version")
	require.Zero(t, code)
	require.Contains(t, stdout, "go1.")

	for _, test := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, nil, "shuttle: STARFORM_STARBASE_URL: not set; want a URL"},
		{env[:1], nil, "shuttle: STARFORM_CLUSTER_ID: not set; want a UUID"},
		{append(env[:4:4], "STARFORM_RECONCILE_INTERVAL=soon"), nil, `shuttle: STARFORM_RECONCILE_INTERVAL: "soon"; want a duration from 1s to 1h`},
		{env, nil, "shuttle: access to Kubernetes: unable to load in-cluster configuration"},
		{env, []string{"--kubeconfig", "/no/such/file"}, "shuttle: access to Kubernetes: stat /no/such/file"},
		{env, []string{"--kubeconf"}, "shuttle: unknown flag: --kubeconf"},
		{env, []string{"surprise"}, `shuttle: unknown command "surprise"`},
	} {
		code, stdout, stderr := run(t, program, test.env, test.args...)
		require.Equal(t, 2, code, test.want)
		require.Empty(t, stdout)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		require.True(t, strings.HasPrefix(stderr, test.want), stderr)
	}
}

// admin is the control plane as its administrator sees it.
type admin struct{ base string }

func (a admin) do(t *testing.T, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, a.base+"/api/v1/admin/"+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Less(t, response.StatusCode, 300, "%s %s: %s", method, path, data)
	return string(data)
}

type serviceState struct {
	ServiceID  string `json:"service_id"`
	Phase      string `json:"phase"`
	ErrorClass string `json:"error_class"`
	Message    string `json:"message"`
	Ready      int    `json:"ready"`
	Desired    int    `json:"desired"`
}

func (a admin) services(t *testing.T) map[string]serviceState {
	t.Helper()
	var cluster struct{ Services []serviceState }
	require.NoError(t, json.Unmarshal([]byte(a.do(t, http.MethodGet, "clusters/"+clusterID, "")), &cluster))
	found := map[string]serviceState{}
	for _, s := range cluster.Services {
		found[s.ServiceID] = s
	}
	return found
}

func listening(t *testing.T, p *process.Process) string {
	t.Helper()
	var address string
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
				address = entry.Address
			}
		}
		return address != ""
	}, 3*time.Minute, 10*time.Millisecond, p.Tail())
	return address
}

// system is what both programs need: a Kubernetes, files, and a place for their logs.
type system struct {
	cluster              *kubetest.Cluster
	bin, kubeconfig      string
	group                *process.Group
	adminFile, tokenFile string
	database, keysFile   string
	token                string // of the agent
}

func newSystem(t *testing.T) *system {
	t.Helper()
	dir := t.TempDir()
	s := &system{
		bin: build(t), cluster: kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1, GatewayAPI: true}), group: process.NewGroup(dir),
		adminFile: filepath.Join(dir, "admin"), tokenFile: filepath.Join(dir, "token"), database: filepath.Join(dir, "trueup.db"), keysFile: filepath.Join(dir, "keys"),
	}
	t.Cleanup(s.group.Close)
	code, manifests, _ := run(t, filepath.Join(s.bin, "shuttle"), nil, "manifests")
	require.Zero(t, code)
	require.NoError(t, s.cluster.Apply(t.Context(), manifests))
	var err error
	_, s.kubeconfig, err = s.cluster.ServiceAccount(t.Context(), "starform-system", "shuttle")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.adminFile, []byte(adminToken), 0o600))
	s.keys(t, "one")
	return s
}

// keys writes the file with the keys of var groups, of which the first encrypts.
func (s *system) keys(t *testing.T, names ...string) {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32])) + "\n")
	}
	require.NoError(t, os.WriteFile(s.keysFile, []byte(text.String()), 0o600))
}

func (s *system) startControlPlane(t *testing.T, name, address string) (*process.Process, admin) {
	t.Helper()
	p, err := s.group.Run(name, filepath.Join(s.bin, "controlplane"), nil,
		"--listen", address, "--metrics-listen", "", "--database", s.database, "--admin-token-file", s.adminFile, "--var-group-keys-file", s.keysFile)
	require.NoError(t, err)
	return p, admin{"http://" + listening(t, p)}
}

// register makes the cluster and its project known.
func (s *system) register(t *testing.T, control admin) {
	t.Helper()
	var registered struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(control.do(t, http.MethodPut, "clusters/"+clusterID, `{"region":"nyc3"}`)), &registered))
	s.token = registered.Token
	require.NoError(t, os.WriteFile(s.tokenFile, []byte(s.token), 0o600))
	control.do(t, http.MethodPut, "projects/"+projectID, `{"cluster_id":"`+clusterID+`","workspace_id":"`+workspaceID+`","workspace_slug":"acme","slug":"shop"}`)
}

func (s *system) startAgent(t *testing.T, control admin) *process.Process {
	t.Helper()
	p, err := s.group.Run("shuttle", filepath.Join(s.bin, "shuttle"), []string{
		"STARFORM_STARBASE_URL=" + control.base, "STARFORM_CLUSTER_ID=" + clusterID, "STARFORM_REGION=nyc3",
		"STARFORM_AUTH_TOKEN_FILE=" + s.tokenFile, "STARFORM_METRICS_ADDR=127.0.0.1:0", "STARFORM_RECONCILE_INTERVAL=1s",
	}, "--kubeconfig", s.kubeconfig)
	require.NoError(t, err)
	return p
}

// kubectl returns what kubectl prints.
func (s *system) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// TestTheProgramsTogether runs both programs as their users do: the agent as
// the service account that its own manifests make. A service that an older
// control plane took, and that is invalid now, is rejected alone, and the
// control plane shows why.
func TestTheProgramsTogether(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	server, control := s.startControlPlane(t, "first", "127.0.0.1:0")
	s.register(t, control)
	path := "projects/" + projectID + "/services/"
	control.do(t, http.MethodPut, path+goodID+"/production", `{"service_name":"good","image":"example.com/good:1","replicas":2,"env":{"PASSWORD":"hunter2"}}`)
	control.do(t, http.MethodPut, path+badID+"/production", `{"service_name":"bad","image":"example.com/bad:1","replicas":1}`)

	agent := s.startAgent(t, control)
	require.Eventually(t, func() bool {
		states := control.services(t)
		return states[goodID].Phase == "Healthy" && states[goodID].Ready == 2 && states[badID].Phase == "Healthy"
	}, 3*time.Minute, 100*time.Millisecond)

	// Behind the control plane's back, in its database, while it is down.
	require.NoError(t, server.Stop(15*time.Second))
	spoil(t, s.database)
	address := strings.TrimPrefix(control.base, "http://")
	server, control = s.startControlPlane(t, "second", address)
	control.do(t, http.MethodPut, path+goodID+"/production", `{"service_name":"good","image":"example.com/good:2","replicas":3,"env":{"PASSWORD":"hunter2"}}`)
	require.Eventually(t, func() bool {
		states := control.services(t)
		return states[goodID].Phase == "Healthy" && states[goodID].Ready == 3 && states[badID].Phase == "Rejected"
	}, 3*time.Minute, 100*time.Millisecond)
	bad := control.services(t)[badID]
	require.Equal(t, "Invalid", bad.ErrorClass)
	require.Contains(t, bad.Message, "replicas is -1: want 0 to 1000")
	pods, err := s.cluster.Kubectl(t.Context(), "get", "pods", "-A", "-l", "starform.io/service-name=bad", "-o", "name")
	require.NoError(t, err)
	require.NotEmpty(t, pods, "what it had keeps running")

	require.NoError(t, agent.Stop(20*time.Second))
	require.NoError(t, server.Stop(15*time.Second))
	for _, p := range []*process.Process{agent, server} {
		log, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		for _, secret := range []string{"hunter2", s.token, adminToken} {
			require.NotContains(t, string(log), secret, p.Name)
		}
	}
}

// spoil makes the replicas of the bad service negative.
func spoil(t *testing.T, database string) {
	t.Helper()
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	defer db.Close()
	result, err := db.ExecContext(context.WithoutCancel(t.Context()), `UPDATE services SET spec = json_set(spec, '$.replicas', -1) WHERE service_id = ?`, badID)
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
