package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// scenario is what happens to agents of one region, in virtual time.
type scenario struct {
	run func(*bench)
	// leaves is whether the cluster differs from what is wanted at the end.
	leaves bool
}

// region is one simulated world with the control plane as it is, and agents that are started and stopped.
type region struct {
	*simulatedRegion
	t     *testing.T
	world *simtest.World // nil in the world to compare with, in which nothing happens
	liar  controltest.Liar
	lines counter     // of all programs
	said  logtest.Log // by the control plane
	// launched is closed once agents can run, over at the end of the world.
	launched, over chan struct{}
	took           atomic.Int64 // how long the scenario was, once it is over

	mu     sync.Mutex
	net    http.RoundTripper // of the life of the world's program
	life   context.Context   //nolint:containedctx // of the same
	agents []*bench
}

// counter counts writes.
type counter struct{ atomic.Int64 }

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.Add(1)
	return len(p), nil
}

// bench is one agent of a region. As a [require.TestingT] it makes the history wrong.
type bench struct {
	*region
	agent agent.Agent
	log   *logtest.Log
	net   *applytest.Transport // to Kubernetes, since the last start

	wanted  bool // to run
	halt    func()
	metrics *prometheus.Registry
	isReady func() error
}

// Errorf makes the history wrong, as a test fails.
func (r *region) Errorf(format string, args ...any) { r.world.Blame(format, args...) }

// FailNow ends the scenario.
func (*region) FailNow() { runtime.Goexit() }

// TestScenariosInASimulatedWorld are the scenarios of the contract that need neither a real Kubernetes nor a real network.
func TestScenariosInASimulatedWorld(t *testing.T) {
	t.Parallel()
	passed := atomic.Int64{}
	t.Run("sqlite", func(t *testing.T) {
		for name, s := range scenarios() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if r := simtest.Simulate(t, s.world(t), 1); len(r.Wrong) > 0 {
					if os.Getenv("SIMTEST_SEED") != "" { // as other worlds do
						t.Log(r.Trace)
					}
					t.Fatal(strings.Join(r.Wrong, "\n"))
				}
				passed.Add(1)
			})
		}
	})
	fmt.Printf("figure krane_scenarios_sqlite %d count\n", passed.Load())
}

// world returns the world of a scenario, and one in which nothing happens.
func (s scenario) world(t *testing.T) func() simtest.Scenario {
	t.Helper()
	return simulated(t, func(p *simulatedRegion, world *simtest.Scenario) {
		r := &region{simulatedRegion: p, t: t, launched: make(chan struct{}), over: make(chan struct{})}
		p.plane.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(&r.said, &r.lines), nil))
		world.Start = func(w *simtest.World) {
			r.world, r.launched, r.over = w, make(chan struct{}), make(chan struct{})
			p.plane.Start()
			b := r.worker()
			go func() {
				began := time.Now()
				s.run(b)
				b.ends(s.leaves)
				r.took.Store(int64(time.Since(began)))
			}()
		}
		world.Program = r.live
		world.Edit, world.Edits, world.Pause = func(*simtest.World) {}, 1, time.Second
		// Time is cheap once the scenario is over: nothing runs any more.
		world.Settle, world.Rest, world.Requests = 48*time.Hour, time.Minute, 100_000
		world.Disturbances, world.Prompt, world.ReadOnly = []applytest.Disturbance{}, true, true
		world.Converged = func(*simtest.World) error {
			if r.world != nil && r.took.Load() == 0 {
				return errors.New("the scenario is not over")
			}
			return nil
		}
		world.State = func(*simtest.World) string { return "" }
		end := world.End
		world.End = func(w *simtest.World) {
			if r.world != nil {
				close(r.over)
				end(w)
			}
		}
	})
}

// ends ends a scenario: all is at rest and, unless the cluster differs from what is wanted, as it is wanted. Started
// again, agents write nothing.
func (r *region) ends(leaves bool) {
	r.rests()
	r.do(func(w *simtest.World) {
		if !leaves {
			require.NoError(r, r.converged(w))
		}
	})
	for _, b := range r.agents {
		if b.wanted {
			b.start()
			b.pause(3 * time.Minute)
			require.Empty(b, b.written())
			require.NoError(b, b.isReady())
			require.Equal(b, "0", b.metric("unreported_deletions"))
			b.stop()
		}
	}
	r.do(func(*simtest.World) { r.plane.Close() })
}

// written returns the writes that the API server has accepted. Whether a namespace belongs to others shows as it refuses
// one.
func (b *bench) written() []applytest.Request {
	return slices.DeleteFunc(b.net.Writes(), func(r applytest.Request) bool { return r.Status >= http.StatusBadRequest })
}

// live is the program of the world: all agents that are to run.
func (r *region) live(ctx context.Context, net http.RoundTripper) error {
	if r.world == nil {
		<-ctx.Done()
		return nil
	}
	r.mu.Lock()
	first := r.net == nil
	r.net, r.life = net, ctx
	agents := slices.Clone(r.agents)
	r.mu.Unlock()
	if first {
		close(r.launched)
	}
	for _, b := range agents {
		if b.wanted && !first {
			b.launch(nil)
		}
	}
	<-ctx.Done()
	r.mu.Lock()
	agents = slices.Clone(r.agents)
	r.mu.Unlock()
	for _, b := range agents {
		b.halt()
	}
	return nil
}

// worker returns one more agent, which does not run yet.
func (r *region) worker() *bench {
	b := &bench{region: r, log: &logtest.Log{}, net: &applytest.Transport{}, halt: func() {}}
	b.agent = agent.Agent{Config: r.config(), Logger: slog.New(slog.NewTextHandler(io.MultiWriter(b.log, &r.lines), nil))}
	// At rest nothing is reported.
	b.agent.Periods.Inventory = 1000 * time.Hour
	b.agent.Config.RuntimeClass, b.agent.Config.StorageClassName = "gvisor", "ebs-csi-gp3"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents = append(r.agents, b)
	return b
}

// start starts the agent, again if it runs.
func (b *bench) start() { b.startWith(nil) }

// startWith is start with requests to Kubernetes that go wrong.
func (b *bench) startWith(fault func(applytest.Request) applytest.Fault) {
	b.stop()
	select {
	case <-b.launched:
	case <-b.over:
		runtime.Goexit()
	}
	b.wanted = true
	b.launch(fault)
}

func (b *bench) launch(fault func(applytest.Request) applytest.Fault) {
	b.mu.Lock()
	net, life := b.region.net, b.life
	b.mu.Unlock()
	b.net = &applytest.Transport{Fault: fault}
	a := b.agent
	a.Kubernetes = &rest.Config{Host: "http://simtest", Transport: b.net.Wrap(net)}
	a.Control = b.liar.Before(b.link(net))
	ctx, cancel := context.WithCancel(life)
	given, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		must(a.Run(ctx, func(of *prometheus.Registry, ready func() error) {
			b.metrics, b.isReady = of, ready
			close(given)
		}))
	}()
	b.halt = func() {
		cancel()
		<-done
	}
	<-given
}

// stop stops the agent.
func (b *bench) stop() {
	b.wanted = false
	b.halt()
}

// do does something in the world, when nothing else happens.
func (r *region) do(act func(w *simtest.World)) {
	done := make(chan struct{})
	r.world.After(0, func() {
		defer close(done)
		act(r.world)
	})
	select {
	case <-done:
	case <-r.over:
		runtime.Goexit()
	}
}

// person does something by hand, which must succeed.
func (r *region) person(act func(c simtest.Client) error) {
	r.do(func(w *simtest.World) { require.NoError(r, act(w.As("person"))) })
}

// pause lets time pass.
func (r *region) pause(d time.Duration) {
	time.Sleep(d)
	r.do(func(*simtest.World) {})
}

// within waits until something holds.
func (r *region) within(bound time.Duration, what string, holds func() bool) {
	for began := time.Now(); !holds(); {
		waited := time.Since(began)
		require.Less(r, waited, bound, what)
		r.pause(min(time.Second+waited/20, 10*time.Second))
	}
}

// eventually is within for what needs neither lists nor long pauses.
func (r *region) eventually(what string, holds func() bool) { r.within(5*time.Minute, what, holds) }

// later is within for what needs some lists, which come every ten minutes.
func (r *region) later(what string, holds func() bool) { r.within(time.Hour, what, holds) }

const (
	replicaSets = "replicasets.apps"
	workloads   = "deployments.apps"
	ciliums     = "ciliumnetworkpolicies.cilium.io"
	namespace   = "shop" // of all that is wanted
)

// object returns an object of the namespace, nil for none.
func (r *region) object(resource, name string) (o simtest.Object) {
	r.do(func(w *simtest.World) { o = w.Object(resource, namespace, name) })
	return o
}

// exists reports whether the object is there and not being deleted.
func (r *region) exists(resource, name string) bool {
	o := r.object(resource, name)
	return o != nil && !o.Deleting()
}

// names returns the names of what is in the namespace and has that component.
func (r *region) names(resource, component string) (names []string) {
	r.do(func(w *simtest.World) {
		for _, o := range w.Objects(resource) {
			if o.Namespace() == namespace && o.Label("app.kubernetes.io/component") == component && !o.Deleting() {
				names = append(names, o.Name())
			}
		}
	})
	return names
}

// image returns the image of a deployment.
func (r *region) image(name string) string {
	containers, _ := r.object(replicaSets, name).Field("spec", "template", "spec", "containers").([]any)
	require.NotEmpty(r, containers)
	first, _ := containers[0].(map[string]any)
	image, _ := first["image"].(string)
	return image
}

// setImage has another manager change the image of a deployment.
func (r *region) setImage(name string) {
	r.person(func(c simtest.Client) error {
		return c.Update(replicaSets, namespace, name, controlplanetest.OtherImage)
	})
}

// want has resources that are to be there, and gone those that are not.
func (r *region) want(all ...proto.Message) { r.put("running", all...) }
func (r *region) gone(all ...proto.Message) { r.put("archived", all...) }

func (r *region) put(state string, all ...proto.Message) {
	r.do(func(*simtest.World) {
		for _, m := range all {
			require.NoError(r, put(context.Background(), r.plane.Regions, regionID, state, m))
		}
		r.note()
	})
}

// put has a resource in a state, with the id of the message.
func put(ctx context.Context, store *controlplanetest.Regions, regionID, state string, m proto.Message) (err error) {
	spec, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	want := controlplanetest.Want{State: state, Spec: json.RawMessage(spec)}
	switch m := m.(type) {
	case *ctrlv1.ApplyDeployment:
		_, err = store.PutDeployment(ctx, regionID, m.GetDeploymentId(), want)
	case *ctrlv1.ApplySentinel:
		_, err = store.PutSentinel(ctx, regionID, m.GetSentinelId(), want)
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		_, err = store.PutPolicy(ctx, regionID, m.GetCiliumNetworkPolicyId(), want)
	}
	return err
}

// byHand changes the database past the control plane.
func (r *region) byHand(statements ...string) {
	r.do(func(*simtest.World) {
		must(r.plane.Regions.Database.Write(context.Background(), func(tx *controlplanetest.Tx) error {
			for _, each := range statements {
				if _, err := tx.ExecContext(context.Background(), each); err != nil {
					return fmt.Errorf("%s: %w", each, err)
				}
			}
			return nil
		}))
		r.note()
	})
}

// stored returns what the control plane has of the region.
func (r *region) stored() (of controlplanetest.Region, all []controlplanetest.Resource) {
	r.do(func(*simtest.World) {
		var err error
		of, all, err = r.plane.Regions.Resources(context.Background(), regionID)
		must(err)
	})
	return of, all
}

// instances returns the instances of a deployment that the control plane has.
func (r *region) instances(name string) []controlplanetest.Instance {
	_, all := r.stored()
	for _, each := range all {
		if each.Collection == ctrlv1.Deployments && each.Name == name {
			return each.Instances
		}
	}
	return nil
}

// running reports whether the control plane has exactly one instance of each deployment, which runs.
func (r *region) running(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		all := r.instances(name)
		return len(all) != 1 || all[0].Status != "running" || !strings.HasSuffix(all[0].Address, ":8080")
	})
}

// away reports whether deployments are neither in the cluster nor reported.
func (r *region) away(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return r.exists(replicaSets, name) || len(r.instances(name)) > 0 })
}

// problems returns what the agent has reported that it cannot do, as resource: message.
func (r *region) problems() (list []string) {
	of, _ := r.stored()
	for _, p := range of.Problems {
		list = append(list, p.Resource+": "+p.Message)
	}
	return list
}

// held returns the deletions that the agent has reported as held.
func (r *region) held() (digest string, count int) {
	if of, _ := r.stored(); of.HeldDeletions != nil {
		return of.HeldDeletions.Digest, of.HeldDeletions.Count
	}
	return "", 0
}

// approve approves held deletions.
func (r *region) approve(digest string) (err error) {
	r.do(func(*simtest.World) {
		_, err = r.plane.Regions.ApproveDeletions(context.Background(), regionID, digest)
	})
	return err
}

// rotate gives the agent another token, which the control plane takes at once, and returns it.
func (r *region) rotate() (token string) {
	r.do(func(*simtest.World) {
		var err error
		token, err = r.plane.Regions.Agents().Rotate(context.Background(), regionID, 0)
		must(err)
	})
	return token
}

// metric returns the value of a metric whose line begins so, "" if there is none.
func (b *bench) metric(prefix string) string {
	recorder := httptest.NewRecorder()
	program.Metrics(b.metrics).ServeHTTP(recorder, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody))
	for line := range strings.Lines(recorder.Body.String()) {
		if rest, ok := strings.CutPrefix(line, "unkey_krane_"+prefix); ok {
			fields := strings.Fields(rest)
			return fields[len(fields)-1]
		}
	}
	return ""
}

func (b *bench) number(prefix string) int {
	n, _ := strconv.Atoi(b.metric(prefix)) // 0 for none
	return n
}

func (b *bench) heldFor(reason string) string {
	return b.metric(fmt.Sprintf("deletions_held{reason=%q}", reason))
}

// of returns a metric of deployments, sentinels and policies.
func (b *bench) of(metric string) string {
	var all []string
	for _, collection := range []string{"deployments", "sentinels", "policies"} {
		all = append(all, b.metric(fmt.Sprintf("%s{resource_type=%q}", metric, collection)))
	}
	return strings.Join(all, " ")
}

// lag returns by how many versions each collection is behind the last committed version.
func (b *bench) lag() string { return b.of("stream_lag_versions") }

// synced waits until all three lists were proven n times since the start.
func (b *bench) synced(n int) {
	b.later("all is synced", func() bool {
		for each := range strings.SplitSeq(b.of("watcher_full_syncs_total"), " ") {
			if times, _ := strconv.Atoi(each); times < n {
				return false
			}
		}
		return true
	})
	b.pause(time.Minute)
}

// deletes returns the deletions that the agent has asked for since its start.
func (b *bench) deletes() (found []string) {
	for _, r := range b.net.Requests() {
		if strings.HasPrefix(r.Verb, "delete") {
			found = append(found, r.String())
		}
	}
	return found
}

// done counts all that does not happen at rest.
type done struct {
	Claims                          uint64
	Reports, Writes, Lines, Entries int
}

func (r *region) done() (d done) {
	of, _ := r.stored()
	d = done{Claims: of.AgentEpoch, Reports: len(r.liar.Reports()), Lines: int(r.lines.Load())}
	r.do(func(*simtest.World) {
		d.Entries, _ = strconv.Atoi(strings.TrimSpace(r.plane.Rows("SELECT count(*) FROM audit")))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.agents {
		d.Writes += len(b.net.Writes())
	}
	return d
}

// last returns the end of all logs.
func (r *region) last() string {
	const most = 2000
	text := r.said.String()
	text = text[max(0, len(text)-most):]
	for _, b := range r.agents {
		log := b.log.String()
		text += log[max(0, len(log)-most):]
	}
	return text
}

// rests waits until there is no claim, report, write, log line or audit entry for a quarter of an hour, in which all is
// listed once.
func (r *region) rests() {
	var before, after done
	for began := time.Now(); ; {
		before = r.done()
		r.pause(15 * time.Minute)
		if after = r.done(); before == after {
			return
		}
		require.Less(r, time.Since(began), 3*time.Hour, "there is no rest: %+v became %+v\n%s", before, after, r.last())
	}
}

func deployment(name string) *ctrlv1.ApplyDeployment {
	return &ctrlv1.ApplyDeployment{
		K8SNamespace: namespace, K8SName: name, WorkspaceId: "ws_1", ProjectId: "prj_1", EnvironmentId: "env_1", DeploymentId: "d_" + name,
		AppId: "app_1", Image: "registry.example.com/" + name + ":1", CpuMillicores: 100, MemoryMib: 64, Port: 8080,
	}
}

func sentinel(name string) *ctrlv1.ApplySentinel {
	return &ctrlv1.ApplySentinel{
		K8SNamespace: namespace, K8SName: name, WorkspaceId: "ws_1", ProjectId: "prj_1", EnvironmentId: "env_1", AppId: "app_1",
		SentinelId: "s_" + name, Image: "registry.example.com/sentinel:1", Replicas: 1, CpuMillicores: 100, MemoryMib: 64,
	}
}

func policy(name string) *ctrlv1.ApplyCiliumNetworkPolicy {
	return &ctrlv1.ApplyCiliumNetworkPolicy{
		K8SNamespace: namespace, K8SName: name, CiliumNetworkPolicyId: "p_" + name,
		Policy: []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{}}}`),
	}
}

// all returns a deployment web, a sentinel guard, a policy egress, and more deployments: no collection is empty.
func all(more ...string) (found []proto.Message) {
	found = []proto.Message{deployment("web"), sentinel("guard"), policy("egress")}
	for _, name := range more {
		found = append(found, deployment(name))
	}
	return found
}
