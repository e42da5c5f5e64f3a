package sim_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// Pool is one history of a pool of machines. It takes hours of virtual time, so
// that Run is called in a bubble of testing/synctest. What is exported may be
// replaced before, to plant a defect.
type Pool struct {
	random  *rand.Rand
	Fake    *cloudtest.Fake
	Cluster *cloudtest.Cluster
	Spec    cloud.Pool
	Memory  cloud.Memory
	// Executor runs every pass, Provider is its view of the cloud.
	Executor *cloud.Executor
	Provider *Provider
	// Pass is one pass of the program.
	Pass func(ctx context.Context) error

	// Want and Observe are what a pass begins with.
	Want    func(cloud.Pool, cloud.Observed) func(cloud.Memory) cloud.Want
	Observe func(ctx context.Context) cloud.Observed

	calm    bool
	faults  float64 // how likely a call fails
	crash   float64 // how likely a call kills the process
	dead    bool    // the process was killed in this pass
	habits  map[string]cloudtest.Habit
	flapped map[string]time.Time // until when a Node is, or was, not ready
	shrunk  bool                 // the pool was made smaller: standby machines may be terminated
	largest int                  // the size it may still have
	podsAt  int
	// recorded are the machines without a Node in the status of the pool.
	recorded []string
	// Trace is a line for everything that happened, Wrong for what should not have.
	Trace strings.Builder
	Wrong []string
}

var errKilled = errors.New("the process was killed")

// NewPool returns the history of a seed, from an empty cloud on.
func NewPool(seed uint64) *Pool {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &Pool{random: random, habits: map[string]cloudtest.Habit{}, flapped: map[string]time.Time{}}
	scope := cloud.Scope{Domain: "stratos.sh", Cluster: "c1", Pool: "p", PoolUID: fmt.Sprintf("uid-%d", seed)}
	s.Fake = &cloudtest.Fake{
		Transition: time.Duration(1+random.IntN(400)) * 100 * time.Millisecond,
		ListLag:    time.Duration(random.IntN(40)) * time.Second,
		Zones:      map[string]string{"subnet-a": "zone-a", "subnet-b": "zone-b", "subnet-c": "zone-c"},
		Fault:      s.fault,
	}
	s.Cluster = &cloudtest.Cluster{
		Fake:           s.Fake,
		Scope:          scope,
		Boot:           time.Duration(5+random.IntN(40)) * time.Second,
		Fault:          s.fault,
		Habit:          s.habit,
		Overhead:       demand.Resources{CPU: 200},
		ControllerStop: random.IntN(2) == 0,
	}
	size := 1 + random.IntN(10)
	s.Spec = cloud.Pool{
		Scope: scope, Size: size, MinStandby: random.IntN(size + 1), ControllerStop: s.Cluster.ControllerStop,
		EmptyTTL: time.Duration(1+random.IntN(8)) * time.Minute, DrainTimeout: time.Duration(1+random.IntN(5)) * time.Minute,
		TerminateLate: random.IntN(3) == 0,
	}
	if random.IntN(2) == 0 {
		s.Spec.MaxRuntime = time.Duration(15+random.IntN(30)) * time.Minute
	}
	if random.IntN(3) == 0 {
		s.Spec.SurplusTTL = time.Duration(5+random.IntN(20)) * time.Minute
	}
	if seed%2 == 0 {
		s.Spec.ConsolidateAfter = time.Duration(1+seed%5) * time.Minute
		s.Spec.Disruptions = int(seed/2%4) - 1 //nolint:gosec // -1 to 2
	}
	for _, zone := range []string{"a", "b", "c"}[:1+random.IntN(3)] {
		s.Spec.Templates = append(
			s.Spec.Templates,
			cloud.Template{Name: "subnet-" + zone, InstanceType: "m5.large", Zone: "zone-" + zone, Hash: "1"},
		)
	}
	// Some clouds forget a machine and its token as soon as it is terminated.
	s.Fake.Forgets = seed%3 == 0
	s.largest = size
	s.Cluster.CloudController = random.IntN(2) == 0
	if random.IntN(2) == 0 { // clocks are up to ten minutes off, both ways
		s.Cluster.Clock = func(id string) time.Duration {
			h := fnv.New32a()
			_, _ = h.Write([]byte(id))
			return time.Duration(h.Sum32()%1200)*time.Second - 10*time.Minute
		}
	}
	s.faults, s.crash = random.Float64()*0.15, random.Float64()*0.03
	s.Provider = &Provider{Fake: s.Fake, s: s}
	s.Executor = &cloud.Executor{Provider: s.Provider, Nodes: s.Cluster, Journal: s.Cluster, Parallel: 1, Config: config}
	s.Want = s.Cluster.Want
	s.Observe = func(ctx context.Context) cloud.Observed { return s.Cluster.Observe(ctx, s.Provider, s.Memory) }
	s.Pass = s.onePass
	return s
}

func config(template string) (cloud.LaunchConfig, error) {
	return cloud.LaunchConfig{ImageID: "ami-1", InstanceType: "m5.large", SubnetID: template}, nil
}

func (s *Pool) onePass(ctx context.Context) error {
	seen := s.Observe(ctx)
	plan, _, err := s.Executor.Pass(ctx, s.Spec, seen, s.Want(s.Spec, seen))
	s.Memory = plan.Memory
	s.record(plan)
	if !s.dead { // or else before it could write its status
		s.recorded = s.recorded[:0:0]
		for _, m := range plan.Machines {
			if !m.Joined && m.State != cloud.StateTerminating && !m.Instance.Ending() {
				s.recorded = append(s.recorded, m.ID)
			}
		}
	}
	return err
}

// PassWith returns a pass that carries out what change makes of each plan.
func (s *Pool) PassWith(change func(plan *cloud.Plan, seen cloud.Observed)) func(context.Context) error {
	return func(ctx context.Context) error {
		seen := s.Observe(ctx)
		plan := s.Spec.Plan(seen, s.Want(s.Spec, seen)(seen.Memory), time.Now())
		change(&plan, seen)
		results, err := s.Executor.Execute(ctx, s.Spec, plan.Actions)
		s.Memory = plan.Memory.Learn(results, time.Now())
		s.record(plan)
		return err
	}
}

func (s *Pool) record(plan cloud.Plan) {
	for _, a := range plan.Actions {
		s.log("%s", a)
	}
	for _, b := range plan.Holds {
		s.log("hold %s", b)
	}
}

func (s *Pool) log(format string, args ...any) {
	fmt.Fprintf(&s.Trace, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func (s *Pool) blame(format string, args ...any) {
	s.Wrong = append(s.Wrong, fmt.Sprintf(format, args...))
	s.log("WRONG: "+format, args...)
}

// Run lets an hour pass in which everything goes wrong, and an hour in which
// nothing does. Then the pool must have its desired state, and make no calls. It ends
// early once something is wrong.
func (s *Pool) Run(ctx context.Context) {
	for end := time.Now().Add(time.Hour); time.Now().Before(end) && len(s.Wrong) == 0; {
		s.disturb()
		s.step(ctx)
		pause.For(ctx, time.Duration(1+s.random.IntN(30))*time.Second)
	}
	s.calm = true
	s.Fake.Capacity = nil
	s.Spec.MaxRuntime = 0 // would go on for ever
	s.log("calm")
	for range s.random.IntN(6) { // pods that stay
		s.Cluster.AddPod(s.pod(), 0, false)
	}
	if s.random.IntN(2) == 0 {
		s.Cluster.AddPod(s.tolerant(), 0, false)
	}
	for end := time.Now().Add(time.Hour); time.Now().Before(end) && len(s.Wrong) == 0; pause.For(ctx, 30*time.Second) {
		s.step(ctx)
	}
	if len(s.Wrong) == 0 {
		s.converged()
	}
	if len(s.Wrong) == 0 {
		s.silent(ctx)
	}
}

func (s *Pool) step(ctx context.Context) {
	s.Cluster.Step()
	s.dead = false
	if err := s.Pass(ctx); err != nil {
		s.log("error: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if s.dead {
		s.log("killed")
		s.Memory = cloud.Recorded{Machines: s.recorded}.Memory()
	}
	s.check()
}
