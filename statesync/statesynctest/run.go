package statesynctest

import (
	"context"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Limit is how long a subtest of Run or RunServer waits for an expected result. A
// correct store is far below it on any machine, and a wrong one is found within a
// minute.
const Limit = 45 * time.Second

// Store is a store as Run drives it. A nil func skips the subtests that need it.
type Store struct {
	// Log is the log under test. Required.
	Log statesync.Log
	// AddScope makes a scope, empty, unless it exists. It may take effect later.
	// Required.
	AddScope func(ctx context.Context, scope string) error
	// Commit commits the changes in one transaction. They may become readable
	// later. Required.
	Commit func(ctx context.Context, changes []statesync.Change) error
	// Begin opens a transaction beside others.
	Begin func(ctx context.Context) (Tx, error)
	// Exclusive reports that a transaction which has appended makes the others
	// wait until it ends, so that two never overlap.
	Exclusive bool
	// Readers is tested too, if it is not nil.
	Readers statesync.Readers
	// Lease is how long a reader can hold back Prune. The suite reports and prunes
	// within it, so it must be above Limit.
	Lease time.Duration
	// Prune drops every tombstone of scope that the readers permit, whatever its age.
	// It needs Readers.
	Prune func(ctx context.Context, scope string) error
	// NewEpoch begins another epoch, as after a restore.
	NewEpoch func(ctx context.Context, scope string) error
}

// Tx is an open transaction.
type Tx interface {
	// Append adds changes.
	Append(ctx context.Context, changes ...statesync.Change) error
	// Commit makes them durable, and readable soon.
	Commit() error
	// Rollback forgets them.
	Rollback() error
}

// Run tests stores that open returns, a new and empty one for each subtest.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if c.lacks != nil {
				if what := c.lacks(s); what != "" {
					t.Skip("the store has no " + what)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), Limit)
			defer cancel()
			if err := c.run(ctx, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is a subtest.
type check struct {
	name string
	// lacks returns which field of the store the check needs and does not find.
	lacks func(Store) string
	run   func(context.Context, Store) error
}

// checks returns the contract of a Store, one sentence each. What a store lacks is optional:
// Run skips the check.
func checks() []check {
	return []check{
		{"versions are consecutive and follow the order of commits", nil, consecutive},
		{"only the newest state of a key is kept", nil, newestPerKey},
		{"a deletion leaves a tombstone", nil, tombstones},
		{"values come back byte for byte", nil, values},
		{"a large commit is complete", nil, largeCommit},
		{"a commit is readable as a whole or not at all", nil, atomic},
		{"concurrent writers skip nothing", nil, concurrentWriters},
		{"pages are complete and report whether there is more", nil, paging},
		{"an unknown scope is not an empty one", nil, unknownScope},
		{"scopes do not influence each other", nil, separateScopes},
		{"what cannot be taken is refused as a whole", nil, refuses},
		{"a limit must be above zero", nil, refusesLimit},
		{"wait returns at once when the log has moved on", nil, waitEarly},
		{"wait returns when something is committed", nil, waitWakes},
		{"wait serves many", nil, waitMany},
		{"wait ends with its context", nil, waitEnds},
		{"a late commit is not skipped", lacksOverlap, reversed},
		{"a stalled transaction delays no other", lacksOverlap, stalled},
		{"a rollback leaves no trace", lacksBegin, rollback},
		{"an open transaction is invisible", lacksBegin, invisible},
		{"of two reports the later one stays", lacksReaders, reports},
		{"reports are checked", lacksReaders, refusesReports},
		{"readers are listed by scope, sorted", lacksReaders, listsReaders},
		{"pruning waits for readers", lacksPrune, prunes},
		{"pruning keeps live items, and the head", lacksPrune, prunesDeadOnly},
		{"wait returns when the floor rises", lacksPrune, waitFloor},
		{"another epoch keeps the items", lacksEpoch, epochs},
		{"wait returns when the epoch changes", lacksEpoch, waitEpoch},
		{"each batch leaves a mark", lacksMarks, leavesMarks},
		{"marks are kept from the floor up", lacksMarksOrPrune, prunesMarks},
	}
}

func lacksBegin(s Store) string {
	if s.Begin == nil {
		return "Begin"
	}
	return ""
}

func lacksOverlap(s Store) string {
	if s.Begin != nil && s.Exclusive {
		return "transactions that overlap"
	}
	return lacksBegin(s)
}

func lacksReaders(s Store) string {
	if s.Readers == nil {
		return "Readers"
	}
	return ""
}

func lacksPrune(s Store) string {
	if s.Prune == nil {
		return "Prune"
	}
	return lacksReaders(s)
}

func lacksEpoch(s Store) string {
	if s.NewEpoch == nil {
		return "NewEpoch"
	}
	return ""
}
