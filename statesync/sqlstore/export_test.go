package sqlstore

import (
	"context"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// MarkRead returns the newest mark of the scope that was read.
func MarkRead(s *Store, scope string) statesync.Mark { return s.watcher.reads([]string{scope})[scope] }

// Waiting returns how many wait for the scope.
func Waiting(s *Store, scope string) int {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	if e := s.watcher.scopes[scope]; e != nil {
		return e.waiting
	}
	return 0
}

// SetMaxBatch sets how many changes a batch has at most. It must be called before
// the first use but for Migrate.
func SetMaxBatch(s *Store, n int) {
	s.maxBatch = n
	_ = s.ready()
	s.sql = s.Dialect.statements(s.prefix(), s.batchRows())
}

// SetLimit sets how long a statement may take.
func SetLimit(s *Store, limit time.Duration) { s.limit = limit }

// Fail has the store note a failure of its sequencer, as if it had last moved that
// long ago, and Move that it moves.
func Fail(ctx context.Context, s *Store, err error, ago time.Duration) {
	s.progress.mu.Lock()
	if s.progress.good.IsZero() {
		s.progress.good = time.Now().Add(-ago)
	}
	s.progress.mu.Unlock()
	(&running{store: s}).failing(ctx, err)
}

// Move has the store note that its queue moves.
func Move(ctx context.Context, s *Store) { s.moving(ctx, nothingSeen) }

// Sequencing returns the statements of the sequencer: the lock that a batch begins with,
// and those that look for what waits and move it.
func Sequencing(s *Store) (lock, waiting, move string) {
	_ = s.ready()
	return s.sql.lock, s.sql.waiting, s.sql.move
}

// Polled returns the scopes that each of the polls asks for if all are waited for.
func Polled(scopes []string, rounds int) [][]string {
	w := newWatcher()
	for _, scope := range scopes {
		w.enter(scope)
	}
	polls := make([][]string, rounds)
	for n := range polls {
		polls[n] = w.wanted(rounds)
	}
	return polls
}

// Rounds returns over how many polls a process spreads its scopes.
func Rounds(s *Store, acts, listens bool) int {
	_ = s.ready()
	r := &running{store: s}
	r.acts.Store(acts)
	r.listens.Store(listens)
	return r.rounds()
}

// Listening runs the listener of a process until ctx ends, and returns over how many polls the process
// spreads its scopes meanwhile.
func Listening(ctx context.Context, s *Store) (rounds func() int, wait func() error) {
	_ = s.ready()
	r, ended := &running{store: s}, make(chan error, 1)
	go func() { ended <- r.listen(ctx) }()
	return r.rounds, func() error { return <-ended }
}
