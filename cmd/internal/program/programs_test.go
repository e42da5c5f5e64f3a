package program_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

const (
	sesame  = "open-sesame-open-sesame" // a token
	cluster = "00000000-0000-4000-8000-000000000001"
)

// habit is how one program is run in a test. DIR stands for a folder of its own, with a
// file "token".
type habit struct {
	name string
	// env and args let it run beside a Kubernetes; those with port 0 are found in the log.
	env, args []string
	// required is what one line names when it is missing.
	required string
	// listeners are the values of "for" in the log; empty: there is one.
	listeners []string
	// alone needs no Kubernetes.
	alone bool
	// lease says that it can work under a Lease.
	lease bool
	// needed are the flags that its manifests have no default for.
	needed []string
}

func habits(t *testing.T) []habit {
	t.Helper()
	return []habit{
		{name: "agentjob", lease: true, args: []string{"--health-probe-bind-address", "127.0.0.1:0"}, required: "Kubernetes"},
		{name: "application", lease: true, args: []string{"--health-probe-bind-address", "127.0.0.1:0"}, required: "Kubernetes"},
		{
			name:      "controlplane",
			alone:     true,
			required:  "--admin-token-file",
			listeners: []string{"api", "metrics"},
			args: []string{
				"--listen",
				"127.0.0.1:0",
				"--metrics-bind-address",
				"127.0.0.1:0",
				"--database",
				"DIR/db",
				"--admin-token-file",
				"DIR/token",
			},
		},
		{
			name:     "krane",
			required: "cluster.region",
			env: []string{
				"KRANE_INSTANCE_ID=krane-1",
				"KRANE_RPC_PORT=" + port(t),
				"KRANE_CLUSTER_REGION=eu",
				"KRANE_CONTROL_URL=http://127.0.0.1:1",
				"KRANE_CONTROL_TOKEN=" + sesame,
			},
		},
		{
			name:      "nodepool",
			lease:     true,
			required:  "--cluster-name",
			listeners: []string{"health", "metrics"},
			needed:    []string{"--cluster-name", "example"},
			args: []string{
				"--cloud-provider",
				"fake",
				"--cluster-name",
				"c",
				"--metrics-bind-address",
				"127.0.0.1:0",
				"--health-probe-bind-address",
				"127.0.0.1:0",
			},
		},
		{
			name:     "shuttle",
			lease:    true,
			required: "STARFORM_STARBASE_URL",
			env: []string{
				"STARFORM_STARBASE_URL=http://127.0.0.1:1",
				"STARFORM_CLUSTER_ID=" + cluster,
				"STARFORM_REGION=nyc3",
				"STARFORM_AUTH_TOKEN_FILE=DIR/token",
				"STARFORM_METRICS_ADDR=127.0.0.1:0",
			},
		},
	}
}

// port is one that is free.
func port(t *testing.T) string {
	t.Helper()
	found, err := process.Port(t.Context())
	require.NoError(t, err)
	return strconv.Itoa(found)
}

// TestEveryProgramHasTheSameHabits builds the programs and uses each in the same way: what
// docs/programs.md says of all of them.
func TestEveryProgramHasTheSameHabits(t *testing.T) {
	t.Parallel()
	kubernetes := kubetest.Start(t, kubetest.Options{Controllers: true})
	var names []string
	for _, h := range habits(t) {
		names = append(names, h.name)
	}
	dir := programs.Dir(t, names...)
	for _, h := range habits(t) {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, h.name)
			h.answers(t, path)
			h.manifests(t, path, kubernetes)
			h.overlay(t, path, kubernetes)
			h.serves(t, path, kubernetes.Kubeconfig)
		})
	}
}

// call runs the program to its end, with nothing in its environment.
func call(t *testing.T, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env, c.Dir, c.Stdout, c.Stderr = []string{"HOME=" + t.TempDir()}, t.TempDir(), &out, &errs
	if err := c.Run(); err != nil {
		_, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, "%v", err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

func (h habit) answers(t *testing.T, path string) {
	t.Helper()
	code, stdout, stderr := call(t, path, "--help")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	wanted := []string{
		"  completion ",
		"  man ",
		"  manifests ",
		"  version ",
		"Usage:\n  " + h.name + " [flags]",
		"--log-level ",
		"--metrics-bind-address ",
	}
	if !h.alone {
		wanted = append(wanted, "--kubeconfig ", "[KUBECONFIG]", "--health-probe-bind-address ")
	}
	if h.lease {
		wanted = append(wanted, "--leader-elect")
	}
	for _, want := range wanted {
		require.Contains(t, stdout, want)
	}
	for line := range strings.Lines(stdout) {
		if flag := regexp.MustCompile(`^ +(?:-., )?--([a-z0-9-]+)`).FindStringSubmatch(line); flag != nil && flag[1] != "help" {
			require.Regexp(t, `\[[A-Z][A-Z0-9_]+\]`, line, "a variable for each flag")
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, stderr := call(t, path, "completion", shell)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, h.name)
	}
	pages := t.TempDir()
	code, _, stderr = call(t, path, "man", pages)
	require.Zero(t, code, stderr)
	page, err := os.ReadFile(filepath.Join(pages, h.name+".1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "metrics-bind-address")
	code, stdout, _ = call(t, path, "version")
	require.Zero(t, code)
	require.Regexp(t, "^"+h.name+` \S+( [0-9a-f]{40})? go1\.\S+\n$`, stdout)

	for want, args := range map[string][]string{
		"unknown flag: --wrong":    {"--wrong"},
		"unknown command \"more\"": {"more"},
		"no image reference":       {"manifests", "--image", "a b"},
		h.required:                 {},
	} {
		code, stdout, stderr := call(t, path, args...)
		require.Equal(t, 2, code, "%s: %s", want, stderr)
		require.Empty(t, stdout, want)
		require.Contains(t, stderr, want)
		require.True(t, strings.HasPrefix(stderr, h.name+": "), stderr)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// manifests are what "kubectl apply" takes, with one Deployment that has no privileges.
func (h habit) manifests(t *testing.T, path string, kubernetes *kubetest.Cluster) {
	t.Helper()
	const image = "registry.example.com/own:1.2.3"
	code, stdout, stderr := call(t, path, append([]string{"manifests", "--image", image}, h.needed...)...)
	require.Zero(t, code, stderr)
	require.NoError(t, kubernetes.Apply(t.Context(), stdout))
	var deployments []appsv1.Deployment
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(stdout, -1) {
		var d appsv1.Deployment
		if yaml.Unmarshal([]byte(document), &d) == nil && d.Kind == "Deployment" {
			deployments = append(deployments, d)
		}
	}
	require.Len(t, deployments, 1)
	pod := deployments[0].Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	require.Equal(t, image, c.Image)
	require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, "RuntimeDefault", string(pod.SecurityContext.SeccompProfile.Type))
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, "ALL", string(c.SecurityContext.Capabilities.Drop[0]))
	require.False(t, c.Resources.Requests.Memory().IsZero())
	require.False(t, c.Resources.Limits.Memory().IsZero())
	require.Equal(t, deployments[0].Spec.Selector.MatchLabels["app.kubernetes.io/name"], deployments[0].Labels["app.kubernetes.io/name"])
	require.NotEmpty(t, deployments[0].Labels["app.kubernetes.io/name"])
}

func (h habit) serves(t *testing.T, path, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(sesame), 0o600))
	args, env := inDir(h.args, dir), inDir(h.env, dir)
	if !h.alone {
		args = append(args, "--kubeconfig", kubeconfig)
	}
	children := process.NewGroup(dir)
	defer children.Close()
	p, err := children.Run(h.name, path, env, args...)
	require.NoError(t, err)
	addresses := map[string]string{}
	await.Eventually(t, p.Tail(), func() bool {
		for _, line := range logged(t, p) {
			if line["msg"] == "listening" {
				purpose, _ := line["for"].(string)
				addresses[purpose], _ = line["address"].(string)
			}
		}
		return len(addresses) == max(1, len(h.listeners))
	})
	health, metrics := addresses[""], addresses[""]
	if h.listeners != nil {
		health, metrics = addresses[h.listeners[0]], addresses[h.listeners[1]]
	}

	status, body := get(t, "http://"+health+"/healthz")
	require.Equal(t, http.StatusOK, status, body)
	await.Eventually(t, `status == http.StatusOK || status == http.StatusServiceUnavailable && strings.Contains(body, ": ")`, func() bool {
		status, body = get(t, "http://"+health+"/readyz")
		return status == http.StatusOK || status == http.StatusServiceUnavailable && strings.Contains(body, ": ")
	})
	status, body = get(t, "http://"+metrics+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		require.Contains(t, body, "\n"+name+" ")
	}
	status, _ = get(t, "http://"+metrics+"/no-such-path")
	require.Equal(t, http.StatusNotFound, status)

	require.NoError(t, p.Stop(time.Minute), p.Tail())
	for _, line := range logged(t, p) {
		for _, key := range []string{"time", "level", "msg"} {
			require.NotEmpty(t, line[key], line)
		}
	}
	log, err := os.ReadFile(p.Log)
	require.NoError(t, err)
	require.NotContains(t, string(log), sesame)
}

// logged is each line that the program wrote, which must be JSON.
func logged(t *testing.T, p *process.Process) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(p.Log)
	require.NoError(t, err)
	var all []map[string]any
	for line := range strings.Lines(string(data)) {
		var one map[string]any
		if strings.HasSuffix(line, "\n") { // else it is not written to its end
			require.NoError(t, json.Unmarshal([]byte(line), &one), line)
			all = append(all, one)
		}
	}
	return all
}

func inDir(list []string, dir string) []string {
	all := make([]string, 0, len(list)+2)
	for _, text := range list {
		all = append(all, strings.ReplaceAll(text, "DIR", dir))
	}
	return all
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}
