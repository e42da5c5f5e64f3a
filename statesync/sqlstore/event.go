package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	// EventEpoch is a new epoch of a scope, or of all: the log has lost commits, or its
	// database was replaced.
	EventEpoch EventKind = "epoch"
	// EventElected: this process has become the sequencer's leader. EventLost: it has
	// lost leadership by a failure.
	EventElected EventKind = "elected"
	EventLost    EventKind = "election-lost"
	// EventStuck is a queue that has not got shorter for 5 s, or for three times Poll
	// if that is longer. EventMoving: it is moving again.
	EventStuck  EventKind = "stuck"
	EventMoving EventKind = "moving"
	// EventFull is a database without space on its disk.
	EventFull EventKind = "disk-full"
)

// Event is an incident for an operator, reported once and not with every retry.
type Event struct {
	Kind EventKind
	// Scope is the scope of a new epoch. Empty: all scopes.
	Scope string
	// Err is the cause, if there is one.
	Err error
}

func (s *Store) happened(e Event) {
	if s.OnEvent != nil {
		s.OnEvent(e)
	}
}

// progress is this process's record of the sequencer's progress.
type progress struct {
	mu sync.Mutex
	// good is when the queue was last seen to be empty or moving. Zero before Start.
	good time.Time
	// seen is the newest snapshot whose rows were moved.
	seen string
	// stuck and full are set while a reported event lasts.
	stuck, full bool
}

// moving records that all rows visible to the snapshot have versions, and returns
// whether the queue was stuck before.
func (p *progress) moving(seen string) (wasStuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wasStuck = p.stuck
	p.good, p.seen, p.stuck, p.full = time.Now(), seen, false, false
	return wasStuck
}

// failing records an error, or nil, and returns which of its events are new.
func (p *progress) failing(err error, patience time.Duration) (stuck, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stuck = !p.stuck && !p.good.IsZero() && time.Since(p.good) > patience
	full = !p.full && diskFull(err)
	p.stuck, p.full = p.stuck || stuck, p.full || full
	return stuck, full
}

// patience is how long the queue may not move before it is stuck.
func (s *Store) patience() time.Duration { return max(s.statementLimit()/2, 3*s.poll()) }

// moving records that the queue is empty or moves.
func (s *Store) moving(ctx context.Context, seen string) {
	if s.progress.moving(seen) {
		s.logger().WarnContext(ctx, "sequencer recovered")
		s.happened(Event{Kind: EventMoving})
	}
}

// Stalled returns for how long the queue has not moved: since this process last saw it
// empty or shorter. It returns zero for less than 5 s, or than three times Poll if that
// is longer, and before Start.
func (s *Store) Stalled() time.Duration {
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	if s.progress.good.IsZero() {
		return 0
	}
	if stalled := time.Since(s.progress.good); stalled > s.patience() {
		return stalled
	}
	return 0
}

// Queue returns how many committed changes have no version yet, at most 100,000, and
// how long ago the oldest of them was written, perhaps long before its commit. It is
// one query.
func (s *Store) Queue(ctx context.Context) (depth int, oldest time.Duration, err error) {
	if err := s.ready(); err != nil {
		return 0, 0, err
	}
	s.progress.mu.Lock()
	seen := s.progress.seen
	s.progress.mu.Unlock()
	if seen == "" {
		seen = nothingSeen
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	var millis sql.NullInt64
	if err := s.readDB().QueryRowContext(ctx, s.sql.queued, seen).Scan(&depth, &millis); err != nil {
		return 0, 0, fmt.Errorf("queue: %w", err)
	}
	return depth, time.Duration(max(0, millis.Int64)) * time.Millisecond, nil
}

// diskFull reports whether the database has no space left.
func diskFull(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		return postgres.SQLState() == "53100"
	}
	var lite interface{ Code() int }
	const full = 13
	return errors.As(err, &lite) && lite.Code()&0xff == full
}
