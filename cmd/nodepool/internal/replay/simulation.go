package replay

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/chart"
)

const (
	// patience is how long pods wait for a machine that was started for them before they
	// look for another. The operator uses the same value.
	patience = time.Minute
	// maxRounds bounds the passes at one instant. Each but the last changes something.
	maxRounds = 100
)

// simulation is one replay.
type simulation struct {
	Settings
	now    time.Time
	trace  []Pod             // that are still to come; the first fits on a machine
	number int               // of the first of them
	fit    map[[2]int64]bool // whether requests fit on an empty machine
	events events
	tick   time.Time // of the next pass at rest
	wake   time.Time // that the last plan asked for; zero if none

	// changed reports that a pass could do something that the last one did not: a machine
	// has another state, has got its first pod or lost its last, or other pods wait.
	changed bool
	// moved reports that a machine came, went or has another state since the last sample.
	moved bool
	// quiet reports that nothing has changed since a pass at rest that had nothing to do.
	quiet bool
	// diligent makes a pass at each event, also where nothing has changed.
	diligent bool

	machines     []*machine // oldest first
	byID         map[string]*machine
	byUID        map[string]*pod  // that wait
	pending      []*pod           // longest waiting first
	ready        []*machine       // that pods were last bound to
	instances    []cloud.Instance // of the last plan, and so are the nodes
	nodes        []cloud.NodeStatus
	reservations []demand.Reservation
	memory       cloud.Memory
	ordinal      int64

	left                       int // pods that have not ended
	made                       int // machines that ever were
	launched, started, evicted int
	hits                       int
	waits                      []time.Duration
	spent                      [states]time.Duration
	counts                     [states]int
	result                     Result
}

// pod is one pod of the trace.
type pod struct {
	demand.Pod
	since   time.Time // when it began to wait
	waited  time.Duration
	left    time.Duration // how long it has to run
	ends    time.Time
	machine *machine
	decided bool // whether it counts as a hit is decided
	run     int  // numbers its runs: the end of an older one is void
}

func newSimulation(settings Settings, pods []Pod) (*simulation, error) {
	if len(pods) == 0 {
		return nil, errors.New("the trace has no pods")
	}
	begin := time.Unix(0, 0).UTC()
	s := &simulation{
		Settings: settings,
		now:      begin,
		trace:    pods,
		fit:      map[[2]int64]bool{},
		byID:     map[string]*machine{},
		byUID:    map[string]*pod{},
		tick:     begin.Add(settings.Interval),
	}
	for _, p := range pods {
		if s.placeable(p.Requests) {
			s.left++
		} else {
			s.result.Unplaced = append(s.result.Unplaced, p.Name)
		}
	}
	s.skip()
	for range settings.Pool.MinStandby {
		m := s.launch("before the trace")
		s.become(m, cloud.InstanceStopped)
		s.mark(m, cloud.StateStandby)
		m.change++
	}
	s.sample()
	return s, nil
}

// next is when the next pod arrives.
func (s *simulation) next() time.Time { return time.Unix(0, 0).UTC().Add(s.trace[0].Arrival) }

// skip drops the pods that fit on no machine from the head of the trace.
func (s *simulation) skip() {
	for len(s.trace) > 0 && !s.placeable(s.trace[0].Requests) {
		s.trace, s.number = s.trace[1:], s.number+1
	}
}

// wait lets a pod wait, since then.
func (s *simulation) wait(p *pod, since time.Time) {
	p.since, p.machine = since, nil
	s.pending = append(s.pending, p)
	s.byUID[p.UID] = p
}

// event is something that happens at a time: a machine comes into a state, or a pod ends.
// One without either is a pass.
type event struct {
	at      time.Time
	order   int
	machine *machine
	becomes cloud.InstanceState
	change  int
	pod     *pod
	run     int
}

// later adds an event, and voids an earlier one of the same machine.
func (s *simulation) later(after time.Duration, e event) {
	e.at, e.order = s.now.Add(after), s.events.next
	s.events.next++
	if e.machine != nil {
		e.machine.change++
		e.change = e.machine.change
	}
	heap.Push(&s.events, e)
}

// run replays the whole trace.
func (s *simulation) run() (Result, error) {
	for s.left > 0 {
		at := s.tick
		sooner := func(t time.Time) {
			if !t.IsZero() && t.Before(at) {
				at = t
			}
		}
		sooner(s.wake)
		if len(s.trace) > 0 {
			sooner(s.next())
		}
		if s.events.Len() > 0 {
			sooner(s.events.all[0].at)
		}
		rest := !at.Before(s.tick)
		s.changed = s.diligent || rest && !s.quiet || !s.wake.IsZero() && !at.Before(s.wake)
		s.advance(at)
		passed, acted, err := s.happen()
		if err != nil {
			return Result{}, fmt.Errorf("%s after the beginning: %w", s.now.Sub(time.Unix(0, 0)), err)
		}
		s.quiet = s.quiet && !passed || passed && rest && !acted && len(s.pending) == 0
		s.sample()
	}
	return s.finish(), nil
}

// advance lets the time go by until then, in which nothing changes.
func (s *simulation) advance(at time.Time) {
	for state, n := range s.counts {
		s.spent[state] += time.Duration(n) * at.Sub(s.now)
	}
	s.now = at
	if !s.now.Before(s.tick) {
		s.tick = s.tick.Add(s.Interval)
	}
}

// happen takes what is due now, and makes passes until one has nothing to do. It reports
// whether there was a pass, and whether one did something.
func (s *simulation) happen() (passed, acted bool, err error) {
	for s.events.Len() > 0 && !s.events.all[0].at.After(s.now) {
		e, _ := heap.Pop(&s.events).(event)
		switch {
		case e.pod != nil && e.run == e.pod.run:
			e.pod.machine.take(e.pod, -1)
			s.changed = s.changed || e.pod.machine.node.Pods == 0
			s.waits = append(s.waits, e.pod.waited)
			s.left--
		case e.machine != nil && e.change == e.machine.change:
			s.become(e.machine, e.becomes)
			s.changed = true
		case e.machine == nil && e.pod == nil:
			s.changed = true
		}
	}
	for len(s.trace) > 0 && !s.next().After(s.now) {
		uid := fmt.Sprintf("%07d", s.number) // also as the name: in the order of the trace
		s.wait(&pod{Pod: demand.Pod{Name: uid, UID: uid, Requests: s.trace[0].Requests}, left: s.trace[0].Duration}, s.next())
		s.trace, s.number = s.trace[1:], s.number+1
		s.skip()
	}
	for range maxRounds {
		s.bind()
		if n := len(s.pending); !s.changed && (n == 0 || s.pending[n-1].decided) {
			return passed, acted, nil // a plan would equal the last one, which had nothing to do
		}
		s.changed, passed = true, true
		plan := s.Pool.Plan(s.observe(s.want()))
		s.memory, s.wake = plan.Memory, plan.Wake
		s.machines = slices.DeleteFunc(s.machines, func(m *machine) bool {
			gone := m.instance.State == cloud.InstanceTerminated
			if gone {
				s.moved = true
				delete(s.byID, m.instance.ID)
			}
			return gone
		})
		if len(plan.Actions) == 0 {
			return passed, acted, nil
		}
		acted = true
		for _, a := range plan.Actions {
			if err := s.carryOut(a); err != nil {
				return passed, acted, err
			}
		}
	}
	return passed, acted, errors.New("the plans do not come to rest")
}

// observe returns what a plan is made from.
func (s *simulation) observe(want cloud.Want) (seen cloud.Observed, wanted cloud.Want, now time.Time) {
	seen = cloud.Observed{Listed: s.now, LastOrdinal: s.ordinal, Memory: s.memory, Reserved: make(map[string]bool, len(s.reservations))}
	s.instances, s.nodes = s.instances[:0], s.nodes[:0]
	for _, m := range s.machines {
		s.instances = append(s.instances, m.instance)
		if m.node.ID != "" {
			s.nodes = append(s.nodes, m.node)
		}
	}
	for _, r := range s.reservations {
		seen.Reserved[r.Machine] = true
	}
	seen.Instances, seen.Nodes = s.instances, s.nodes
	return seen, want, s.now
}

// sample notes the machines and the pods that wait, if they have changed.
func (s *simulation) sample() {
	if s.moved {
		s.moved, s.counts = false, [states]int{}
		for _, m := range s.machines {
			s.counts[m.state()]++
		}
	}
	at, waiting := s.now.Sub(time.Unix(0, 0)), len(s.pending)
	if n := len(s.result.Samples); n > 0 {
		if last := s.result.Samples[n-1]; last.Line == waiting && slices.Equal(last.Counts, s.counts[:]) {
			return
		}
	}
	s.result.Samples = append(s.result.Samples, chart.Sample{At: at, Counts: slices.Clone(s.counts[:]), Line: waiting})
}

func (s *simulation) finish() Result {
	r := s.result
	r.Samples = append(r.Samples, chart.Sample{At: s.now.Sub(time.Unix(0, 0)), Counts: slices.Clone(s.counts[:]), Line: len(s.pending)})
	r.MinStandby, r.Pods, r.Hits = s.Pool.MinStandby, len(s.waits), s.hits
	if r.Pods > 0 {
		r.HitShare = float64(r.Hits) / float64(r.Pods)
	}
	r.Wait = waits(s.waits)
	h := func(state int) float64 { return s.spent[state].Hours() }
	r.Hours = Hours{Warming: h(warming), Starting: h(starting), Running: h(running), Stopping: h(stopping), Standby: h(standby)}
	r.Cost = r.Hours.Powered()*s.Price + r.Hours.Stopped()*s.PriceStopped
	r.Launched, r.Started, r.Evicted = s.launched, s.started, s.evicted
	return r
}

// events is a heap of events, the earliest first.
type events struct {
	all  []event
	next int
}

func (e *events) Len() int { return len(e.all) }
func (e *events) Less(i, j int) bool {
	return cmp.Or(e.all[i].at.Compare(e.all[j].at), cmp.Compare(e.all[i].order, e.all[j].order)) < 0
}
func (e *events) Swap(i, j int) { e.all[i], e.all[j] = e.all[j], e.all[i] }
func (e *events) Push(x any) {
	one, _ := x.(event)
	e.all = append(e.all, one)
}

func (e *events) Pop() any {
	last := e.all[len(e.all)-1]
	e.all = e.all[:len(e.all)-1]
	return last
}
