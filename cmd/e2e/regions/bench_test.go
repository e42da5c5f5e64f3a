package regions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// bench is a region: a control plane on a database of its own, a link with faults,
// and agents in the Kubernetes that all regions share.
type bench struct {
	t testing.TB
	cell
	name   string // of the region and of the namespace
	id     string // of the region
	region string // the path of the region in the admin API
	// source is the database that the replicas run on.
	source   string
	balancer *controlplanetest.Balancer
	replicas []*controlplanetest.Plane
	proxy    *toxiproxy.Proxy
	// token is the file that the agents read theirs from.
	token   string
	logger  *slog.Logger
	workers []*worker
	// fault, if set, decides whether the request gets no answer.
	fault atomic.Pointer[func(*http.Request) bool]
	// reports and lines count what the agents report, and what all programs log.
	reports, lines counter

	mu    sync.Mutex
	store *controlplanetest.Regions // the bench's own access to the database
	wrong []string
	// again is since when a deployment that was archived is wanted again, zero: not yet.
	again map[string]time.Time
}

const (
	bearer = "the-shared-bearer-of-the-fleet"
	// bookmarks is the time between two messages of a stream at rest.
	bookmarks = 300 * time.Millisecond
)

// counter counts. As a writer it counts the writes.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(1)
	return len(p), nil
}

// cell is the Kubernetes that all regions share.
type cell struct {
	kube    *kubernetes.Clientset
	objects dynamic.Interface
	access  *rest.Config // of the agents' account
}

func newBench(tb testing.TB, in cell, name, source string) *bench {
	tb.Helper()
	b := &bench{
		again: map[string]time.Time{},
		t:     tb, cell: in, name: name, id: "reg_" + name, region: "regions/reg_" + name, source: source,
		balancer: controlplanetest.StartBalancer(tb), token: filepath.Join(tb.TempDir(), "token"),
	}
	b.logger = slog.New(slog.NewTextHandler(io.MultiWriter(tb.Output(), &b.lines), &slog.HandlerOptions{Level: slog.LevelInfo}))
	b.open(source)
	tb.Cleanup(func() { require.NoError(tb, b.store.Database.Close()) })
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	b.proxy = toxiproxy.NewProxy(proxies, "link", "127.0.0.1:0", b.balancer.Address())
	require.NoError(tb, b.proxy.Start())
	tb.Cleanup(b.proxy.Stop)
	b.replica()
	b.useToken(b.admin(http.MethodPut, b.region, map[string]any{"name": name, "platform": "test"}).Token)
	return b
}

// open gives the bench access to a database.
func (b *bench) open(source string) {
	b.t.Helper()
	database := controlplanetest.Open(b.t, source)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.store = source, &controlplanetest.Regions{Database: database}
}

// replica starts one more replica of the control plane.
func (b *bench) replica() {
	b.t.Helper()
	p := controlplanetest.Start(
		b.t,
		controlplanetest.Options{Source: b.source, Bearer: bearer, Heartbeat: bookmarks, Wrap: b.disturbed, Logger: b.logger},
	)
	b.replicas = append(b.replicas, p)
	b.balancer.Add(p.Address)
}

// disturbed breaks off the connections of requests that a scenario has chosen.
func (b *bench) disturbed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := b.fault.Load(); fault != nil && (*fault)(r) {
			panic(http.ErrAbortHandler)
		}
		if strings.Contains(r.URL.Path, "/Report") {
			b.reports.Add(1)
		}
		next.ServeHTTP(w, r)
	})
}

// kill ends the oldest replica: its connections break at once.
func (b *bench) kill() {
	b.t.Helper()
	p := b.replicas[0]
	b.replicas = b.replicas[1:]
	b.balancer.Remove(p.Address)
	p.Stop()
}

// streams returns how many streams of the region the replicas serve.
func (b *bench) streams() (open int) {
	for _, p := range b.replicas {
		open += p.Regions.Streams(b.name)
	}
	return open
}

func (b *bench) useToken(token string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.token, []byte(token+"\n"), 0o600))
}

// answer is what the admin API answers.
type answer struct {
	Token   string `json:"token"`
	Changed bool   `json:"changed"`
}

// admin sends a request to the admin API, again until a replica has carried it out.
func (b *bench) admin(method, path string, body any) (got answer) {
	b.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(b.t, err)
	await.Eventually(b.t, method+" "+path, func() bool {
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
			return false
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			return false
		}
		require.Less(b.t, response.StatusCode, http.StatusBadRequest, string(content))
		return json.Unmarshal(content, &got) == nil
	})
	return got
}

// want has the deployments run with the image of that tag.
func (b *bench) want(tag string, names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.mu.Lock()
		if at, archived := b.again["d_"+name]; archived && at.IsZero() {
			b.again["d_"+name] = time.Now()
		}
		b.mu.Unlock()
		b.admin(http.MethodPut, b.region+"/deployments/d_"+name, map[string]any{"desired_state": "running", "spec": map[string]any{
			"k8s_namespace": b.name, "k8s_name": name, "workspace_id": "ws_1", "project_id": "prj_1", "environment_id": "env_1", "app_id": "app_1",
			"image": image(tag), "cpu_millicores": "50", "memory_mib": "64", "port": 8080,
		}})
	}
}

func image(tag string) string { return "registry.example.com/web:" + tag }

// archive has the deployments go.
func (b *bench) archive(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.admin(http.MethodDelete, b.region+"/deployments/d_"+name, map[string]any{})
		b.mu.Lock()
		b.again["d_"+name] = time.Time{}
		b.mu.Unlock()
	}
}

// stored returns what the database has of the deployment.
func (b *bench) stored(name string) controlplanetest.Resource {
	b.t.Helper()
	return b.resource("deployments", name)
}

func (b *bench) resource(collection, name string) (found controlplanetest.Resource) {
	b.t.Helper()
	_, resources, err := b.desired().Resources(b.t.Context(), b.id)
	require.NoError(b.t, err)
	for _, r := range resources {
		if r.Collection == collection && r.Name == name {
			return r
		}
	}
	return found
}

// policies returns the sorted names of the region's policies, without the namespace's.
func (b *bench) policies() (names []string) {
	b.t.Helper()
	resource := schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"}
	list, err := b.objects.Resource(resource).Namespace(b.name).List(b.t.Context(), metav1.ListOptions{})
	require.NoError(b.t, err)
	for _, p := range list.Items {
		if p.GetDeletionTimestamp() == nil && !strings.HasPrefix(p.GetName(), "krane-egress-") {
			names = append(names, p.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// desired is the bench's own access to what the control plane stores.
func (b *bench) desired() *controlplanetest.Regions {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.store
}

// replicaSet returns the deployment's, nil when there is none or it is being deleted.
func (b *bench) replicaSet(name string) *appsv1.ReplicaSet {
	b.t.Helper()
	set, err := b.kube.AppsV1().ReplicaSets(b.name).Get(b.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	if set.DeletionTimestamp != nil {
		return nil
	}
	return set
}

// runs reports whether the deployments are in Kubernetes with the image of that tag,
// and reported as running.
func (b *bench) runs(tag string, names ...string) bool {
	b.t.Helper()
	for _, name := range names {
		set := b.replicaSet(name)
		if set == nil || set.Spec.Template.Spec.Containers[0].Image != image(tag) {
			return false
		}
		if instances := b.stored(name).Instances; len(instances) != 1 || instances[0].Status != "running" {
			return false
		}
	}
	return true
}

// gone reports whether the deployments are not in Kubernetes, and no instance of them
// is reported.
func (b *bench) gone(names ...string) bool {
	b.t.Helper()
	policies := b.policies()
	for _, name := range names {
		if b.replicaSet(name) != nil || slices.Contains(policies, name+"-frontline-ingress") || len(b.stored(name).Instances) > 0 {
			return false
		}
	}
	return true
}

func (b *bench) running(tag string, names ...string) {
	b.t.Helper()
	await.Eventually(b.t, strings.Join(names, ", ")+" run "+tag, func() bool { return b.runs(tag, names...) })
}

// beats waits for some heartbeats that the control plane has stored, as a measure of
// an agent's time.
func (b *bench) beats() {
	b.t.Helper()
	var last time.Time
	seen := -1
	await.Eventually(b.t, "heartbeats come", func() bool {
		region, err := b.desired().Region(b.t.Context(), b.id)
		require.NoError(b.t, err)
		if !region.HeartbeatAt.Equal(last) {
			last = region.HeartbeatAt
			seen++
		}
		return seen >= 10
	})
}

// toxic holds a fault on the link while during runs.
func (b *bench) toxic(kind, attributes string, during func()) {
	b.t.Helper()
	for _, direction := range []string{"upstream", "downstream"} {
		body := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"toxicity":1,"attributes":%s}`, kind+direction, kind, direction, attributes)
		_, err := b.proxy.Toxics.AddToxicJson(strings.NewReader(body))
		require.NoError(b.t, err)
	}
	during()
	b.proxy.Toxics.ResetToxics(context.WithoutCancel(b.t.Context()))
}

// judge notes a deletion of what the control plane wants. It is asked before the
// deletion is sent.
func (b *bench) judge(r applytest.Request) applytest.Fault {
	if !strings.HasPrefix(r.Verb, "delete") {
		return applytest.Fault{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx := context.WithoutCancel(b.t.Context())
	region, err := b.store.RegionByName(ctx, b.name, "", "")
	var resources []controlplanetest.Resource
	if err == nil {
		_, resources, err = b.store.Resources(ctx, region.ID)
	}
	if err != nil {
		b.wrong = append(b.wrong, fmt.Sprintf("%v, while what is wanted is unknown: %v", r, err))
		return applytest.Fault{}
	}
	for _, wanted := range resources {
		if at := b.again[wanted.ID]; !at.IsZero() && time.Since(at) < unknown {
			continue
		}
		if wanted.DesiredState == "running" && belongs(r, wanted) {
			b.wrong = append(b.wrong, fmt.Sprintf("%v, while %s is wanted", r, wanted.ID))
		}
	}
	return applytest.Fault{}
}

// unknown is how long after a deployment is wanted again an agent may still send deletions that it decided
// before. Each has the UID of the object that was not wanted as its precondition.
const unknown = 2 * time.Second

// belongs reports whether the request is about an object of the resource.
func belongs(r applytest.Request, of controlplanetest.Resource) bool {
	switch {
	case r.Resource == "namespaces":
		return r.Name == of.Namespace
	case r.Namespace != of.Namespace:
		return false
	case r.Name == "": // all objects of a kind
		return true
	}
	return r.Name == of.Name || r.Name == of.Name+"-frontline-ingress" ||
		r.Name == "deploy-"+strings.ReplaceAll(strings.ToLower(of.ID), "_", "-")
}

// stop stops all agents.
func (b *bench) stop() {
	for _, w := range b.workers {
		w.stop()
	}
}

// misjudged returns the wrong deletions so far.
func (b *bench) misjudged() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

// worker is an agent.
type worker struct {
	b       *bench
	agent   agent.Agent
	net     *applytest.Transport // to Kubernetes, since the last start
	address string
	stop    func()
	runs    bool
}

// worker returns an agent that does not run yet.
func (b *bench) worker() *worker {
	b.t.Helper()
	base, err := url.Parse("http://" + b.proxy.Listen)
	require.NoError(b.t, err)
	w := &worker{b: b, stop: func() {}, net: &applytest.Transport{}, agent: agent.Agent{
		Config: config.Config{
			Cluster: config.Cluster{Region: b.name, Platform: "test"}, Control: config.Control{URL: base}, TokenFile: b.token,
			RuntimeClass: "gvisor", StorageClassName: "ebs-csi-gp3", MaxDeletePercent: 10,
		},
		Address: "127.0.0.1:0", Logger: b.logger,
		Periods: agent.Periods{
			// Lists that come by themselves would blur what causes what.
			Relist: time.Hour, Absence: time.Millisecond, Resync: 500 * time.Millisecond, Report: 500 * time.Millisecond,
			Heartbeat: 300 * time.Millisecond, Namespace: time.Hour, Pause: 200 * time.Millisecond, Silence: 10 * bookmarks,
			Retry: reconcile.Backoff{Min: 50 * time.Millisecond, Max: time.Second, Retries: 9},
		},
	}}
	b.workers = append(b.workers, w)
	b.t.Cleanup(func() { w.stop() })
	return w
}

// start starts the agent, again if it runs.
func (w *worker) start() {
	tb := w.b.t
	tb.Helper()
	w.stop()
	w.net = &applytest.Transport{Fault: w.b.judge}
	a := w.agent
	a.Kubernetes = rest.CopyConfig(w.b.access)
	a.Kubernetes.Wrap(w.net.Wrap)
	address := make(chan string, 1)
	a.OnListen = func(at net.Addr) { address <- at.String() }
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Start(ctx) }()
	var once sync.Once
	w.runs = true
	w.stop = func() {
		once.Do(func() {
			w.runs = false
			cancel()
			require.NoError(tb, <-done)
		})
	}
	select {
	case w.address = <-address:
	case err := <-done:
		require.NoError(tb, err)
	}
}

// metric returns the value of a metric whose line begins so, 0 if there is none.
func (w *worker) metric(prefix string) float64 {
	tb := w.b.t
	tb.Helper()
	_, text := w.ask("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "unkey_krane_"+prefix); ok {
			fields := strings.Fields(rest)
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(tb, err)
			return value
		}
	}
	return 0
}

func (w *worker) ask(path string) (status int, text string) {
	tb := w.b.t
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+w.address+path, http.NoBody)
	require.NoError(tb, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(tb, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return response.StatusCode, string(body)
}

// collections are what the agent has a stream of each for.
func collections() []string { return []string{"deployments", "sentinels", "policies"} }

// synced waits for n more proven lists of each collection while during runs.
func (w *worker) synced(n int, during func()) {
	w.b.t.Helper()
	w.counts("watcher_full_syncs_total{resource_type=%q}", n, during)
}

// refused waits until each stream was refused or ended for that reason while during
// runs, or after it.
func (w *worker) refused(status string, during func()) {
	w.b.t.Helper()
	w.counts(`stream_connections_total{resource_type=%q,status="`+status+`"}`, 1, during)
}

func (w *worker) counts(metric string, n int, during func()) {
	w.b.t.Helper()
	before := map[string]float64{}
	for _, collection := range collections() {
		before[collection] = w.metric(fmt.Sprintf(metric, collection))
	}
	during()
	for _, collection := range collections() {
		name := fmt.Sprintf(metric, collection)
		await.Eventually(w.b.t, name, func() bool { return w.metric(name) >= before[collection]+float64(n) })
	}
}

// deletes returns the names of the ReplicaSets that the agent has deleted since its
// start.
func (w *worker) deletes() (names []string) {
	for _, r := range w.net.Requests() {
		if strings.HasPrefix(r.Verb, "delete") {
			names = append(names, r.Name)
		}
	}
	return names
}

// done counts what a region has seen so far of all that does not happen at rest.
type done struct {
	Epoch                           uint64 // the last that was claimed
	Reports, Writes, Lines, Entries int64
}

func (b *bench) done() (d done) {
	b.t.Helper()
	store := b.desired()
	region, err := store.Region(b.t.Context(), b.id)
	require.NoError(b.t, err)
	d = done{Epoch: region.AgentEpoch, Reports: b.reports.Load(), Lines: b.lines.Load()}
	for _, w := range b.workers {
		d.Writes += int64(len(w.net.Writes()))
		if w.agent.Periods.Inventory != 0 {
			d.Reports = 0 // the scenario has what holds reported again and again
		}
	}
	require.NoError(b.t, store.Database.Read(b.t.Context(), func(tx *controlplanetest.Tx) error {
		return tx.QueryRowContext(b.t.Context(), `SELECT count(*) FROM audit`).Scan(&d.Entries)
	}))
	return d
}

// rests waits until nothing is claimed, reported, written, logged or audited for ten
// heartbeats of the agents, of which there may be several.
func (b *bench) rests() {
	b.t.Helper()
	if !slices.ContainsFunc(b.workers, func(w *worker) bool { return w.runs }) || len(b.replicas) == 0 {
		return
	}
	var before, after done
	await.Until(b.t, 2*await.Moment, "the region rests", func() bool {
		before = b.done()
		b.beats()
		after = b.done()
		return before == after
	}, func() string { return fmt.Sprintf("%+v became %+v", before, after) })
}

// quiet waits until the agent writes nothing for some heartbeats.
func (w *worker) quiet() {
	w.b.t.Helper()
	await.Eventually(w.b.t, "the agent writes nothing", func() bool {
		before := len(w.net.Writes())
		w.b.beats()
		return len(w.net.Writes()) == before
	})
}
