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
	// EventEpoch is another epoch of a scope, or of all: the log has lost commits,
	// or its database is another.
	EventEpoch EventKind = "epoch"
	// EventElected is this process beginning to number, EventLost is its end of
	// that by a failure.
	EventElected EventKind = "elected"
	EventLost    EventKind = "election-lost"
	// EventStuck is a queue that does not get shorter for 5 s, or for three times
	// Poll if that is longer. EventMoving is its end.
	EventStuck  EventKind = "stuck"
	EventMoving EventKind = "moving"
	// EventFull is a database without space on its disk.
	EventFull EventKind = "disk-full"
)

// Event is something that a person wants to hear of once, not with every retry.
type Event struct {
	Kind EventKind
	// Scope is that of an epoch. Empty: all scopes.
	Scope string
	// Err is the cause, if there is one.
	Err error
}

func (s *Store) happened(e Event) {
	if s.OnEvent != nil {
		s.OnEvent(e)
	}
}

// progress is what this process knows of the numbering of changes.
type progress struct {
	mu sync.Mutex
	// good is when the queue was last seen to be empty or moving. Zero before Start.
	good time.Time
	// seen is the newest snapshot whose rows are known to be moved.
	seen string
	// stuck and full tell that the event was reported and is not over.
	stuck, full bool
}

// moving notes that what was visible to the snapshot has been numbered, and returns
// whether the queue was stuck before.
func (p *progress) moving(seen string) (wasStuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wasStuck = p.stuck
	p.good, p.seen, p.stuck, p.full = time.Now(), seen, false, false
	return wasStuck
}

// failing notes an error, or nothing if there is none, and returns which of its
// events are new.
func (p *progress) failing(err error, patience time.Duration) (stuck, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stuck = !p.stuck && !p.good.IsZero() && time.Since(p.good) > patience
	full = !p.full && diskFull(err)
	p.stuck, p.full = p.stuck || stuck, p.full || full
	return stuck, full
}

// patience is how long the queue may stand still.
func (s *Store) patience() time.Duration { return max(s.statementLimit()/2, 3*s.poll()) }

// moving notes that the queue is empty or moves.
func (s *Store) moving(ctx context.Context, seen string) {
	if s.progress.moving(seen) {
		s.logger().WarnContext(ctx, "the queue moves again")
		s.happened(Event{Kind: EventMoving})
	}
}

// Stalled returns for how long the queue has not moved: since it was last seen, by
// this process, to be empty or to get shorter. Zero below the time in which that is
// seen, which is 5 s, or three times Poll if that is longer; before Start; and
// while all is well.
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

// Queue returns how many committed changes have no version yet, at most 100,000,
// and how long ago the oldest of them was written, which may be long before its
// commit. It is one query.
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

// diskFull reports whether err is the database's lack of space.
func diskFull(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		return postgres.SQLState() == "53100"
	}
	var lite interface{ Code() int }
	const full = 13
	return errors.As(err, &lite) && lite.Code()&0xff == full
}
