package cloudtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// A Fake is a cloud in memory. It implements [cloud.Provider] and every batch
// interface. The zero Fake works without faults: a machine changes its state
// within 100ms, in the one zone "zone-a".
//
// The fields are read while it works; change them only between calls. The methods are
// safe for concurrent use.
type Fake struct {
	// Transition is how long a machine is pending, stopping or shutting down.
	// Default 100ms.
	Transition time.Duration

	// Zones maps subnets to zones. A launch into another subnet is rejected.
	// Empty means that every subnet is in "zone-a".
	Zones map[string]string

	// ListLag is how far ListInstances lags behind. Other reads are up to date.
	ListLag time.Duration

	// Retention is how long a terminated machine is still reported. Default
	// one hour.
	Retention time.Duration

	// Forgets makes a terminated machine unknown at once, and its token with it.
	Forgets bool

	// Quota is how many machines may exist that are not terminated. 0 means any
	// number.
	Quota int

	// Capacity is how many machines may be pending or running in a place. A
	// place that is not in the map has no limit.
	Capacity map[cloud.Placement]int

	// Limits bound the rate of each operation, by the names in [cloud.Provider];
	// a batch counts as one call. An operation without a limit has none.
	Limits map[string]cloud.Bucket

	// Fault returns the fault of each call. Nil means no faults.
	Fault func(Call) Fault

	mu       sync.Mutex
	last     int
	machines map[string]*machine
	order    []string
	tokens   map[string]launch
	buckets  map[string]*bucketState
	calls    map[string]int
}

// A Call is one call of a provider's method, as [Fake.Fault] sees it.
type Call struct {
	Operation string // such as "StartInstance", also for a batch
	IDs       []string
	Token     string // of a launch
}

// A Fault is the fault of one call.
type Fault struct {
	// Err is returned instead of the answer.
	Err error
	// Lost carries the call out nevertheless, if Err is set.
	Lost bool
	// Twice carries the call out twice, as a network does that repeats a request.
	Twice bool
}

// machine is one instance and its history.
type machine struct {
	cloud.Instance
	config cloud.LaunchConfig
	// states and tags are its history, oldest first. A state in the future is a
	// transition under way.
	states []stateAt
	tags   []tagsAt
}

// stateAt is a state that a machine enters at a time.
type stateAt struct {
	at    time.Time
	state cloud.InstanceState
}

// tagsAt are all tags of a machine from a time on.
type tagsAt struct {
	at   time.Time
	tags map[string]string
}

// launch is what a token has launched. A second launch with the token returns the same
// machines, and is refused if its config differs.
type launch struct {
	config string
	ids    []string
}

func (f *Fake) transition() time.Duration {
	if f.Transition > 0 {
		return f.Transition
	}
	return 100 * time.Millisecond
}

func (f *Fake) retention() time.Duration {
	if f.Forgets {
		return -1
	}
	if f.Retention > 0 {
		return f.Retention
	}
	return time.Hour
}

// state is the machine's state at a time; empty before it existed.
func (m *machine) state(at time.Time) cloud.InstanceState {
	for _, e := range slices.Backward(m.states) {
		if !e.at.After(at) {
			return e.state
		}
	}
	return ""
}

// become begins a transition now, and drops any that is under way.
func (m *machine) become(now time.Time, first cloud.InstanceState, after time.Duration, then cloud.InstanceState) {
	m.states = slices.DeleteFunc(m.states, func(e stateAt) bool { return e.at.After(now) })
	m.states = append(m.states, stateAt{now, first}, stateAt{now.Add(after), then})
}

// at returns the machine as it was at a time.
func (m *machine) at(at time.Time) cloud.Instance {
	i := m.Instance
	i.State = m.state(at)
	for _, e := range slices.Backward(m.tags) {
		if !e.at.After(at) {
			i.Tags = e.tags // never changed; answers of the provider get a copy
			break
		}
	}
	if !i.State.Powered() {
		i.PublicIP = ""
	}
	return i
}

// known returns the machine, or ErrNotFound if the cloud no longer reports it.
func (f *Fake) known(id string, now time.Time) (*machine, error) {
	m, ok := f.machines[id]
	if !ok || f.forgotten(m, now) {
		return nil, fmt.Errorf("%s: %w", id, cloud.ErrNotFound)
	}
	return m, nil
}

// do carries out one call: the fault hook, the rate limit, and the operation, under the
// lock.
func (f *Fake) do(ctx context.Context, call Call, operation func(now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var fault Fault
	if f.Fault != nil {
		fault = f.Fault(call)
	}
	if fault.Err != nil && !fault.Lost {
		return fault.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.calls == nil {
		f.calls, f.machines, f.tokens, f.buckets = map[string]int{}, map[string]*machine{}, map[string]launch{}, map[string]*bucketState{}
	}
	f.calls[call.Operation]++
	if wait := f.limit(call.Operation, now); wait > 0 {
		return &cloud.RateLimitError{RetryAfter: wait}
	}
	err := operation(now)
	if fault.Twice {
		err = operation(now)
	}
	if fault.Err != nil {
		return fault.Err
	}
	return err
}

// Calls returns how many calls of each operation were made, refused ones
// included.
func (f *Fake) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// forgotten reports whether the machine was terminated so long ago that the cloud no
// longer reports it.
func (f *Fake) forgotten(m *machine, now time.Time) bool {
	last := m.states[len(m.states)-1]
	return last.state == cloud.InstanceTerminated && now.Sub(last.at) > f.retention()
}

// Instances returns every machine that the cloud reports now, without lag, oldest
// first, terminated ones included. Their tags must not be changed.
func (f *Fake) Instances() []cloud.Instance { return f.instances(false) }

// instances are Instances, and if so asked the terminated ones that the cloud Forgets: what
// ran on them has ended as well.
func (f *Fake) instances(forgotten bool) []cloud.Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	var out []cloud.Instance
	for _, id := range f.order {
		if m := f.machines[id]; forgotten && f.Forgets || !f.forgotten(m, now) {
			out = append(out, m.at(now))
		}
	}
	return out
}

// stateOf returns the state of a machine, without a call; empty for an unknown one.
func (f *Fake) stateOf(id string) cloud.InstanceState {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.known(id, time.Now())
	if err != nil {
		return ""
	}
	return m.state(time.Now())
}

// Shutdown stops a running machine from within, as its operating system does.
func (f *Fake) Shutdown(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stop(id, "Shutdown", time.Now())
}

// Interrupt terminates a machine from outside, such as by a spot interruption.
func (f *Fake) Interrupt(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.terminate(id, time.Now())
}

// Vanish makes the cloud forget a machine at once, whatever its state.
func (f *Fake) Vanish(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[id]; m != nil {
		m.states = []stateAt{{time.Now().Add(-f.retention() - 1), cloud.InstanceTerminated}}
	}
}

// Config returns what a machine was launched with.
func (f *Fake) Config(id string) cloud.LaunchConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[id]; m != nil {
		return m.config
	}
	return cloud.LaunchConfig{}
}
