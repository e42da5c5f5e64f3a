package clusters_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// soakInterval is the time between billing records. Faults of the link to Kubernetes are
// shorter than two of them, so that the view of pods is never too old.
const soakInterval = 10 * time.Second

// TestSoak runs the agent's program for TRUEUP_SOAK (a duration) while links fail,
// replicas, the database and the agent are killed, and administrators and hands change
// everything, all drawn from TRUEUP_SEED. In the end the cluster is as wanted, nothing
// that stayed wanted was deleted, and each pod has one record for each instant.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, seed := controlplanetest.Soak(t)
	zerolog.SetGlobalLevel(zerolog.Disabled) // of toxiproxy
	kube := startKubernetes(t)
	program := programs.Path(t, "shuttle")
	var mu sync.Mutex
	var removed sync.Map
	total := map[string]int{}
	t.Run("on", func(t *testing.T) {
		for i, kind := range []string{"sqlite", "postgres"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				s := &soak{program: program, until: time.Now().Add(length), figures: map[string]int{}, removed: &removed, edited: map[string]int{}}
				source := filepath.Join(t.TempDir(), "trueup.db")
				if kind == "postgres" {
					s.database = pgtest.Start(t, pgtest.Options{})
					source = s.database.Database(t)
				}
				s.bench = newBench(t, kube, "soak-"+kind[:2], source)
				s.freed = map[types.UID]bool{}
				s.run(seed + uint64(i))
				mu.Lock()
				defer mu.Unlock()
				for name, n := range s.figures {
					total[name] += n
				}
			})
		}
	})
	total["soak_wrong_deletions"] += wrongDeletions(t, kube, &removed)
	figures := &benchfigures.Book{Out: os.Stdout}
	figures.Add("soak_minutes", length.Minutes(), "min")
	for _, name := range []string{
		"soak_edits", "soak_edits_by_hand", "soak_faults", "soak_agents_killed", "soak_replicas_killed", "soak_pods", "soak_pod_instants",
		"soak_differences", "soak_wrong_deletions", "snapshot_missing", "snapshot_twice",
	} {
		figures.Add(name, float64(total[name]), "")
	}
	for _, name := range []string{"soak_differences", "soak_wrong_deletions", "snapshot_missing", "snapshot_twice"} {
		require.Zero(t, total[name], name)
	}
}

// soak is one run.
type soak struct {
	*bench
	program  string
	until    time.Time
	database *pgtest.Server // nil for SQLite
	group    *process.Group
	agent    *process.Process
	settings []string
	args     []string
	api      *toxiproxy.Proxy

	// Of the edits:
	alive   []string       // services
	next    int            // the number of the next one
	removed *sync.Map      // services, by namespace/name, of all runs
	edited  map[string]int // edits of each object: the sixth would be a fight

	// Of the faults and the edits:
	count   sync.Mutex
	figures map[string]int

	pods map[types.UID]*life
}

// life is when a pod was certainly there.
type life struct{ from, to time.Time }

func (s *soak) add(figure string, n int) {
	s.count.Lock()
	defer s.count.Unlock()
	s.figures[figure] += n
}

func (s *soak) run(seed uint64) {
	t := s.t
	s.install()
	for range 10 {
		s.create(rand.New(rand.NewPCG(seed, 0)))
	}
	s.startAgent()
	s.healthy(len(s.alive))
	ctx, cancel := context.WithDeadline(t.Context(), s.until)
	defer cancel()
	s.pods = map[types.UID]*life{}
	watched, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	var parts, watching sync.WaitGroup
	watching.Go(func() { s.observe(watched) })
	parts.Go(func() { s.disturb(ctx.Done(), rand.New(rand.NewPCG(seed, 1))) }) //nolint:contextcheck // a fault is ended after ctx
	random := rand.New(rand.NewPCG(seed, 2))
	for pause(ctx.Done(), random, 2*time.Second) {
		if random.IntN(3) == 0 {
			s.change(random)
			s.add("soak_edits", 1)
			continue
		}
		s.add("soak_edits_by_hand", s.byAHand(random))
	}
	parts.Wait()

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent: %s", s.agent.Tail())
		}
	})
	allowed := time.Now()
	var differences []string
	await.Eventually(t, "all is as wanted", func() bool {
		// What was deleted in an outage comes at once, and may be more than the limit.
		for _, state := range s.services() {
			if state.ErrorClass == starbase.ClassDeletionHeld && time.Since(allowed) > 5*time.Second {
				allowed = time.Now()
				s.approveHeld()
			}
		}
		differences = s.differences()
		return len(differences) == 0
	}, func() string { return strings.Join(append(differences, s.explain()...), "\n") })
	s.healthy(len(s.alive))
	s.add("soak_differences", len(s.differences()))
	end := time.Now()
	await.Eventually(t, "the records of the last instants are stored", func() bool { return s.newest().After(end.Add(soakInterval)) })
	stopWatching()
	watching.Wait()
	missing, instants := 0, 0
	var examples []string
	await.Eventually(t, "no record is under way", func() bool {
		before := missing
		missing, instants, examples = s.missing(end)
		return missing == 0 || missing == before && time.Since(end) > time.Minute
	})
	t.Log(examples)
	s.add("snapshot_missing", missing)
	s.add("snapshot_twice", twice(s.rows()))
	s.add("soak_pods", len(s.pods))
	s.add("soak_pod_instants", instants)
	require.NoError(t, s.agent.Stop(20*time.Second))
}

// explain returns the services that are not healthy, the field managers of each Deployment and autoscaler, and the
// warnings of the agent.
func (s *soak) explain() (lines []string) {
	for id, state := range s.services() {
		if state.Phase != starbase.PhaseHealthy {
			lines = append(lines, fmt.Sprintf("%s: %s %s %s", id, state.Phase, state.ErrorClass, state.Message))
		}
	}
	for _, o := range append(s.list(kindOf("Deployment")), s.list(kindOf("HorizontalPodAutoscaler"))...) {
		var managers []string
		for _, entry := range o.GetManagedFields() {
			has := entry.FieldsV1 != nil && strings.Contains(string(entry.FieldsV1.Raw), `"f:replicas"`)
			managers = append(managers, fmt.Sprintf("%s/%s%s (replicas: %t)", entry.Manager, entry.Operation, entry.Subresource, has))
		}
		lines = append(lines, fmt.Sprintf("%s %s: labels %v, hash %s, deleted %v, fields of %s", o.GetKind(), o.GetName(), o.GetLabels(),
			o.GetAnnotations()[label+"desired-hash"], o.GetDeletionTimestamp(), strings.Join(managers, ", ")))
	}
	content, err := os.ReadFile(s.agent.Log)
	require.NoError(s.t, err)
	for line := range strings.Lines(string(content)) {
		if !strings.Contains(line, `"level":"INFO"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// install makes what the agent's program reads.
func (s *soak) install() {
	t := s.t
	dir := t.TempDir()
	s.group = process.NewGroup(dir)
	t.Cleanup(s.group.Close)
	host := strings.TrimPrefix(s.access.Host, "https://")
	s.api = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "kubernetes", "127.0.0.1:0", host)
	require.NoError(t, s.api.Start())
	t.Cleanup(s.api.Stop)
	_, access, err := s.started.ServiceAccount(t.Context(), "starform-system", "shuttle")
	require.NoError(t, err)
	content, err := os.ReadFile(access)
	require.NoError(t, err)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(string(content), host, s.api.Listen)), 0o600))
	s.args = []string{"--kubeconfig", kubeconfig}
	s.settings = []string{
		"STARFORM_STARBASE_URL=http://" + s.proxy.Listen,
		"STARFORM_CLUSTER_ID=" + s.id,
		"STARFORM_REGION=nyc3",
		"STARFORM_AUTH_TOKEN_FILE=" + s.token,
		"STARFORM_METRICS_ADDR=127.0.0.1:0",
		"STARFORM_RECONCILE_INTERVAL=1s",
		"STARFORM_CAPACITY_INTERVAL=10s",
		"STARFORM_SNAPSHOT_INTERVAL=" + soakInterval.String(),
		"STARFORM_SNAPSHOT_WAL_DIR=" + filepath.Join(dir, "wal"),
	}
}

func (s *soak) startAgent() {
	var err error
	s.agent, err = s.group.Run("shuttle", s.program, s.settings, s.args...)
	require.NoError(s.t, err)
}

// pause waits for a part of the time, or until done is closed: then it returns false.
func pause(done <-chan struct{}, random *rand.Rand, most time.Duration) bool {
	timer := time.NewTimer(time.Duration(random.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-timer.C:
		return true
	}
}

// create puts one more service.
func (s *soak) create(random *rand.Rand) {
	name := fmt.Sprintf("svc-%03d", s.next)
	s.next++
	s.alive = append(s.alive, name)
	s.putDrawn(random, name)
}

func (s *soak) putDrawn(random *rand.Rand, name string) {
	more := spec{
		"replicas": 1 + random.IntN(3), "image": fmt.Sprintf("example.com/%s:%d", name, random.IntN(1000)),
		"env": spec{"GREETING": fmt.Sprint(random.IntN(1000))},
	}
	if random.IntN(3) == 0 {
		more["hostname"] = name + "." + s.name + ".example.com"
	}
	if random.IntN(8) == 0 {
		more["autoscaling"] = spec{"min": 1, "max": 4, "cpu_percent": 80}
	}
	s.put(more, name)
}

// change changes the desired state.
func (s *soak) change(random *rand.Rand) {
	name := s.alive[random.IntN(len(s.alive))]
	switch n := random.IntN(10); {
	case n == 0 && len(s.alive) > 6:
		s.alive = slices.DeleteFunc(s.alive, func(other string) bool { return other == name })
		s.removed.Store(s.namespace()+"/"+name, true)
		s.remove(name)
	case n <= 1 && len(s.alive) < 14:
		s.create(random)
	case n == 2:
		s.admin(http.MethodPut, "clusters/"+s.id+"/config", spec{"lb_size_units": 1 + random.IntN(9)}, nil)
	case n == 3:
		s.approveHeld()
	default:
		s.putDrawn(random, name)
	}
}

// approveHeld approves what is held, as it was reported last, if anything is.
func (s *soak) approveHeld() {
	cluster, _, err := s.desired().Cluster(s.t.Context(), s.id)
	if err == nil && cluster.HeldDeletions != nil { // the database may be away
		s.approve(cluster.HeldDeletions.Digest) // a conflict if the agent has reported another set meanwhile
	}
}

// byAHand changes or deletes an object behind the agent's back, and returns how many.
func (s *soak) byAHand(random *rand.Rand) int {
	kinds := []string{"Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy", "Pod", "Deployment"}
	kind := kindOf(kinds[random.IntN(len(kinds))])
	list := s.list(kind)
	if len(list) == 0 {
		return 0
	}
	slices.SortFunc(list, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	o := list[random.IntN(len(list))]
	if s.edited[kind.Kind+o.GetName()]++; s.edited[kind.Kind+o.GetName()] > 4 {
		return 0
	}
	at, ctx := s.at(resourceOf(kind), o.GetNamespace()), s.t.Context()
	patch := ""
	switch n := random.IntN(3); {
	case kind.Kind == "Pod" || n == 0:
	case n == 1 && kind.Kind == "Deployment":
		patch = `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/by-hand"}]`
	case n == 1 && kind.Kind == "ConfigMap":
		patch = `[{"op":"replace","path":"/data/GREETING","value":"by hand"}]`
	default:
		patch = `[{"op":"remove","path":"/metadata/labels/starform.io~1managed-by"}]`
		s.freed[o.GetUID()] = true
	}
	var err error
	if patch == "" {
		err = at.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	} else {
		_, err = at.Patch(ctx, o.GetName(), types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return 0 // the agent was faster
	}
	require.NoError(s.t, err)
	return 1
}

// observe records when pods exist. A list shows pods that exist between its begin and
// its end.
func (s *soak) observe(ctx context.Context) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		began := time.Now()
		list, err := s.kube.CoreV1().Pods(s.namespace()).List(ctx, metav1.ListOptions{LabelSelector: label + "cluster-id=" + s.id})
		if err == nil {
			for i := range list.Items {
				if list.Items[i].DeletionTimestamp != nil {
					continue
				}
				if l, known := s.pods[list.Items[i].UID]; known {
					l.to = began
					continue
				}
				s.pods[list.Items[i].UID] = &life{time.Now(), began}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// missing returns how many records there are not of pods that lived from two intervals
// before an instant until one after it: as long as the view of pods may be too old, and the
// agent away.
func (s *soak) missing(end time.Time) (missing, instants int, examples []string) {
	rows := s.rows()
	for uid, l := range s.pods {
		for at := l.from.Add(2 * soakInterval).Truncate(soakInterval).Add(soakInterval); !at.After(l.to.Add(-soakInterval)) && at.Before(end); at = at.Add(soakInterval) {
			instants++
			if !slices.ContainsFunc(rows[string(uid)], at.Equal) {
				missing++
				examples = append(examples, fmt.Sprintf("%s at %s", uid, at.UTC().Format(time.TimeOnly)))
			}
		}
	}
	return missing, instants, examples[:min(len(examples), 20)]
}

// disturb has one fault after the other, until done is closed. At the end there is none.
func (s *soak) disturb(done <-chan struct{}, random *rand.Rand) {
	for pause(done, random, 4*time.Second) {
		s.add("soak_faults", 1)
		hold := func(most time.Duration) { pause(done, random, most) }
		switch random.IntN(9) {
		case 0, 1:
			kind, attributes := drawToxic(random)
			s.toxic(s.proxy, kind, attributes, func() { hold(12 * time.Second) })
		case 2, 3:
			kind, attributes := drawToxic(random)
			s.toxic(s.api, kind, attributes, func() { hold(4 * time.Second) })
		case 4:
			s.add("soak_replicas_killed", 1)
			s.kill()
			hold(8 * time.Second)
			s.replica()
		case 5:
			s.add("soak_agents_killed", 1)
			s.agent.Kill()
			s.startAgent()
			hold(5 * time.Second)
		case 6:
			if s.database == nil {
				s.link.set(unavailable(""))
				hold(8 * time.Second)
				s.link.set(nil)
				continue
			}
			s.database.Kill()
			hold(3 * time.Second)
			require.NoError(s.t, s.database.Start(s.t.Context()))
		case 7:
			s.link.set(loseAnswers(random.Uint64()))
			hold(8 * time.Second)
			s.link.set(nil)
		default:
			var rotated struct{ Token string }
			s.admin(http.MethodPost, "clusters/"+s.id+"/rotate-token", spec{"overlap_seconds": random.IntN(2)}, &rotated)
			s.useToken(rotated.Token)
		}
	}
}

func drawToxic(random *rand.Rand) (kind, attributes string) {
	all := [][2]string{
		{"latency", `{"latency":400,"jitter":300}`},
		{"bandwidth", `{"rate":20}`},
		{"slicer", `{"average_size":200,"size_variation":100,"delay":2000}`},
		{"reset_peer", `{"timeout":50}`},
		{"timeout", `{"timeout":0}`},
		{"limit_data", `{"bytes":3000}`},
	}
	drawn := all[random.IntN(len(all))]
	return drawn[0], drawn[1]
}

// loseAnswers carries requests out and then, of every other one, sends no answer or a part.
func loseAnswers(seed uint64) func(http.ResponseWriter, *http.Request, http.Handler) {
	var n atomic.Uint64
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		body := answer.Body.Bytes()
		switch (seed + n.Add(1)) % 4 {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			w.WriteHeader(answer.Code)
			_, _ = w.Write(body[:len(body)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(answer.Code)
			_, _ = w.Write(body)
		}
	}
}

// wrongDeletions counts, in the API server's own audit log, the deletions by agents of
// what no administrator has removed.
func wrongDeletions(t *testing.T, kube cell, removed *sync.Map) (n int) {
	t.Helper()
	requests, err := kube.started.Requests("system:serviceaccount:starform-system:shuttle")
	require.NoError(t, err)
	for _, r := range requests {
		if !strings.HasPrefix(r.Verb, "delete") || r.Code != http.StatusOK {
			continue
		}
		// These go with a host name, and with autoscaling.
		if r.Resource == "httproutes" || r.Resource == "horizontalpodautoscalers" {
			continue
		}
		// The names of a service's objects are <name>-production-<hash>.
		name, _, _ := strings.Cut(r.Name, "-"+production)
		if _, expected := removed.Load(r.Namespace + "/" + name); !expected {
			t.Errorf("deleted: %s", r)
			n++
		}
	}
	return n
}
