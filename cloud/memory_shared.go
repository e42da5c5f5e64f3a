package cloud

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// SharedMemory keeps what a process knows of a pool from one pass to the next: the [Memory] and the
// last list. Machines may be started beside a pass, whose results it takes in as they come. It
// is safe for concurrent use, and its zero value is one that knows nothing.
//
// Losing it is safe: a new process lists the cloud first, and takes longer over what needs two
// observations.
type SharedMemory struct {
	mu     sync.Mutex
	memory Memory
	// passing is set while a pass runs. The pass works on a copy of memory and replaces it at
	// its end; late has the results of starts in the meantime, which are applied to the
	// replacement again.
	passing bool
	late    []Result
	// instances is the last list of the cloud, begun at listed, corrected by asked.
	instances []Instance
	listed    time.Time
	// asked has what the cloud has accepted of each machine: an older list does not show it.
	asked map[string]asked
}

// asked is the state that a machine goes to since a call that the cloud accepted. It is
// dropped with the first list that was begun after the call.
type asked struct {
	state InstanceState
	at    time.Time
}

// Begin returns the memory for a pass. Of a pool one pass runs at a time.
func (k *SharedMemory) Begin() Memory {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passing, k.late = true, nil
	return k.memory
}

// Recall adds to the memory what an earlier process has recorded. Call it before the first pass.
func (k *SharedMemory) Recall(r Recorded) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memory = r.Memory()
}

// End stores the memory of a pass, with the results of its actions, and adds those that came in
// during the pass.
func (k *SharedMemory) End(memory Memory, results []Result, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(results, now)
	k.memory = memory.Learn(k.late, now)
	k.passing, k.late = false, nil
}

// Learn takes in the results of starts outside of a pass.
func (k *SharedMemory) Learn(results []Result, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(results, now)
	k.memory = k.memory.Learn(results, now)
	if k.passing {
		k.late = append(k.late, results...)
	}
}

// note keeps what the cloud has accepted. The caller holds mu.
func (k *SharedMemory) note(results []Result, now time.Time) {
	states := map[Verb]InstanceState{
		Start:     InstancePending,
		Stop:      InstanceStopping,
		ForceStop: InstanceStopping,
		Terminate: InstanceShuttingDown,
	}
	for _, r := range results {
		if state := states[r.Action.Verb]; state != "" && (r.Err == nil || r.Accepted) {
			if k.asked == nil {
				k.asked = map[string]asked{}
			}
			k.asked[r.Action.Machine] = asked{state, now}
		}
	}
}

// Take stores a list of the cloud that was begun at listed, and returns it with what the cloud
// has accepted since then. It changes the instances.
func (k *SharedMemory) Take(instances []Instance, listed time.Time) []Instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.asked, func(_ string, a asked) bool { return a.at.Before(listed) })
	for i := range instances {
		if a, ok := k.asked[instances[i].ID]; ok && !instances[i].State.Ending() {
			instances[i].State = a.state
		}
	}
	k.instances, k.listed = instances, listed
	return instances
}

// List returns the last list that was taken, and when it was begun. It must not be changed.
func (k *SharedMemory) List() ([]Instance, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.instances, k.listed
}

// Instance returns a machine of the last list.
func (k *SharedMemory) Instance(id string) (Instance, bool) {
	instances, _ := k.List()
	i := slices.IndexFunc(instances, func(i Instance) bool { return i.ID == id })
	if i < 0 {
		return Instance{}, false
	}
	return instances[i], true
}

// IsBlocked reports whether the cloud had no capacity there a short while ago.
func (k *SharedMemory) IsBlocked(p Placement, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.IsBlocked(p, now)
}

// Room returns how many more machines the pool may launch now by the last plan, and what limits
// that, as [Plan.Room].
func (k *SharedMemory) Room(plan Plan, pool Pool, now time.Time) (room int, limit string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	plan.Memory = k.memory
	return plan.Room(pool, now)
}
