package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
)

// long is whether "make test-long" runs.
func long() bool { return os.Getenv("TRUEUP_SWEEP") == "all" }

// inFlight counts the writes that are under way at a time, those for the Lease left out.
type inFlight struct {
	next http.RoundTripper

	mu        sync.Mutex
	now, most int
}

func (f *inFlight) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") {
		return f.next.RoundTrip(r)
	}
	f.count(1)
	defer f.count(-1)
	return f.next.RoundTrip(r)
}

func (f *inFlight) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most = 0
}

func (f *inFlight) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += n
	f.most = max(f.most, f.now)
}

// passes counts the passes of each job, which the operator logs.
type passes struct {
	slog.Handler // of errors

	mu sync.Mutex
	by map[string]int
}

func (*passes) Enabled(context.Context, slog.Level) bool { return true }

func (p *passes) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "pass" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "job" {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.by[a.Value.String()]++
			}
			return true
		})
	}
	if !p.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return p.Handler.Handle(ctx, r)
}

// take returns the passes since the last call.
func (p *passes) take() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	by := p.by
	p.by = map[string]int{}
	return by
}

// TestManyJobsShareARuntime is D30, C24, D6, D27, C17 and the end of D20: an image changes for
// many jobs with a schedule and some that are suspended. Each of them has one pass, each
// CronJob is written once, each job's status once, and nothing else, by no more requests at
// a time than there are workers, and all others though one write is not answered. Then
// nothing is sent and nothing changes, also for jobs whose spec is wrong. There are 200 jobs
// for ten seconds; "make test-long" has 1,000, and rests for ten minutes.
func TestManyJobsShareARuntime(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many jobs")
	}
	t.Parallel()
	many, rest := 200, 10*time.Second
	if long() {
		many, rest = 1000, 10*time.Minute
	}
	c := newCell(t)
	b := c.bench(t, "fanout")
	flight := &inFlight{}
	slow, held := make(chan struct{}), make(chan struct{})
	var holding sync.Once
	var image sync.Map // set while the image changes
	r := &running{net: &applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		if _, changing := image.Load("changes"); changing && r.Verb == "patch" && r.Resource == "cronjobs" && r.Name == "job-0001" {
			holding.Do(func() { close(held) })
			<-slow
		}
		return applytest.Fault{}
	}}}
	// However the test ends, the operator must be able to.
	release := sync.OnceFunc(func() { close(slow) })
	counted := &passes{by: map[string]int{}}
	c.launch(t, r, func(o *agentjob.Operator) {
		counted.Handler = o.Logger.Handler()
		o.Logger = slog.New(counted)
		o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
			flight.next = next
			return flight
		})
	})
	t.Cleanup(release)
	scheduled := 0
	var all strings.Builder
	for n := range many {
		more := ", schedule: '0 0 1 1 *'"
		if n%10 == 9 {
			more = ", suspend: true"
		} else {
			scheduled++
		}
		fmt.Fprintf(
			&all,
			"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentJob, metadata: {name: job-%04d, namespace: fanout}, spec: {runtimeRef: runtime, authRef: auth, roleRef: role, prompt: work%s}}\n---\n",
			n,
			more,
		)
	}
	require.NoError(t, c.cluster.Apply(t.Context(), all.String()))
	b.apply("AgentRuntime", "other", "{image: 'agent:1', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
	b.apply("AgentJob", "bystander", "{runtimeRef: other, authRef: auth, roleRef: role, prompt: work, schedule: '0 0 1 1 *'}")
	b.eventually("all are reconciled", func() bool {
		phases := strings.Fields(b.in("get", "aj", "-o", "jsonpath={.items[*].status.phase}"))
		return len(phases) == many+1 && !slices.Contains(phases, "Pending") &&
			len(strings.Fields(b.in("get", "cronjobs", "-o", "name"))) == scheduled+1
	})
	b.silent(r)

	r.net.Reset()
	flight.reset()
	counted.take()
	image.Store("changes", true)
	start := time.Now()
	b.image("2")
	<-held
	images := func() int {
		return strings.Count(
			b.in("get", "cronjobs", "-o", "jsonpath={.items[*].spec.jobTemplate.spec.template.spec.containers[0].image}")+" ",
			"agent:2 ",
		)
	}
	b.eventually("all but the slow one are written", func() bool { return images() == scheduled-1 })
	release()
	b.eventually("so is the slow one", func() bool { return images() == scheduled })
	took := time.Since(start)
	b.silent(r)
	writes := map[string]int{}
	for _, w := range r.net.Writes() {
		if w.Resource != "leases" {
			writes[w.String()]++
		}
	}
	want := map[string]int{}
	for n := range many {
		if n%10 != 9 {
			want[fmt.Sprintf("patch cronjobs.batch fanout/job-%04d", n)] = 1
		}
		want[fmt.Sprintf("patch agentjobs.thurkube.thurbeen.eu/status fanout/job-%04d", n)] = 1
	}
	require.Empty(t, cmp.Diff(want, writes))
	once := map[string]int{}
	for n := range many {
		once[fmt.Sprintf("fanout/job-%04d", n)] = 1
	}
	require.Empty(t, cmp.Diff(once, counted.take()), "a pass for each job, and none for its own writes")
	require.LessOrEqual(t, flight.most, 8, "there are 8 workers")
	t.Logf("%d jobs followed in %s, the slow one included, at most %d writes at a time", many, took.Round(time.Millisecond), flight.most)

	// At rest, also with jobs that only a change can cure: D20.
	bad := map[string]string{
		"zone":      "runtimeRef: runtime, schedule: '0 0 1 1 *', timezone: Mars/Olympus",
		"token":     "runtimeRef: runtime, env: [{name: AGENT_TOKEN, value: mine}]",
		"backwards": "runtimeRef: runtime, schedule: '5-3 * * * *'",
		"lost":      "runtimeRef: nowhere",
	}
	for name, spec := range bad {
		b.apply("AgentJob", name, "{authRef: auth, roleRef: role, prompt: work, "+spec+"}")
	}
	for name := range bad {
		b.eventually(name+" is reported", func() bool { return b.condition(name, "Ready", "status") == "False" })
	}
	b.silent(r)
	r.net.Reset()
	events := func() int { return len(strings.Fields(b.in("get", "events", "-o", "name"))) }
	before, had := b.versions(), events()
	require.Len(t, before, 4*(many+1)-(many-scheduled)+len(bad))
	select {
	case <-time.After(rest):
	case <-t.Context().Done():
	}
	require.Empty(t, cmp.Diff(before, b.versions()))
	require.Equal(t, had, events())
	require.Empty(t, r.spoken())
}

// spoken returns the requests of an operator since the last Reset, without those for the
// Lease, and without lists and watches, by which its views are kept.
func (r *running) spoken() (all []string) {
	for _, sent := range r.net.Requests() {
		if sent.Resource != "leases" && sent.Verb != "list" && sent.Verb != "watch" {
			all = append(all, sent.String())
		}
	}
	return all
}

// silent waits until the operator has sent nothing for three seconds.
func (b *bench) silent(r *running) {
	b.Helper()
	sent, since := len(r.spoken()), time.Now()
	b.eventually("nothing is sent", func() bool {
		if now := len(r.spoken()); now != sent {
			sent, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

// versions returns the resourceVersions of the jobs and of their children.
func (b *bench) versions() map[string]string {
	b.Helper()
	found := map[string]string{}
	for _, kinds := range [][]string{{"aj"}, {"cm,sa,cronjobs,jobs,pvc", "-l", "app.kubernetes.io/managed-by=thurkube"}} {
		out := b.in(
			append(
				[]string{"get"},
				append(kinds, "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}")...)...)
		for line := range strings.Lines(out) {
			name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			found[name] = version
		}
	}
	return found
}
