//trueup:pure

package cloud

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Memory is what a [Plan] passes to the next one: since when things are as they
// are. It can be marshalled as JSON. The zero Memory is that of a process that
// has just started.
type Memory struct {
	// Machines is what was seen of each machine, by id.
	Machines map[string]Sighting `json:"machines,omitempty"`
	// Failures is how many warm-ups have failed in a row, FailureReason why the
	// last one did.
	Failures      int    `json:"failures,omitempty"`
	FailureReason string `json:"failureReason,omitempty"`
	// LaunchAfter holds launches back until then.
	LaunchAfter time.Time `json:"launchAfter,omitzero"`
	// Refused is the last refusal of a launch, until one succeeds.
	Refused Refusal `json:"refused,omitzero"`
	// ThrottledUntil holds every call to the cloud back until then.
	ThrottledUntil time.Time `json:"throttledUntil,omitzero"`
	// Blocked has what the cloud had no machines of, and until when that is
	// believed.
	Blocked map[Placement]time.Time `json:"blocked,omitempty"`
	// Unseen has the recorded launches whose machines were not in a complete
	// list, and when that list was made.
	Unseen map[string]time.Time `json:"unseen,omitempty"`
	// SurplusSince is since when there are more standby machines than wanted.
	SurplusSince time.Time `json:"surplusSince,omitzero"`
	// Braked and Spent are when the budget was touched last, and how much.
	Braked time.Time `json:"braked,omitzero"`
	Spent  int       `json:"spent,omitempty"`
}

// A Sighting is what was seen of one machine.
type Sighting struct {
	// State is what the cloud reports since Since; empty for a machine that is
	// in no list.
	State InstanceState `json:"state,omitempty"`
	Since time.Time     `json:"since"`
	// Listed reports that the machine was in a list once, or has a Node. One that
	// was not may be too young for a list that lags.
	Listed bool `json:"listed,omitempty"`
	// NoNode is since when it has had no Node, zero if it has one.
	NoNode time.Time `json:"noNode,omitzero"`
	// Failed and Warm report how its warm-up ended.
	Failed bool `json:"failed,omitempty"`
	Warm   bool `json:"warm,omitempty"`
	// GaveUp is when its drain was given up last.
	GaveUp time.Time `json:"gaveUp,omitzero"`
}

// A Refusal is why the cloud does not launch, and how often it did so in a row.
type Refusal struct {
	Kind    BrakeKind `json:"kind,omitempty"`
	Message string    `json:"message,omitempty"`
	Count   int       `json:"count,omitempty"`
}

// A Placement is a type of machine in a zone.
type Placement struct{ InstanceType, Zone string }

// MarshalText makes a Placement the key of a JSON object: "type@zone".
func (p Placement) MarshalText() ([]byte, error) { return []byte(p.InstanceType + "@" + p.Zone), nil }

// UnmarshalText reads what MarshalText wrote.
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

// Learn returns the memory with what the results of a plan say about the cloud:
// that it throttles, has no capacity, or refuses launches.
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
		case r.Action.Verb != Launch:
		case errors.Is(r.Err, ErrQuotaExceeded):
			m.refuse(BrakeQuota, r.Err, now)
		case errors.Is(r.Err, ErrRejected), errors.Is(r.Err, ErrTokenReused):
			m.refuse(BrakeRejected, r.Err, now)
		case r.Err == nil:
			m.Refused = Refusal{}
		}
	}
	return m
}

func (m *Memory) refuse(kind BrakeKind, err error, now time.Time) {
	m.Refused = Refusal{Kind: kind, Message: err.Error(), Count: m.Refused.Count + 1}
	m.LaunchAfter = later(m.LaunchAfter, now.Add(min(minLaunchBackoff<<min(m.Refused.Count-1, 10), maxLaunchBackoff)))
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

// A Brake is why a plan does less than it would.
type Brake struct {
	Kind    BrakeKind
	Message string // names the cause and the numbers
}

// BrakeKind is a CamelCase word that fits the reason of a condition.
type BrakeKind string

// The kinds of brakes. Each clears itself when its cause is gone.
const (
	BrakeListFailed     BrakeKind = "ListFailed"
	BrakeShortList      BrakeKind = "ShortList"
	BrakeWarmupFailing  BrakeKind = "WarmupFailing"
	BrakeThrottled      BrakeKind = "Throttled"
	BrakeNoCapacity     BrakeKind = "InsufficientCapacity"
	BrakeQuota          BrakeKind = "QuotaExceeded"
	BrakeRejected       BrakeKind = "LaunchRejected"
	BrakePoolFull       BrakeKind = "PoolFull"
	BrakeLaunchUnproven BrakeKind = "LaunchUnproven"
)

// String renders the brake as one line.
func (b Brake) String() string { return fmt.Sprintf("%s: %s", b.Kind, b.Message) }
