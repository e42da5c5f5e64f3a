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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
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
	// bases are the further kustomize bases below deploy, each with the flags of its manifests.
	bases map[string][]string
	// free are the settings that take any text, flags without dashes or variables.
	free []string
}

func habits(t *testing.T) []habit {
	t.Helper()
	return []habit{
		{
			name:     "agentjob",
			lease:    true,
			args:     []string{"--health-probe-bind-address", "127.0.0.1:0"},
			required: "Kubernetes",
			free:     []string{"RUST_LOG"}, // it is warned of
		},
		{
			name:     "application",
			lease:    true,
			args:     []string{"--health-probe-bind-address", "127.0.0.1:0"},
			required: "Kubernetes",
			needed:   []string{"--base-domain", "platform.company.dev"},
			free:     []string{"keycloak-admin-user"},
		},
		{
			name:      "controlplane",
			alone:     true,
			required:  "--admin-token-file",
			bases:     map[string][]string{"controlplane-postgresql": {"--database-secret", "trueup-controlplane-database"}},
			free:      []string{"database", "audit-log"}, // files that are made
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
			required: "KRANE_CLUSTER_REGION",
			needed:   []string{"--control-url", "https://control.example.com", "--region", "eu-central-1"},
			free:     []string{"instance-id", "state-dir", "registry-url", "registry-username"},
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
			needed:    []string{"--cluster-name", "example", "--region", "eu-central-1"},
			free:      []string{"local-directory"}, // a folder that is made
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
			needed: []string{
				"--starbase-url",
				"https://starbase.example.com",
				"--cluster-id",
				"00000000-0000-4000-8000-000000000000",
				"--region",
				"nyc3",
			},
			free: []string{"snapshot-wal-dir"},
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
			h.refuses(t, path)
			h.manifests(t, path, kubernetes)
			h.overlay(t, path, kubernetes)
			h.serves(t, path, kubernetes.Kubeconfig)
		})
	}
}

// TestTheReferenceIsUpToDate compares the pages below docs/reference with what the programs say of their settings, and
// with -update writes them; that is what "make generate" does.
func TestTheReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	names := []string{"agentjob", "application", "controlplane", "krane", "nodepool", "shuttle", "trueup"}
	dir := programs.Dir(t, names...)
	for _, name := range names {
		pages := t.TempDir()
		code, _, stderr := call(t, filepath.Join(dir, name), "man", "--markdown", pages)
		require.Zero(t, code, stderr)
		page, err := os.ReadFile(filepath.Join(pages, name+".md"))
		require.NoError(t, err)
		upToDate(t, "../../../docs/reference", map[string]string{name + ".md": string(page)})
	}
}

// call runs the program to its end, with nothing in its environment.
func call(t *testing.T, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return callWith(t, nil, path, args...)
}

func callWith(t *testing.T, env []string, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env, c.Dir, c.Stdout, c.Stderr = append([]string{"HOME=" + t.TempDir()}, env...), t.TempDir(), &out, &errs
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
	for _, flag := range []string{"--leader-elect", "--namespace "} {
		if h.lease {
			wanted = append(wanted, flag)
		} else {
			require.NotContains(t, stdout, flag)
		}
	}
	for _, want := range wanted {
		require.Contains(t, stdout, want)
	}
	for line := range strings.Lines(stdout) {
		flag := regexp.MustCompile(`^ +(?:-., )?--([a-z0-9-]+)`).FindStringSubmatch(line)
		if flag != nil && flag[1] != "help" && flag[1] != "version" {
			require.Regexp(t, `\[[A-Z][A-Z0-9_]+\]`, line, "a variable for each flag")
		}
	}
	code, version, stderr := call(t, path, "--version")
	require.Zero(t, code, stderr)
	_, same, _ := call(t, path, "version")
	require.Equal(t, same, version)
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
		"unknown flag: --wrong":                      {"--wrong"},
		`unknown command "more"`:                     {"more"},
		`unknown command "nonsense"`:                 {"completion", "nonsense"},
		`unknown command "fish"`:                     {"completion", "bash", "fish"},
		"completion: is called without a subcommand": {"completion"},
		`unknown command "topic"`:                    {"help", "topic"},
		`unknown command "too"`:                      {"manifests", "too"},
		"man: has 2 arguments":                       {"man", "a", "b"},
		`FOLDER: is "/none", must be a folder`:       {"man", "/none"},
		`--image: is "http://x", must be an image`:   {"manifests", "--image=http://x"},
		h.required: {},
	} {
		code, stdout, stderr := call(t, path, args...)
		require.Equal(t, 2, code, "%s: %s", want, stderr)
		require.Empty(t, stdout, want)
		require.Contains(t, stderr, want)
		require.True(t, strings.HasPrefix(stderr, h.name+": "), stderr)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// flagLine is the line of a flag in the help, with the name and, if it has one, the variable.
var flagLine = regexp.MustCompile(`^ +(?:-., )?--([a-z0-9-]+).*?(?:\[([A-Z][A-Z0-9_]+)\])?\n$`)

// refuses gives each setting a wrong value, by its flag and by its variable: an error has the
// name that was used and the value.
func (h habit) refuses(t *testing.T, path string) {
	t.Helper()
	const nonsense = "!nonsense!"
	refused := func(name string, env []string, args ...string) {
		t.Helper()
		code, stdout, stderr := callWith(t, env, path, args...)
		require.Equal(t, 2, code, "%s: %s", name, stderr)
		require.Empty(t, stdout, name)
		require.Regexp(t, `(^|[^A-Za-z-])`+name+`\b`, stderr)
		require.Regexp(t, nonsense+`|is "\(hidden\)"`, stderr, name)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
	for _, setting := range settingsOf(t, path) {
		flag, variable, usage := setting[0], setting[1], setting[2]
		if variable == "" || slices.Contains(h.free, flag) {
			continue
		}
		args, env := h.beside(t, flag)
		refused("--"+flag, env, append(args, "--"+flag+"="+nonsense)...)
		if flag != "metrics-bind-address" && strings.Contains(usage, "(default ") {
			// It has no meaning without a value.
			code, _, stderr := callWith(t, env, path, append(args, "--"+flag+"=")...)
			require.Equal(t, 2, code, stderr)
			require.Contains(t, stderr, "--"+flag+`: is "", must be`)
		}
		if !slices.Contains(h.free, variable) {
			refused(variable, append(env[:len(env):len(env)], variable+"="+nonsense), args...)
		}
	}
	for _, setting := range settingsOf(t, path, "manifests") {
		flag, usage := setting[0], setting[2]
		if flag == "help" {
			continue
		}
		refused("--"+flag, nil, slices.Concat([]string{"manifests"}, h.needed, []string{"--" + flag + "=" + nonsense})...)
		if strings.Contains(usage, "(default ") { // it has no meaning without a value
			code, stdout, stderr := call(t, path, slices.Concat([]string{"manifests"}, h.needed, []string{"--" + flag + "="})...)
			require.Equal(t, 2, code, "%s: %s", flag, stderr)
			require.Empty(t, stdout, flag)
			require.Contains(t, stderr, "--"+flag)
		}
	}
	for n := 0; n < len(h.needed); n += 2 {
		code, stdout, stderr := call(t, path, slices.Concat([]string{"manifests"}, h.needed[:n], h.needed[n+2:])...)
		require.Equal(t, 2, code, stderr)
		require.Empty(t, stdout)
		require.Regexp(t, h.needed[n]+`\)?: is not set, must be`, stderr)
	}
}

// settingsOf returns the flag, the variable and the line of help of each setting of the command.
func settingsOf(t *testing.T, path string, command ...string) (all [][3]string) {
	t.Helper()
	_, stdout, _ := call(t, path, append(command, "--help")...)
	for line := range strings.Lines(stdout) {
		if found := flagLine.FindStringSubmatch(line); found != nil {
			all = append(all, [3]string{found[1], found[2], line})
		}
	}
	require.NotEmpty(t, all)
	return all
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
	var versions []any
	for _, line := range logged(t, p) {
		if line["msg"] == "starting" {
			versions = append(versions, line["version"])
		}
		for _, key := range []string{"time", "level", "msg"} {
			require.NotEmpty(t, line[key], line)
		}
	}
	require.Len(t, versions, 1)
	require.Contains(t, versions[0], "go1.")
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
