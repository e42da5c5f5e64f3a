package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// A Cut is what happens at one call of a [Script].
type Cut struct {
	// Call is which one, counted from 1 over all calls that change something.
	Call int
	// Kill ends the process there. Otherwise the call alone fails.
	Kill bool
	// Done lets the call be carried out, so that only its answer is lost.
	Done bool
	// Twice lets the request arrive twice.
	Twice bool
}

// String names the cut in a failure.
func (c Cut) String() string {
	what := "fails"
	switch {
	case c.Twice:
		what = "arrives twice"
	case c.Kill:
		what = "kills the process"
	}
	if c.Done {
		what += " after it was carried out"
	}
	return fmt.Sprintf("call %d %s", c.Call, what)
}

// A Script is the life of one pool, always the same: it is filled, started for
// pods, scaled down, recycled, replaced after a change of its template, shrunk and
// deleted. Run it in a bubble of testing/synctest.
type Script struct {
	// Calls is how many calls that change something were made.
	Calls int
	// States is what the machines were at the end of each act.
	States []string
	// Trace and Wrong are as in [Pool].
	Trace strings.Builder
	Wrong []string

	cut     Cut
	dead    bool
	fake    *cloudtest.Fake
	cluster *cloudtest.Cluster
	pool    cloud.Pool
	memory  cloud.Memory
	plan    cloud.Plan
}

// NewScript returns a life with one cut; the zero Cut is none.
func NewScript(cut Cut) *Script {
	s := &Script{cut: cut}
	scope := cloud.Scope{Domain: "stratos.sh", Cluster: "c1", Pool: "p", PoolUID: "uid"}
	s.fake = &cloudtest.Fake{Transition: 4 * time.Second, ListLag: 7 * time.Second, Fault: s.fault}
	s.cluster = &cloudtest.Cluster{Fake: s.fake, Scope: scope, Fault: s.fault}
	s.pool = cloud.Pool{
		Scope: scope, Size: 5, MinStandby: 2, EmptyTTL: time.Minute, DrainTimeout: 2 * time.Minute,
		Templates: []cloud.Template{{Name: "t", InstanceType: "m5.large", Zone: "zone-a", Hash: "1"}},
	}
	return s
}

// Run lets the life pass.
func (s *Script) Run(ctx context.Context) {
	act := func(name string, minutes int) {
		for end := time.Now().Add(time.Duration(minutes) * time.Minute); time.Now().Before(end); pause.For(ctx, 10*time.Second) {
			s.step(ctx)
		}
		s.States = append(s.States, name+": "+s.state())
	}
	act("filled", 5)
	for n := range 8 {
		s.cluster.AddPod(demand.Pod{Name: fmt.Sprintf("pod-%d", n)}, 0, n == 0)
	}
	act("started", 6)
	for n := range 4 {
		s.cluster.RemovePod(fmt.Sprintf("pod-%d", n))
	}
	act("scaled down", 6)
	s.pool.MaxRuntime = 15 * time.Minute
	act("recycled", 12)
	s.pool.MaxRuntime = 0
	for n := range 8 {
		s.cluster.RemovePod(fmt.Sprintf("pod-%d", n))
	}
	act("empty", 8)
	s.cluster.Outdate()
	act("replaced", 20)
	s.pool.Size, s.pool.MinStandby = 1, 1
	act("shrunk", 5)
	s.cluster.AddPod(demand.Pod{Name: "last"}, 0, true)
	act("one pod", 5)
	s.pool.Deleting = true
	s.cluster.RemovePod("last")
	act("deleted", 8)
	if !s.plan.Done {
		s.Wrong = append(s.Wrong, "the pool is not done: "+s.plan.String())
	}
}

func (s *Script) step(ctx context.Context) {
	s.cluster.Step()
	s.dead = false
	seen := s.cluster.Observe(ctx, s.fake, s.memory)
	executor := &cloud.Executor{Provider: s.fake, Nodes: s.cluster, Journal: s.cluster, Parallel: 1, Config: config}
	plan, _, err := executor.Pass(ctx, s.pool, seen, s.cluster.Want(s.pool, seen))
	s.plan, s.memory = plan, plan.Memory
	for _, a := range plan.Actions {
		fmt.Fprintf(&s.Trace, "%s %s\n", time.Now().Format(time.TimeOnly), a)
	}
	if err != nil {
		fmt.Fprintf(&s.Trace, "%s error: %v\n", time.Now().Format(time.TimeOnly), err)
	}
	if s.dead {
		s.memory = cloud.Memory{}
	}
	if n := s.alive(); n > 5 {
		s.Wrong = append(s.Wrong, fmt.Sprintf("%d machines exist, the size is 5", n))
	}
	s.Wrong = append(s.Wrong, s.cluster.Wrong()...)
}

var errCut = errors.New("connection reset by peer")

func (s *Script) fault(call cloudtest.Call) cloudtest.Fault {
	if s.dead {
		return cloudtest.Fault{Err: errKilled}
	}
	switch call.Operation {
	case "ListInstances", "GetInstance", "GetInstanceState":
		return cloudtest.Fault{}
	}
	s.Calls++
	if s.Calls != s.cut.Call {
		return cloudtest.Fault{}
	}
	fmt.Fprintf(&s.Trace, "%s %s: %s\n", time.Now().Format(time.TimeOnly), call.Operation, s.cut)
	if s.cut.Twice {
		return cloudtest.Fault{Twice: true}
	}
	s.dead = s.cut.Kill
	return cloudtest.Fault{Err: errCut, Lost: s.cut.Done}
}

func (s *Script) alive() int {
	n := 0
	for _, i := range s.fake.Instances() {
		if !i.State.Ending() {
			n++
		}
	}
	return n
}

// state counts the machines by use and state, those that ever were, and the pods
// that wait.
func (s *Script) state() string {
	instances := s.fake.Instances()
	count := map[string]int{}
	for _, i := range instances {
		if i.State.Ending() {
			count["ended"]++
		} else {
			count[i.Tags["stratos.sh/state"]+" "+string(i.State)]++
		}
	}
	return fmt.Sprintf("%v of %d, %d pods pending", count, len(instances), len(s.cluster.Pending()))
}
