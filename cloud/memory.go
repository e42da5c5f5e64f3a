//trueup:pure

package cloud

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Memory is what a [Plan] passes to the next one: when states began. It can be
// marshalled as JSON. A process that has just started has the zero Memory.
type Memory struct {
	// Machines is the history of each machine, by id.
	Machines map[string]MachineHistory `json:"machines,omitempty"`
	// Failures is how many warm-ups have failed in a row, FailureReason the reason of
	// the last one.
	Failures      int    `json:"failures,omitempty"`
	FailureReason string `json:"failureReason,omitempty"`
	// LaunchAfter holds back launches until then.
	LaunchAfter time.Time `json:"launchAfter,omitzero"`
	// Refused is the last refusal of a launch, until one succeeds.
	Refused Refusal `json:"refused,omitzero"`
	// ThrottledUntil holds back calls to the cloud until then: launches, and each
	// action on a machine except evictions and the marks of empty ones.
	ThrottledUntil time.Time `json:"throttledUntil,omitzero"`
	// Blocked has the placements without capacity, and until when they are avoided.
	Blocked map[Placement]time.Time `json:"blocked,omitempty"`
	// Unseen has the recorded launches whose machines were not in a complete list, and
	// the time of that list.
	Unseen map[string]time.Time `json:"unseen,omitempty"`
	// SurplusSince is since when there are more standby machines than desired.
	SurplusSince time.Time `json:"surplusSince,omitzero"`
	// Braked and Spent are when the budget was last used, and how much of it.
	Braked time.Time `json:"braked,omitzero"`
	Spent  int       `json:"spent,omitempty"`
	// Repaired and Repairs are since when machines were drained because they lost
	// readiness, and how many, within an hour.
	Repaired time.Time `json:"repaired,omitzero"`
	Repairs  int       `json:"repairs,omitempty"`
}

// A MachineHistory is the observed history of one machine.
type MachineHistory struct {
	// State is the cloud's state since Since; empty for a machine that is in no list.
	State InstanceState `json:"state,omitempty"`
	Since time.Time     `json:"since"`
	// Listed reports that the machine was in a list once, or has a Node. Otherwise it
	// may be too young for a list that lags.
	Listed bool `json:"listed,omitempty"`
	// Recalled reports that an earlier process has known it, and this one has not seen it yet:
	// it may have ended meanwhile.
	Recalled bool `json:"recalled,omitempty"`
	// Ending reports that the cloud has accepted its termination: it may be in no list.
	Ending bool `json:"ending,omitempty"`
	// NoNode is since when it has had no Node, zero if it has one.
	NoNode time.Time `json:"noNode,omitzero"`
	// Nodeless reports that an earlier process has found it without a Node, when is not known.
	Nodeless bool `json:"nodeless,omitempty"`
	// Unready is since when its Node, which was ready since the last start, is not
	// ready; zero if it is.
	Unready time.Time `json:"unready,omitzero"`
	// Failed and Warm report how its warm-up ended.
	Failed bool `json:"failed,omitempty"`
	Warm   bool `json:"warm,omitempty"`
	// Spare is since when its pods have fitted on other Nodes, zero if they do not.
	Spare time.Time `json:"spare,omitzero"`
	// GaveUp is when its drain was given up last.
	GaveUp time.Time `json:"gaveUp,omitzero"`
}

// Recorded is what a process writes down of its [Memory] for the next one, such as in a status.
type Recorded struct {
	// Repaired and Repairs are the fields of Memory.
	Repaired time.Time
	Repairs  int
	// Machines are those that have no Node, by id: without them, the next process would not know
	// of a machine that a list lacks. What is about to end is better left out.
	Machines []string
}

// Memory returns the memory that a process begins with. A recorded machine counts until the cloud
// says that it is gone.
func (r Recorded) Memory() Memory {
	m := Memory{Repaired: r.Repaired, Repairs: r.Repairs, Machines: make(map[string]MachineHistory, len(r.Machines))}
	for _, id := range r.Machines {
		m.Machines[id] = MachineHistory{State: InstanceUnknown, Listed: true, Recalled: true, Nodeless: true}
	}
	return m
}

// A Refusal is why the cloud refuses launches, and how often it did so in a row.
type Refusal struct {
	Kind    HoldKind `json:"kind,omitempty"`
	Message string   `json:"message,omitempty"`
	Count   int      `json:"count,omitempty"`
}

// A Placement is a type of machine in a zone.
type Placement struct{ InstanceType, Zone string }

// MarshalText makes a Placement the key of a JSON object: "type@zone".
func (p Placement) MarshalText() ([]byte, error) { return []byte(p.InstanceType + "@" + p.Zone), nil }

// UnmarshalText parses the text of MarshalText.
func (p *Placement) UnmarshalText(text []byte) error {
	instanceType, zone, ok := strings.Cut(string(text), "@")
	if !ok {
		return fmt.Errorf("placement %q has no @", text)
	}
	*p = Placement{instanceType, zone}
	return nil
}

// IsBlocked reports whether the cloud had no capacity there a short while ago.
func (m Memory) IsBlocked(p Placement, now time.Time) bool {
	return now.Before(m.Blocked[p])
}

// Learn returns the memory updated by the results of a plan: that the cloud throttles,
// has no capacity, or refuses launches.
func (m Memory) Learn(results []Result, now time.Time) Memory {
	m = m.clone()
	maps.DeleteFunc(m.Blocked, func(_ Placement, until time.Time) bool { return !now.Before(until) })
	for _, r := range results {
		if throttled, ok := errors.AsType[*RateLimitError](r.Err); ok {
			m.ThrottledUntil = later(m.ThrottledUntil, now.Add(throttled.RetryAfter))
		}
		if errors.Is(r.Err, ErrNoCapacity) {
			place := r.Action.Placement
			if place.Zone == "" {
				if e, ok := errors.AsType[*CapacityError](r.Err); ok {
					place = Placement{e.InstanceType, e.Zone}
				}
			}
			m.Blocked[place] = now.Add(capacityBlock)
		}
		switch {
		case r.Action.Verb == Forget && r.Err == nil:
			delete(m.Machines, r.Action.Machine)
		case r.Action.Verb == Terminate && r.Err == nil:
			m.ending(r.Action.Machine)
		case r.Action.Verb != Launch:
		case errors.Is(r.Err, ErrQuotaExceeded):
			m.refuse(HoldQuota, r.Err, now)
		case errors.Is(r.Err, ErrRejected), errors.Is(r.Err, ErrTokenReused):
			m.refuse(HoldRejected, r.Err, now)
		case r.Err == nil:
			m.Refused = Refusal{}
		case !errors.Is(r.Err, ErrNoCapacity) && !errors.Is(r.Err, ErrThrottled):
			m.fail(r.Err, now)
		}
	}
	return m
}

func (m *Memory) ending(id string) {
	if h, known := m.Machines[id]; known {
		h.Ending = true
		m.Machines[id] = h
	}
}

func (m *Memory) refuse(kind HoldKind, err error, now time.Time) {
	if m.Refused.Kind == HoldLaunchFailed {
		m.Refused = Refusal{} // its first failures are not refusals
	}
	m.Refused = Refusal{Kind: kind, Message: err.Error(), Count: m.Refused.Count + 1}
	m.LaunchAfter = later(m.LaunchAfter, now.Add(min(minLaunchBackoff<<min(m.Refused.Count-1, 10), maxLaunchBackoff)))
}

// fail notes a launch that failed for a reason which the table of errors does not name. The
// first ones are repeated at once: an answer may have been lost.
func (m *Memory) fail(err error, now time.Time) {
	if m.Refused.Kind != HoldLaunchFailed {
		m.Refused = Refusal{Kind: HoldLaunchFailed}
	}
	m.Refused.Message, m.Refused.Count = err.Error(), m.Refused.Count+1
	if more := m.Refused.Count - failuresInRow; more >= 0 {
		m.LaunchAfter = later(m.LaunchAfter, now.Add(min(minLaunchBackoff<<min(more, 10), maxLaunchBackoff)))
	}
}

func (m Memory) clone() Memory {
	m.Machines = maps.Clone(m.Machines)
	m.Blocked = maps.Clone(m.Blocked)
	if m.Blocked == nil {
		m.Blocked = map[Placement]time.Time{}
	}
	m.Unseen = maps.Clone(m.Unseen)
	if m.Unseen == nil {
		m.Unseen = map[string]time.Time{}
	}
	return m
}

// A Hold is a reason why a plan holds actions back.
type Hold struct {
	Kind    HoldKind
	Message string // names the cause and the numbers
}

// HoldKind is a CamelCase word that fits the reason of a condition.
type HoldKind string

// The kinds of holds. Each clears itself when its cause ends.
const (
	HoldListFailed     HoldKind = "ListFailed"
	HoldShortList      HoldKind = "ShortList"
	HoldNodesNotReady  HoldKind = "NodesNotReady"
	HoldWarmupFailing  HoldKind = "WarmupFailing"
	HoldThrottled      HoldKind = "Throttled"
	HoldNoCapacity     HoldKind = "InsufficientCapacity"
	HoldQuota          HoldKind = "QuotaExceeded"
	HoldRejected       HoldKind = "LaunchRejected"
	HoldLaunchFailed   HoldKind = "LaunchFailed"
	HoldNodeMissing    HoldKind = "NodeMissing"
	HoldPoolFull       HoldKind = "PoolFull"
	HoldLaunchUnproven HoldKind = "LaunchUnproven"
)

// String renders the hold as one line.
func (b Hold) String() string { return fmt.Sprintf("%s: %s", b.Kind, b.Message) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
