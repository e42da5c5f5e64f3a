package clusters_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// bench is a cluster of the control plane: replicas on a database of their own, a link
// with faults, and agents in the Kubernetes that all of them share.
type bench struct {
	t testing.TB
	cell
	name   string // the slug of its projects begins so
	id     string // of the cluster
	source string // of the database
	keys   *controlplanetest.Keys
	// A connection of an agent goes through the proxy to the balancer to a replica.
	proxy    *toxiproxy.Proxy
	balancer *controlplanetest.Balancer
	replicas []*controlplanetest.Plane
	link     *link
	token    string // file that the agents read theirs from
	log      *logtest.Log
	agents   []*agent

	mu    sync.Mutex
	store *controlplanetest.Clusters // the bench's own access to the database
	wrong []string
	// pulled is how many questions for the desired state had been answered at each
	// deletion.
	pulled []int

	// freed are objects from which the label managed-by was removed manually. Without it the
	// agent must not delete them (C10), and it restores the label only on desired objects.
	freed map[types.UID]bool
}

// uuid returns the UUID of a name.
func uuid(name string) string {
	sum := sha256.Sum256([]byte(name))
	digits := hex.EncodeToString(sum[:16])
	return digits[:8] + "-" + digits[8:12] + "-4" + digits[13:16] + "-8" + digits[17:20] + "-" + digits[20:]
}

const mainProject = "main"

func newBench(tb testing.TB, in cell, name, source string) *bench {
	tb.Helper()
	keys, err := controlplanetest.ParseKeys("one " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)) + "\n")
	require.NoError(tb, err)
	b := &bench{
		t: tb, cell: in, name: name, id: uuid("cluster " + name), keys: keys, link: &link{},
		balancer: controlplanetest.StartBalancer(tb), token: filepath.Join(tb.TempDir(), "token"), log: &logtest.Log{},
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(b.log.String())
		}
	})
	b.open(source)
	tb.Cleanup(func() { require.NoError(tb, b.desired().Database.Close()) })
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	b.proxy = toxiproxy.NewProxy(proxies, "starbase", "127.0.0.1:0", b.balancer.Address())
	require.NoError(tb, b.proxy.Start())
	tb.Cleanup(b.proxy.Stop)
	b.replica()
	var registered struct{ Token string }
	b.admin(http.MethodPut, "clusters/"+b.id, map[string]any{"region": "nyc3"}, &registered)
	b.useToken(registered.Token)
	b.project(mainProject, nil)
	return b
}

func (b *bench) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: level}))
}

// open gives the bench access to a database.
func (b *bench) open(source string) {
	b.t.Helper()
	database := controlplanetest.Open(b.t, source)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.store = source, &controlplanetest.Clusters{Database: database, Keys: b.keys}
}

// desired is the bench's own access to what the control plane stores.
func (b *bench) desired() *controlplanetest.Clusters {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.store
}

// replica starts one more replica of the control plane.
func (b *bench) replica() {
	b.t.Helper()
	p := controlplanetest.Start(
		b.t,
		controlplanetest.Options{Source: b.source, Keys: b.keys, Wrap: b.link.wrap, Logger: b.logger(slog.LevelWarn)},
	)
	b.replicas = append(b.replicas, p)
	b.balancer.Add(p.Address)
}

// kill ends the oldest replica: its connections break at once.
func (b *bench) kill() {
	b.t.Helper()
	p := b.replicas[0]
	b.replicas = b.replicas[1:]
	b.balancer.Remove(p.Address)
	p.Stop()
}

func (b *bench) useToken(token string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.token, []byte(token+"\n"), 0o600))
}

// admin sends a request to the admin API, again until a replica has carried it out, and
// decodes the answer into into unless that is nil.
func (b *bench) admin(method, path string, body, into any) {
	b.t.Helper()
	await.Eventually(b.t, method+" "+path, func() bool {
		status, content := b.try(method, path, body)
		if status == 0 || status >= http.StatusInternalServerError {
			return false
		}
		require.Less(b.t, status, http.StatusBadRequest, "%s %s: %s", method, path, content)
		if into != nil {
			require.NoError(b.t, json.Unmarshal(content, into))
		}
		return true
	})
}

// try sends a request to the admin API once. The status is 0 without an answer.
func (b *bench) try(method, path string, body any) (status int, content []byte) {
	b.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(b.t, err)
	request, err := http.NewRequestWithContext(
		b.t.Context(),
		method,
		"http://"+b.balancer.Address()+"/api/v1/admin/"+path,
		bytes.NewReader(text),
	)
	require.NoError(b.t, err)
	request.Header.Set("Authorization", "Bearer "+controlplanetest.AdminToken)
	request.Header.Set("Content-Type", "application/json")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if content, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, content
}

// spec is the body of a request to the admin API.
type spec = map[string]any

// project puts a project; its namespace is [bench.namespace].
func (b *bench) project(name string, more spec) {
	b.t.Helper()
	body := spec{"cluster_id": b.id, "workspace_id": uuid("workspace"), "workspace_slug": "acme", "slug": b.name + "-" + name}
	maps.Copy(body, more)
	b.admin(http.MethodPut, "projects/"+b.projectID(name), body, nil)
}

// projectID differs from bench to bench, since the names of routes have it.
func (b *bench) projectID(name string) string { return uuid(b.name + " project " + name) }

func (b *bench) namespace() string { return "proj-" + b.name + "-" + mainProject }

// identity returns the identity of a service of the main project.
func (b *bench) identity(name, environment string) starbase.Identity {
	return starbase.Identity{ProjectID: b.projectID(mainProject), Environment: environment, ServiceID: uuid("service " + name)}
}

const production = "production"

// put puts services of the main project, in production, that run one pod of the image
// example.com/<name>:1 unless more says otherwise.
func (b *bench) put(more spec, names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.putIn(mainProject, production, name, more)
	}
}

func (b *bench) putIn(project, environment, name string, more spec) {
	b.t.Helper()
	body := spec{
		"service_name": name, "tier": "nova", "image": "example.com/" + name + ":1", "replicas": 1,
		"ports": []spec{{"container_port": 8080}}, "env": spec{"GREETING": "hello"},
	}
	maps.Copy(body, more)
	b.admin(http.MethodPut, b.path(project, environment, name), body, nil)
}

func (b *bench) path(project, environment, name string) string {
	return "projects/" + b.projectID(project) + "/services/" + uuid("service "+name) + "/" + environment
}

// remove makes tombstones of services of the main project in production.
func (b *bench) remove(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.admin(http.MethodDelete, b.path(mainProject, production, name), nil, nil)
	}
}

// byHand changes the database behind the control plane's back, and raises the generation
// of the cluster as a change through its API would.
func (b *bench) byHand(statements ...string) {
	b.t.Helper()
	statements = append(
		statements,
		"UPDATE clusters SET generation = generation + 1, nonce = 'by hand "+time.Now().Format(time.RFC3339Nano)+"' WHERE id = '"+b.id+"'",
	)
	require.NoError(b.t, b.desired().Database.Write(b.t.Context(), func(tx *controlplanetest.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(b.t.Context(), statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	}))
}

// services returns where each service stands.
func (b *bench) services() map[starbase.Identity]controlplanetest.ServiceState {
	b.t.Helper()
	_, list, err := b.desired().Cluster(b.t.Context(), b.id)
	require.NoError(b.t, err)
	found := make(map[starbase.Identity]controlplanetest.ServiceState, len(list))
	for i := range list {
		found[list[i].Identity()] = list[i]
	}
	return found
}

// stands returns where a service of the main project in production stands.
func (b *bench) stands(name string) controlplanetest.ServiceState {
	b.t.Helper()
	return b.services()[b.identity(name, production)]
}

// heldDeletions waits until the agent has reported what it holds for an approval.
func (b *bench) heldDeletions() *starbase.HeldDeletions {
	b.t.Helper()
	var held *starbase.HeldDeletions
	await.Eventually(b.t, "the held deletions are reported", func() bool {
		cluster, _, err := b.desired().Cluster(b.t.Context(), b.id)
		require.NoError(b.t, err)
		held = cluster.HeldDeletions
		return held != nil
	})
	return held
}

// approve approves held deletions, and returns the status of the answer.
func (b *bench) approve(digest string) int {
	b.t.Helper()
	status := 0
	await.Eventually(b.t, "the approval is answered", func() bool {
		status, _ = b.try(http.MethodPost, "clusters/"+b.id+"/allow-mass-delete", spec{"digest": digest})
		return status > 0 && status < http.StatusInternalServerError
	})
	return status
}

// generation is the one of the database.
func (b *bench) generation() float64 {
	b.t.Helper()
	cluster, _, err := b.desired().Cluster(b.t.Context(), b.id)
	require.NoError(b.t, err)
	return float64(cluster.Generation)
}

// healthy waits until so many services, and no others, run as wanted, as far as the
// control plane knows.
func (b *bench) healthy(n int) {
	b.t.Helper()
	await.Eventually(b.t, fmt.Sprintf("%d services are healthy", n), func() bool {
		found := 0
		for _, s := range b.services() {
			switch s.Standing {
			case controlplanetest.Standing(starbase.PhaseHealthy):
				found++
			case controlplanetest.StandingDeleted:
			default:
				return false
			}
		}
		return found == n
	})
}

// pulls waits until the agents have got n more answers to the question for the desired
// state, one of which was asked after now.
func (b *bench) pulls(n int) {
	b.t.Helper()
	from := b.link.pulls()
	await.Eventually(b.t, "the agent asks again", func() bool { return b.link.pulls() > from+n })
}

// done counts what a cluster has seen so far of all that does not happen at rest.
type done struct{ Statuses, Writes, Lines, Entries int }

func (b *bench) done() (d done) {
	b.t.Helper()
	// Where snapshots are taken every few seconds, a watch is silent after a few, and the API
	// server sends a bookmark a minute.
	log := b.log.String()
	d.Statuses, d.Lines = len(b.link.to("status")), strings.Count(log, "\n")-strings.Count(log, "the watch is silent")
	for _, a := range b.agents {
		d.Writes += len(a.net.Writes())
	}
	require.NoError(b.t, b.desired().Database.Read(b.t.Context(), func(tx *controlplanetest.Tx) error {
		return tx.QueryRowContext(b.t.Context(), `SELECT count(*) FROM audit`).Scan(&d.Entries)
	}))
	return d
}

// rests waits until nothing is reported, written, logged or audited for ten passes of an
// agent, of which there may be several.
func (b *bench) rests() {
	b.t.Helper()
	running := slices.IndexFunc(b.agents, func(a *agent) bool { return a.runs })
	if running < 0 || len(b.replicas) == 0 {
		return
	}
	var before, after done
	await.Until(b.t, 2*await.Moment, "the cluster rests", func() bool {
		before = b.done()
		b.agents[running].passes(10)
		after = b.done()
		return before == after
	}, func() string { return fmt.Sprintf("%+v became %+v\n%s", before, after, lastLines(b.log.String(), 5)) })
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// stop stops all agents.
func (b *bench) stop() {
	for _, a := range b.agents {
		a.stop()
	}
}

// misjudged returns the wrong deletions so far.
func (b *bench) misjudged() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

// names returns n names.
func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("web-%02d", i))
	}
	return list
}

// toxic holds a fault on the link to the control plane while during runs.
func (b *bench) toxic(proxy *toxiproxy.Proxy, kind, attributes string, during func()) {
	b.t.Helper()
	for _, direction := range []string{"upstream", "downstream"} {
		body := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"toxicity":1,"attributes":%s}`, kind+direction, kind, direction, attributes)
		_, err := proxy.Toxics.AddToxicJson(strings.NewReader(body))
		require.NoError(b.t, err)
	}
	during()
	proxy.Toxics.ResetToxics(b.t.Context())
}
