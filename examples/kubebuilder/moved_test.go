package kubebuilder_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const (
	mainFile, controllerFile = "cmd/main.go", "internal/controller/site_controller.go"
	testFile, roleFile       = "internal/controller/site_controller_test.go", "config/rbac/role.yaml"
	childrenFile             = "internal/controller/site_children.go"
)

// step is a state of the project while it is moved over: it has some files of testdata/before, and
// lacks some new ones.
type step struct {
	name            string
	before, without []string
	// lacks are the requests that the role does not allow.
	lacks []string
}

var steps = []step{
	{name: "before", before: []string{mainFile, controllerFile, testFile, roleFile}, without: []string{childrenFile}},
	{name: "children", before: []string{mainFile, controllerFile, testFile, roleFile}},
	{name: "one call", before: []string{roleFile}, lacks: []string{"create events", "list pods"}},
	{name: "rights"},
}

// Each step compiles, passes the tests of the project with envtest, and runs with the identity and
// the rights that its config ships, on one Kubernetes with one Site.
func TestAProjectIsMovedOver(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own, and four programs")
	}
	t.Parallel()
	s := &site{T: t, cluster: kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2})}
	var uids string
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			s := &site{T: t, cluster: s.cluster}
			overlay := step.overlay(t)
			s.envtest(overlay)
			s.install(step)
			from := len(s.requests())
			path := s.build(overlay)
			built, err := os.Stat(path)
			require.NoError(t, err)
			fmt.Printf("figure kubebuilder_size_%s %.1f MB\n", strings.ReplaceAll(step.name, " ", "_"), float64(built.Size())/1e6)
			s.start(t, path)
			s.follows(step)
			have := s.kubectl("get", "deployment,configmap", "home", "-o", "jsonpath={.items[*].metadata.uid}")
			require.Contains(t, []string{"", have}, uids, "the children stay")
			uids = have
			if step.name == steps[len(steps)-1].name {
				s.kubectl("delete", "site", "home", "--timeout=2m")
				s.becomes("", "get", "deployment,configmap", "home", "--ignore-not-found")
			}
			var refused []string
			for _, r := range s.requests()[from:] {
				if r.Code == http.StatusForbidden {
					refused = append(refused, r.Verb+" "+r.Resource)
				}
			}
			slices.Sort(refused)
			require.Equal(t, step.lacks, slices.Compact(refused))
		})
	}
}

// overlay is what the go command reads in place of files, as its flag -overlay has it.
func (s step) overlay(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	replace := map[string]string{}
	for _, name := range s.before {
		if strings.HasSuffix(name, ".go") {
			replace[filepath.Join(here, name)] = filepath.Join(here, "testdata", "before", name)
		}
	}
	for _, name := range s.without {
		replace[filepath.Join(here, name)] = ""
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// site is a Kubernetes as a user of Sites sees it.
type site struct {
	*testing.T

	cluster *kubetest.Cluster
	program *process.Process
	probes  string // address of /readyz
}

// envtest runs the tests of the project.
func (s *site) envtest(overlay string) {
	s.Helper()
	assets, err := kubetest.BuildAssets(s.Context(), io.Discard)
	require.NoError(s, err)
	cmd := exec.CommandContext(s.Context(), "go", "test", "-count=1", "-v", "-overlay", overlay, "./internal/controller")
	// A server is given 20 seconds by default, which are few beside other tests.
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets,
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=5m")
	out, err := cmd.CombinedOutput()
	require.NoError(s, err, "%s", out)
	require.Contains(s, string(out), "--- PASS: TestASiteHasItsChildren")
}

// build builds the program with the name that the Dockerfile of a project gives it: the field
// manager of its writes. It has the flags of other builds here: with others, all that it imports
// would be compiled once more.
func (s *site) build(overlay string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "manager")
	args := []string{"build", "-ldflags", "-s -w", "-overlay", overlay, "-o", path, "./cmd"}
	out, err := exec.CommandContext(s.Context(), "go", args...).CombinedOutput()
	require.NoError(s, err, "%s", out)
	return path
}

// install applies config/default with the role of the step.
func (s *site) install(step step) {
	s.Helper()
	config := filepath.Join(s.TempDir(), "config")
	require.NoError(s, os.CopyFS(config, os.DirFS("config")))
	if slices.Contains(step.before, roleFile) {
		role, err := os.ReadFile(filepath.Join("testdata", "before", roleFile))
		require.NoError(s, err)
		require.NoError(s, os.WriteFile(filepath.Join(filepath.Dir(config), roleFile), role, 0o600))
	}
	s.kubectl("apply", "--server-side", "--kustomize", filepath.Join(config, "default"))
	s.kubectl("wait", "--for=condition=Established", "crd/sites.web.example.com", "--timeout=300s")
	sample, err := os.ReadFile("config/samples/web_v1_site.yaml")
	require.NoError(s, err)
	require.NoError(s, s.cluster.Apply(s.Context(), string(sample)))
}

const account = "sites-controller-manager"

// start runs the program with the identity of the ServiceAccount until the end of a test.
func (s *site) start(t *testing.T, path string) {
	s.Helper()
	_, kubeconfig, err := s.cluster.ServiceAccount(s.Context(), "sites-system", account)
	require.NoError(s, err)
	listener, err := (&net.ListenConfig{}).Listen(s.Context(), "tcp", "127.0.0.1:0")
	require.NoError(s, err)
	s.probes = listener.Addr().String()
	require.NoError(s, listener.Close())
	var stop func() error
	s.program, stop = programtest.Start(t, path, "--kubeconfig", kubeconfig, "--health-probe-bind-address", s.probes)
	t.Cleanup(func() { require.NoError(t, stop(), s.program.Tail()) })
}

// requests returns what the program has sent to the API server.
func (s *site) requests() []kubetest.Request {
	s.Helper()
	all, err := s.cluster.Requests("system:serviceaccount:sites-system:" + account)
	require.NoError(s, err)
	return all
}

// follows changes the Site, and waits for its children and its status.
func (s *site) follows(step step) {
	s.Helper()
	s.change(`{"spec":{"page":%q,"replicas":2}}`, step.name)
	s.becomes(step.name, "get", "configmap", "home", "-o", `jsonpath={.data.index\.html}`)
	s.ready()
	s.kubectl("scale", "deployment", "home", "--replicas=7")
	s.becomes("2", "get", "deployment", "home", "-o", "jsonpath={.spec.replicas}")
	s.becomes("ok", "get", "--raw", "/readyz")
	s.readyz("ok")

	// While no pod starts, it is not ready.
	s.kubectl("cordon", "-l", "kubernetes.io/os=linux")
	s.change(`{"spec":{"image":"web:%s"}}`, strings.ReplaceAll(step.name, " ", "-"))
	s.becomes("False", "get", "site", "home", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	if len(step.lacks) > 0 {
		s.becomes("Forbidden", "get", "site", "home", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
	}
	s.kubectl("uncordon", "-l", "kubernetes.io/os=linux")
	s.ready()
}

func (s *site) change(format string, args ...any) {
	s.Helper()
	s.kubectl("patch", "site", "home", "--type=merge", "-p", fmt.Sprintf(format, args...))
}

// ready waits until the status of this generation is Ready.
func (s *site) ready() {
	s.Helper()
	generation := s.kubectl("get", "site", "home", "-o", "jsonpath={.metadata.generation}")
	s.becomes(generation+" True", "get", "site", "home", "-o",
		`jsonpath={.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status}`)
}

// readyz waits until the program says that it is ready.
func (s *site) readyz(want string) {
	s.Helper()
	var have string
	await.Eventually(s, "readyz is "+want, func() bool {
		request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.probes+"/readyz", http.NoBody)
		require.NoError(s, err)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			have = err.Error()
			return false
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		have = string(body)
		return err == nil && have == want
	}, func() string { return have }, s.program.Tail)
}

func (s *site) kubectl(args ...string) string {
	s.Helper()
	out, err := s.cluster.Kubectl(s.Context(), args...)
	require.NoError(s, err)
	return out
}

// becomes waits until kubectl prints what is wanted.
func (s *site) becomes(want string, args ...string) {
	s.Helper()
	var have string
	await.Until(s, 2*await.Moment, fmt.Sprint(args, " is ", want), func() bool {
		out, err := s.cluster.Kubectl(s.Context(), args...)
		if have = out; err != nil {
			have = err.Error()
		}
		return have == want
	}, func() string { return have }, func() string { return s.kubectl("get", "sites", "-o", "yaml") }, func() string {
		if s.program == nil {
			return ""
		}
		return s.program.Tail()
	})
}
