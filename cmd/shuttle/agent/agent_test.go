package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestAgent runs the agent against a real Kubernetes, each subtest as a cluster
// of its own with its own service account, and with RBAC on. Its Starbase is a stand-in that
// also answers what the control plane never does; what that answers is in cmd/e2e/clusters.
func TestAgent(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2, GatewayAPI: true})
	manifests, err := shuttle.Manifests{Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: clusterID, Region: "nyc3"}.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), manifests))
	for name, test := range map[string]func(*testing.T, *bench){
		"refuses a cut or inconsistent body whole":    refusesBadBodies,
		"reports a name that is taken":                reportsNameTaken,
		"reports what it has not applied and must go": unprovenObjects,
		"runs nothing that is not isolated":           isolatesFirst,
		"hands replicas to an autoscaler and back":    handsReplicasOver,
		"is woken by drift":                           wokenByDrift,
		"a standby takes over":                        standbyTakesOver,
		"names who changes an object back":            namesWhoFights,
		"leaves alone what is another cluster's":      leavesOthersAlone,
		"keeps a namespace for what others have":      keepsNamespace,
		"sizes the load balancer of the gateway":      sizesLoadBalancer,
		"reports a gateway that is missing":           missesGateway,
		"runs inside a Manager of controller-runtime": runsInAManager,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "is woken by drift" {
				t.Skip("long: one scenario of many")
			}
			t.Parallel()
			test(t, newBench(t, cluster))
		})
	}
}

// bench is one cluster id with its Starbase and its service account.
type bench struct {
	cluster  *kubetest.Cluster
	id       string
	slug     string // unique, so that namespaces are
	config   *rest.Config
	user     string
	starbase *fakeStarbase
	token    string // file
}

var benches struct {
	sync.Mutex
	n int
}

func newBench(t *testing.T, cluster *kubetest.Cluster) *bench {
	t.Helper()
	benches.Lock()
	benches.n++
	n := benches.n
	benches.Unlock()
	account := fmt.Sprintf("shuttle-%d", n)
	b := &bench{cluster: cluster, id: uuid(900 + n), slug: fmt.Sprintf("t%d", n), user: "system:serviceaccount:starform-system:" + account}
	b.kubectl(t, "create", "serviceaccount", "-n", "starform-system", account)
	b.kubectl(t, "create", "rolebinding", "-n", "starform-system", account, "--role=shuttle", "--serviceaccount=starform-system:"+account)
	b.kubectl(t, "create", "clusterrolebinding", account, "--clusterrole=shuttle", "--serviceaccount=starform-system:"+account)
	var err error
	b.config, _, err = cluster.ServiceAccount(t.Context(), "starform-system", account)
	require.NoError(t, err)
	b.starbase = newFakeStarbase(t, b.id)
	b.token = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(b.token, []byte("token-1"), 0o600))
	return b
}

func (b *bench) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

func (b *bench) project() starbase.Project {
	return project(1, b.slug)
}

// agent is one running agent.
type agent struct {
	stop    func()
	address string
	log     *logtest.Log
}

// environment returns the environment of an agent; settings are more variables, NAME=value.
func (b *bench) environment(settings ...string) func(string) string {
	env := map[string]string{
		"STARFORM_STARBASE_URL": b.starbase.URL, "STARFORM_CLUSTER_ID": b.id, "STARFORM_REGION": "nyc3",
		"STARFORM_AUTH_TOKEN_FILE": b.token, "STARFORM_METRICS_ADDR": "127.0.0.1:0", "STARFORM_RECONCILE_INTERVAL": "1s",
	}
	for _, setting := range settings {
		variable, value, _ := strings.Cut(setting, "=")
		env[variable] = value
	}
	return func(name string) string { return env[name] }
}

// start starts an agent; settings are more environment variables, NAME=value.
func (b *bench) start(t *testing.T, settings ...string) *agent {
	t.Helper()
	config, err := shuttle.ReadConfig(b.environment(settings...))
	require.NoError(t, err)
	a := &agent{log: &logtest.Log{}}
	listening := make(chan string, 1)
	program := shuttle.Agent{
		Config: config, Kubernetes: b.config, Logger: slog.New(slog.NewJSONHandler(a.log, nil)),
		OnListen: func(address net.Addr) { listening <- address.String() },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- program.Start(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(20 * time.Second):
			t.Error("the agent did not stop within 20 s")
		}
		if t.Failed() {
			t.Log(a.log.String())
		}
	})
	t.Cleanup(a.stop)
	a.address = <-listening
	return a
}

func (a *agent) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.address+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(body)
}

// healthy waits until n services are reported healthy to starbase.
func (b *bench) healthy(t *testing.T, n int) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("%d services are healthy", n), func() bool { return b.starbase.healthy() == n }, func() string {
		// The cluster may be to blame.
		everything, _ := b.cluster.Kubectl(t.Context(), "get", "-o", "wide", "-n", b.project().Namespace, "pods,deployments,replicasets,events")
		return fmt.Sprintf("%+v\n%s", b.starbase.all(), everything)
	})
}

// writes returns what the agent has sent to the API server other than reads, and other than
// the generation that it saves once for each state that it accepts.
func (b *bench) writes(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, r := range b.written(t) {
		if !strings.HasPrefix(r.Name, "shuttle-generation-") {
			found = append(found, r.String())
		}
	}
	return found
}

func (b *bench) written(t *testing.T) []kubetest.Request {
	t.Helper()
	all, err := b.cluster.Requests(b.user)
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(r kubetest.Request) bool { return slices.Contains([]string{"list", "watch", "get"}, r.Verb) })
}

// passes waits until the agent has asked starbase n more times, and so swept.
func (b *bench) passes(t *testing.T, n int) {
	t.Helper()
	from := b.starbase.pulls()
	await.Eventually(t, "the agent asks again", func() bool { return b.starbase.pulls() >= from+n })
}

// fakeStarbase serves whatever a test wants to be served.
type fakeStarbase struct {
	*httptest.Server
	cluster string

	mu       sync.Mutex
	answer   http.HandlerFunc
	asked    int
	statuses map[starbase.Identity]starbase.ServiceStatus
	settled  int64 // the generation of the last report, if it was complete
	posts    map[string]int
	reports  int
	problem  [2]string // of the cluster by the last report: class and message
}

func newFakeStarbase(t *testing.T, cluster string) *fakeStarbase {
	t.Helper()
	f := &fakeStarbase{cluster: cluster}
	f.fail(http.StatusServiceUnavailable)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/clusters/"+cluster+"/desired-state", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked++
		answer := f.answer
		f.mu.Unlock()
		answer(w, r)
	})
	mux.HandleFunc("POST /api/v1/clusters/"+cluster+"/status", func(w http.ResponseWriter, r *http.Request) {
		var report starbase.StatusReport
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil || len(report.Validate()) > 0 {
			t.Errorf("status report: %v, %v", err, report.Validate())
		}
		statuses := map[starbase.Identity]starbase.ServiceStatus{}
		for _, s := range report.Services {
			statuses[s.Identity()] = s
		}
		f.mu.Lock()
		f.reports++
		f.statuses, f.settled, f.problem = statuses, 0, [2]string{report.ClusterErrorClass, report.ClusterMessage}
		if report.Complete {
			f.settled = report.Generation
		}
		f.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	f.posts = map[string]int{}
	for _, path := range []string{"snapshots", "capacity"} {
		mux.HandleFunc("POST /api/v1/clusters/"+cluster+"/"+path, func(w http.ResponseWriter, _ *http.Request) {
			f.mu.Lock()
			f.posts[path]++
			f.mu.Unlock()
			w.WriteHeader(http.StatusNoContent)
		})
	}
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

// clusterProblem returns the class and message of the last report about the cluster, and
// how many reports there were.
func (f *fakeStarbase) clusterProblem() (class, message string, reports int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem[0], f.problem[1], f.reports
}

func (f *fakeStarbase) set(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// fail answers with a status; 0 breaks the connection.
func (f *fakeStarbase) fail(status int) {
	f.set(func(w http.ResponseWriter, _ *http.Request) {
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
	})
}

// serve answers with a state, and with 304 as long as the agent has it.
func (f *fakeStarbase) serve(t *testing.T, s *starbase.DesiredState) []byte {
	t.Helper()
	body, answer := f.answers(t, s)
	f.set(answer)
	return body
}

func (f *fakeStarbase) answers(t *testing.T, s *starbase.DesiredState) (body []byte, answer http.HandlerFunc) {
	t.Helper()
	s.ClusterID = f.cluster
	require.NoError(t, s.Seal())
	body, err := json.Marshal(s)
	require.NoError(t, err)
	return body, func(w http.ResponseWriter, r *http.Request) {
		etag := `"` + s.Version + `"`
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", etag)
		w.Write(body) //nolint:errcheck,gosec // the agent may have gone
	}
}

// serveRaw answers with a body, whatever it is.
func (f *fakeStarbase) serveRaw(body []byte) {
	f.set(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(body) //nolint:errcheck,gosec // the agent may have gone
	})
}

// received returns how many times a path was posted to.
func (f *fakeStarbase) received(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.posts[path]
}

func (f *fakeStarbase) pulls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// healthy returns how many services the agent has called healthy.
func (f *fakeStarbase) healthy() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.statuses {
		if s.Phase == starbase.PhaseHealthy {
			n++
		}
	}
	return n
}

func (f *fakeStarbase) all() []starbase.ServiceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.statuses))
}

func (f *fakeStarbase) status(id starbase.Identity) starbase.ServiceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statuses[id]
}

// complete reports whether the last report was a complete one of that generation.
func (f *fakeStarbase) complete(generation int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled == generation
}
