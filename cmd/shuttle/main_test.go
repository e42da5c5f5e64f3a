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

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const (
	clusterID   = "00000000-0000-4000-8000-000000000001"
	workspaceID = "00000000-0000-4000-8000-000000000002"
	projectID   = "00000000-0000-4000-8000-000000000003"
	goodID      = "00000000-0000-4000-8000-000000000004"
	badID       = "00000000-0000-4000-8000-000000000005"
	adminToken  = "an-admin-token-for-tests"
)

// build returns a folder with the two programs.
func build(tb testing.TB) string {
	tb.Helper()
	return programs.Dir(tb, "shuttle", "controlplane")
}

// run runs shuttle with nothing in its environment but env.
func run(tb testing.TB, program string, env []string, args ...string) (code int, stdout, stderr string) {
	tb.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(tb.Context(), program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	if err := cmd.Run(); err != nil {
		_, ok := errors.AsType[*exec.ExitError](err)
		require.True(tb, ok, "%v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	program := filepath.Join(build(t), "shuttle")
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("x"), 0o600))
	env := []string{
		"STARFORM_STARBASE_URL=https://starbase.example.com",
		"STARFORM_CLUSTER_ID=" + clusterID,
		"STARFORM_REGION=nyc3",
		"STARFORM_AUTH_TOKEN_FILE=" + token,
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
		{nil, nil, "shuttle: STARFORM_STARBASE_URL: is not set, must be a URL"},
		{env[:1], nil, "shuttle: STARFORM_CLUSTER_ID: is not set, must be a UUID in lower case; STARFORM_REGION: is not set"},
		{append(env[:4:4], "STARFORM_RECONCILE_INTERVAL=soon"), nil, `shuttle: STARFORM_RECONCILE_INTERVAL: is "soon", must be a duration from 1s to 1h`},
		{env, nil, "shuttle: access to Kubernetes: unable to load in-cluster configuration"},
		{env, []string{"--kubeconfig", "/no/such/file"}, `shuttle: --kubeconfig: is "/no/such/file", must be a file that can be read: no such file or directory`},
		{env, []string{"--soft-limit=", "--region="}, `shuttle: --region: is "", must be a region like nyc3; --soft-limit: is "", must be`},
		{env, []string{"--namespace="}, `shuttle: --namespace: is "", must be the name of a namespace`},
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

func (a admin) do(tb testing.TB, method, path, body string) string {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), method, a.base+"/api/v1/admin/"+path, strings.NewReader(body))
	require.NoError(tb, err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(tb, err)
	data, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	require.NoError(tb, response.Body.Close())
	require.Less(tb, response.StatusCode, 300, "%s %s: %s", method, path, data)
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

func listening(tb testing.TB, p *process.Process) string {
	tb.Helper()
	var address string
	await.Eventually(tb, p.Tail(), func() bool {
		data, err := os.ReadFile(p.Log)
		require.NoError(tb, err)
		for line := range strings.Lines(string(data)) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
				address = entry.Address
			}
		}
		return address != ""
	})
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
	applied              []byte // of the benchmark: what the agent had applied
}

func newSystem(tb testing.TB, nodes int) *system {
	tb.Helper()
	dir := tb.TempDir()
	s := &system{
		bin:     build(tb),
		cluster: kubetest.Start(tb, kubetest.Options{Controllers: true, Scheduler: true, Nodes: nodes, GatewayAPI: true}),
		group:   process.NewGroup(dir),
		adminFile: filepath.Join(
			dir,
			"admin",
		),
		tokenFile: filepath.Join(dir, "token"),
		database:  filepath.Join(dir, "trueup.db"),
		keysFile:  filepath.Join(dir, "keys"),
	}
	tb.Cleanup(s.group.Close)
	code, manifests, _ := run(tb, filepath.Join(s.bin, "shuttle"), nil,
		"manifests", "--starbase-url", "https://starbase.example.com", "--cluster-id", clusterID, "--region", "nyc3")
	require.Zero(tb, code)
	require.NoError(tb, s.cluster.Apply(tb.Context(), manifests))
	var err error
	_, s.kubeconfig, err = s.cluster.ServiceAccount(tb.Context(), "starform-system", "shuttle")
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(s.adminFile, []byte(adminToken), 0o600))
	s.keys(tb, "one")
	return s
}

// keys writes the file with the keys of var groups, of which the first encrypts.
func (s *system) keys(tb testing.TB, names ...string) {
	tb.Helper()
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32])) + "\n")
	}
	require.NoError(tb, os.WriteFile(s.keysFile, []byte(text.String()), 0o600))
}

func (s *system) startControlPlane(tb testing.TB, name, address string) (*process.Process, admin) {
	tb.Helper()
	p, err := s.group.Run(
		name,
		filepath.Join(s.bin, "controlplane"),
		nil,
		"--listen",
		address,
		"--metrics-bind-address",
		"",
		"--database",
		s.database,
		"--admin-token-file",
		s.adminFile,
		"--var-group-keys-file",
		s.keysFile,
	)
	require.NoError(tb, err)
	return p, admin{"http://" + listening(tb, p)}
}

// register makes the cluster and its project known.
func (s *system) register(tb testing.TB, control admin) {
	tb.Helper()
	var registered struct{ Token string }
	require.NoError(tb, json.Unmarshal([]byte(control.do(tb, http.MethodPut, "clusters/"+clusterID, `{"region":"nyc3"}`)), &registered))
	s.token = registered.Token
	require.NoError(tb, os.WriteFile(s.tokenFile, []byte(s.token), 0o600))
	control.do(
		tb,
		http.MethodPut,
		"projects/"+projectID,
		`{"cluster_id":"`+clusterID+`","workspace_id":"`+workspaceID+`","workspace_slug":"acme","slug":"shop"}`,
	)
}

// startAgent starts an agent that passes each second, unless settings says otherwise.
func (s *system) startAgent(tb testing.TB, control admin, settings ...string) *process.Process {
	tb.Helper()
	env := append([]string{
		"STARFORM_STARBASE_URL=" + control.base, "STARFORM_CLUSTER_ID=" + clusterID, "STARFORM_REGION=nyc3",
		"STARFORM_AUTH_TOKEN_FILE=" + s.tokenFile, "STARFORM_METRICS_ADDR=127.0.0.1:0", "STARFORM_RECONCILE_INTERVAL=1s",
	}, settings...)
	p, err := s.group.Run("shuttle", filepath.Join(s.bin, "shuttle"), env, "--kubeconfig", s.kubeconfig)
	require.NoError(tb, err)
	return p
}

// kubectl returns what kubectl prints.
func (s *system) kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := s.cluster.Kubectl(tb.Context(), args...)
	require.NoError(tb, err)
	return out
}

// TestTheProgramsTogether runs both programs as their users do: the agent as
// the service account that its own manifests make. A service that an older
// control plane took, and that is invalid now, is rejected alone, and the
// control plane shows why. The agent hears of it by its stream, which it opens again.
func TestTheProgramsTogether(t *testing.T) {
	t.Parallel()
	s := newSystem(t, 1)
	server, control := s.startControlPlane(t, "first", "127.0.0.1:0")
	s.register(t, control)
	path := "projects/" + projectID + "/services/"
	control.do(
		t,
		http.MethodPut,
		path+goodID+"/production",
		`{"service_name":"good","image":"example.com/good:1","replicas":2,"env":{"PASSWORD":"hunter2"}}`,
	)
	control.do(t, http.MethodPut, path+badID+"/production", `{"service_name":"bad","image":"example.com/bad:1","replicas":1}`)

	// Nothing comes with the ticker but the first state.
	agent := s.startAgent(t, control, "STARFORM_TRANSPORT=stream", "STARFORM_RECONCILE_INTERVAL=1h")
	await.Eventually(t, `states[goodID].Phase == "Healthy" && states[goodID].Ready == 2 && states[badID].Phase == "Healthy"`, func() bool {
		states := control.services(t)
		return states[goodID].Phase == "Healthy" && states[goodID].Ready == 2 && states[badID].Phase == "Healthy"
	})

	// Behind the control plane's back, in its database, while it is down.
	require.NoError(t, server.Stop(15*time.Second))
	spoil(t, s.database)
	address := strings.TrimPrefix(control.base, "http://")
	server, control = s.startControlPlane(t, "second", address)
	control.do(
		t,
		http.MethodPut,
		path+goodID+"/production",
		`{"service_name":"good","image":"example.com/good:2","replicas":3,"env":{"PASSWORD":"hunter2"}}`,
	)
	await.Eventually(t, `states[goodID].Phase == "Healthy" && states[goodID].Ready == 3 && states[badID].Phase == "Rejected"`, func() bool {
		states := control.services(t)
		return states[goodID].Phase == "Healthy" && states[goodID].Ready == 3 && states[badID].Phase == "Rejected"
	})
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
	result, err := db.ExecContext(
		context.WithoutCancel(t.Context()),
		`UPDATE services SET spec = json_set(spec, '$.replicas', -1) WHERE service_id = ?`,
		badID,
	)
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
