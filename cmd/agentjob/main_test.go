package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// asProgram makes the test binary the program itself.
const asProgram = "AGENTJOB_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// run runs the program and returns its exit status and what it wrote.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = program.Run(t.Context(), command(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// kubeconfig returns a file that describes an API server which is not there.
func kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(`{"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],`+
		`"users":[{"name":"a","user":{"token":"sesame"}}],`+
		`"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"current-context":"a"}`), 0o600))
	return file
}

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "version")
	require.Zero(t, code)
	require.Contains(t, stdout, "go1.")
	code, stdout, _ = run(t, "--help")
	require.Zero(t, code)
	for _, text := range []string{"--crd", "--health-probe-bind-address", "THURKUBE_HEALTH_ADDR", "RUST_LOG", "--cluster-access-namespaces", "0.0.0.0:8080"} {
		require.Contains(t, stdout, text)
	}

	config := kubeconfig(t)
	for want, args := range map[string][]string{
		`unknown command "serve"`:                                                                      {"serve"},
		"unknown flag: --loud":                                                                         {"--loud"},
		`--keep-finished: is "soon", must be a duration`:                                               {"--keep-finished", "soon"},
		"--keep-finished: is 0s, must be more than 0s":                                                 {"--kubeconfig", config, "--keep-finished", "0"},
		`--ceiling: is "", must be the name of a ClusterRole`:                                          {"--kubeconfig", config, "--ceiling", ""},
		`--ceiling: is "a/b", must be the name of a ClusterRole`:                                       {"--kubeconfig", config, "--ceiling", "a/b"},
		"--keep-finished: is -1h0m0s, must be more than 0s":                                            {"--kubeconfig", config, "--keep-finished", "-1h"},
		`--cluster-access-namespaces: is "some", must be labelled or all`:                              {"--kubeconfig", config, "--cluster-access-namespaces", "some"},
		`--leader-elect: is "maybe", must be true or false`:                                            {"--leader-elect=maybe"},
		`--kubeconfig: is "/no/such/file", must be a file that can be read: no such file or directory`: {"--kubeconfig", "/no/such/file"},
		`--health-probe-bind-address: is "nowhere", must be host:port or :port`:                        {"--kubeconfig", config, "--health-addr", "nowhere"},
		`--health-probe-bind-address: is "127.0.0.1:99999", must be host:port or :port`:                {"--kubeconfig", config, "--health-addr", "127.0.0.1:99999"},
		`--namespace: is "", must be the name of a namespace, or --leader-elect=false`:                 {"--kubeconfig", config, "--namespace", ""},
		`--log-level: is "loud", must be trace`:                                                        {"--kubeconfig", config, "--log-level", "info,loud"},
		`--log-level: is "", must be trace`:                                                            {"--kubeconfig", config, "--log-level="},
		`--metrics-bind-address: is "0.0.0.0:8080", must be another address`:                           {"--kubeconfig", config, "--health-addr=:08080", "--metrics-bind-address=0.0.0.0:8080"},
		`unknown flag: --crd`:                                                                          {"manifests", "--crd"},
	} {
		code, stdout, stderr := run(t, args...)
		require.Equal(t, program.ExitUsage, code, "%v: %s", args, stderr)
		require.Empty(t, stdout, args)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		require.True(t, strings.HasPrefix(stderr, "agentjob: ") || strings.HasPrefix(stderr, "manifests: "), stderr)
	}
}

// object is what the tests look at in an object.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Group string
		Names struct {
			Kind, Plural string
			ShortNames   []string
		}
		Scope string
	}
	Rules           []struct{ APIGroups, Resources, Verbs []string }
	AggregationRule any
}

func documents(t *testing.T, stream string) (all []object) {
	t.Helper()
	for text := range strings.SplitSeq(stream, "---\n") {
		var o object
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		if o.Kind != "" {
			all = append(all, o)
		}
	}
	return all
}

// TestCRDPrintsEightDefinitions is the part of D26 that needs no server.
func TestCRDPrintsEightDefinitions(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "--crd", "--kubeconfig", "/no/such/file")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	got := map[string]string{}
	for _, o := range documents(t, stdout) {
		require.Equal(t, "CustomResourceDefinition", o.Kind)
		require.Equal(t, "thurkube.thurbeen.eu", o.Spec.Group)
		require.Equal(t, "Namespaced", o.Spec.Scope)
		require.Equal(t, o.Spec.Names.Plural+"."+o.Spec.Group, o.Metadata.Name)
		require.Len(t, o.Spec.Names.ShortNames, 1)
		got[o.Spec.Names.Kind] = o.Spec.Names.ShortNames[0] + " " + o.Spec.Names.Plural
	}
	require.Equal(t, map[string]string{
		"AgentJob": "aj agentjobs", "AgentRuntime": "ar agentruntimes", "AgentAuth": "aa agentauths", "AgentRole": "arl agentroles",
		"AgentSkill": "ask agentskills", "McpServer": "mcp mcpservers", "Repository": "repo repositories", "ClusterAccess": "ca clusteraccesses",
	}, got)
}

// TestTheManifestsGiveNoMoreRightsThanNeeded is the part of C8 that is rendered.
func TestTheManifestsGiveNoMoreRightsThanNeeded(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "manifests", "--image", "example.com/agentjob:1")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "image: example.com/agentjob:1")
	kinds := map[string]int{}
	for _, o := range documents(t, stdout) {
		kinds[o.Kind]++
		if o.Metadata.Name == "thurkube-ceiling" && o.Kind == "ClusterRole" {
			require.NotNil(t, o.AggregationRule)
			require.Empty(t, o.Rules)
		}
		for _, rule := range o.Rules {
			for _, refused := range []string{"*", "escalate", "bind", "impersonate"} {
				require.NotContains(t, rule.Verbs, refused)
			}
			for _, resource := range rule.Resources {
				require.NotContains(t, []string{"*", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "nodes/proxy"}, resource)
				if resource == "secrets" || resource == "pods" || resource == "namespaces" {
					require.Subset(t, []string{"get", "list", "watch"}, rule.Verbs, resource)
				}
			}
			require.NotContains(t, rule.APIGroups, "*")
		}
	}
	require.Equal(t, map[string]int{
		"CustomResourceDefinition": 8, "Namespace": 1, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2,
		"Role": 1, "RoleBinding": 1, "Deployment": 1,
	}, kinds)
}

// TestWithoutAnAPIServerItIsHealthyAndNotReady is the first half of D25, of the process
// itself: with a Lease, and without.
func TestWithoutAnAPIServerItIsHealthyAndNotReady(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"with a Lease": nil, "alone": {"--leader-elect=false"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = log.Close() })
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--kubeconfig", kubeconfig(t)}, more...)...)
			cmd.Env = []string{asProgram + "=1", "THURKUBE_HEALTH_ADDR=127.0.0.1:0", "RUST_LOG=loud"}
			cmd.Stdout, cmd.Stderr = log, &stderr
			require.NoError(t, cmd.Start())

			lines := func() (all []map[string]any) {
				data, err := os.ReadFile(log.Name())
				require.NoError(t, err)
				for line := range strings.Lines(string(data)) {
					if !strings.HasSuffix(line, "\n") {
						break // it is being written
					}
					var entry map[string]any
					require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
					all = append(all, entry)
				}
				return all
			}
			var address string
			await.Eventually(t, `address != ""`, func() bool {
				for _, line := range lines() {
					if line["msg"] == "listening" {
						address, _ = line["address"].(string)
					}
				}
				return address != ""
			})
			require.Equal(t, http.StatusOK, status(t, "http://"+address+"/healthz"))
			require.Equal(t, http.StatusServiceUnavailable, status(t, "http://"+address+"/readyz"))
			// What it tries and cannot do is logged, and changes neither.
			await.Eventually(t, "what it waits for, at ./cmd/agentjob/main_test.go", func() bool {
				for _, line := range lines() {
					if text, _ := json.Marshal(line); strings.Contains(string(text), "connection refused") {
						return true
					}
				}
				return false
			})
			require.Equal(t, http.StatusOK, status(t, "http://"+address+"/healthz"))
			require.Equal(t, http.StatusServiceUnavailable, status(t, "http://"+address+"/readyz"))

			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), stderr.String())
			require.Empty(t, stderr.String())
			warned := 0
			for _, line := range lines() {
				require.NotEmpty(t, line["time"])
				require.NotEmpty(t, line["level"])
				require.NotEmpty(t, line["msg"])
				if line["msg"] == "log level unknown, info is used" {
					require.Equal(t, "loud", line["value"])
					warned++
				}
			}
			require.Equal(t, 1, warned)
			all, err := os.ReadFile(log.Name())
			require.NoError(t, err)
			require.NotContains(t, string(all), "sesame")
		})
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}
