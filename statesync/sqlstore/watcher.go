package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// lingers is how long the position of a scope is kept up to date after the last Wait
// for it: a reader reads a page and waits again.
const lingers = time.Minute

// watcher holds the positions of the scopes that callers wait for.
type watcher struct {
	mu     sync.Mutex
	scopes map[string]*watched
	// entered is the number of scopes so far, and polled the number of polls. A poll asks for the
	// scopes whose turn it is.
	entered, polled int
	all             bool            // ask for all scopes
	asked           map[string]bool // or these
	ask             chan struct{}
}

type watched struct {
	statesync.Position
	turn    int // the number of the scope
	known   bool
	changed chan struct{} // closed, and replaced, at every change
	waiting int
	used    time.Time // when the last caller left
	asking  *question // the query under way, if any
	// read is the newest mark that was read. The log must keep it.
	read statesync.Mark
	// confirmed is when the database last returned the head of the scope.
	confirmed time.Time
}

// question is one query for the position of a scope, shared by many callers.
type question struct {
	answered chan struct{} // closed when the fields below are set
	answer   statesync.Position
	err      error
	dropped  bool // the asking caller gave up: there is no answer
}

func newWatcher() watcher {
	return watcher{scopes: map[string]*watched{}, asked: map[string]bool{}, ask: make(chan struct{}, 1)}
}

// Wait implements [statesync.Log]. It needs Start to run in this process. The first
// wait for a scope costs a query, all others none, even concurrent ones: one query for
// each Poll serves all waits in this process. It returns an error when the database
// does not confirm the position within 5 s, or three times Poll if that is longer: a
// caller that waits on would mistake an old head for the newest.
func (s *Store) Wait(ctx context.Context, scope string, at statesync.Position) error {
	if err := s.ready(); err != nil {
		return err
	}
	w := s.watcher.enter(scope)
	defer s.watcher.leave(w)
	fresh := false // no question is under way that was asked before this call
	for {
		same, moved, changed := s.watcher.look(w, at)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case moved:
			return nil
		case same:
			unconfirmed := time.NewTimer(s.watcher.confirmedFor(w, s.patience()))
			select {
			case <-changed:
			case <-unconfirmed.C:
				s.watcher.doubt(w, s.patience())
			case <-ctx.Done():
			}
			unconfirmed.Stop()
			continue
		}
		// The position is unknown, or may be older than the caller's. The same holds
		// for the answer to a question that was asked before.
		q, mine := s.watcher.join(w)
		if mine {
			fresh = true
			q.answer, q.err = s.position(ctx, scope)
			q.dropped = ctx.Err() != nil
			s.watcher.answered(scope, w, q)
		}
		select {
		case <-q.answered:
		case <-ctx.Done():
			continue
		}
		switch {
		case !fresh || q.dropped:
		case q.err != nil:
			return fmt.Errorf("wait: %w", q.err)
		case q.answer.Epoch != at.Epoch || q.answer.Floor != at.Floor || q.answer.Head > at.Head || differ(q.answer, at):
			return nil
		}
		fresh = true
	}
}

// differ reports whether two positions of one version are of different histories.
func differ(a, b statesync.Position) bool {
	return a.Head == b.Head && a.Mark != (statesync.Mark{}) && b.Mark != (statesync.Mark{}) && a.Mark != b.Mark
}

// confirmedFor returns how long from now the position of e counts as confirmed.
func (w *watcher) confirmedFor(e *watched, patience time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(e.confirmed.Add(patience))
}

// doubt makes the callers that wait for e ask for themselves, unless its position was
// confirmed meanwhile.
func (w *watcher) doubt(e *watched, patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.known && time.Since(e.confirmed) >= patience {
		e.known = false
		e.announce()
	}
}

func (w *watcher) enter(scope string) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.scopes[scope]
	if e == nil {
		e = &watched{turn: w.entered, changed: make(chan struct{})}
		w.entered++
		w.scopes[scope] = e
	}
	e.waiting++
	return e
}

func (w *watcher) leave(e *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.waiting--
	e.used = time.Now()
}

// look returns whether e is at the position, or above it. If epochs, floors or marks
// differ, it cannot decide which is older.
func (w *watcher) look(e *watched, at statesync.Position) (same, moved bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alike := e.known && e.Epoch == at.Epoch && e.Floor == at.Floor && !differ(e.Position, at)
	return alike && e.Head <= at.Head, alike && e.Head > at.Head, e.changed
}

// join returns the question under way, or a new one that the caller must ask.
func (w *watcher) join(e *watched) (q *question, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.asking == nil {
		e.asking, mine = &question{answered: make(chan struct{})}, true
	}
	return e.asking, mine
}

func (w *watcher) answered(scope string, e *watched, q *question) {
	if q.err == nil {
		w.put(scope, q.answer)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.asking = nil
	close(q.answered)
}

// put stores a position that was read. Heads only rise in an epoch, so a position that
// arrives late does no harm.
func (w *watcher) put(scope string, p statesync.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.scopes[scope]
	if e == nil {
		return
	}
	e.confirmed = time.Now()
	if e.known && e.Epoch == p.Epoch {
		if e.Head > p.Head {
			p.Head, p.Mark = e.Head, e.Mark
		}
		p.Floor = max(p.Floor, e.Floor)
	}
	if p.Mark != (statesync.Mark{}) {
		e.read = p.Mark
	}
	if !e.known || e.Position != p {
		e.Position, e.known = p, true
		e.announce()
	}
}

// rise is put for the sequencer, which knows only the head. If no position is known, an
// older answer may be under way: the scope is asked for once more.
func (w *watcher) rise(scope string, head uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := w.scopes[scope]; {
	case e == nil:
	case !e.known:
		w.asked[scope] = true
		signal(w.ask)
	case head > e.Head:
		e.Head, e.Mark = head, statesync.Mark{}
		e.announce()
	}
}

func (e *watched) announce() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// stale requests the positions of the scopes, nil for all.
func (w *watcher) stale(scopes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || scopes == nil
	for _, scope := range scopes {
		w.asked[scope] = true
	}
	signal(w.ask)
}

// wanted returns the scopes to ask for: those with waiting callers that stale named, and for a poll
// those whose turn it is, of that many rounds; zero rounds are no poll. It drops scopes without a
// caller for a while.
func (w *watcher) wanted(rounds int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rounds > 0 {
		w.polled++
	}
	var scopes []string
	for scope, e := range w.scopes {
		switch {
		case e.waiting == 0 && time.Since(e.used) > lingers:
			delete(w.scopes, scope)
		case w.all, w.asked[scope], rounds > 0 && e.turn%rounds == w.polled%rounds:
			scopes = append(scopes, scope)
		}
	}
	w.all = false
	clear(w.asked)
	return scopes
}

// reads returns the newest mark read from each of the scopes.
func (w *watcher) reads(scopes []string) map[string]statesync.Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	marks := map[string]statesync.Mark{}
	for _, scope := range scopes {
		if e := w.scopes[scope]; e != nil {
			marks[scope] = e.read
		}
	}
	return marks
}

// known returns the known positions of the scopes.
func (w *watcher) known(scopes []string) map[string]statesync.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := map[string]statesync.Position{}
	for _, scope := range scopes {
		if e := w.scopes[scope]; e != nil && e.known {
			at[scope] = e.Position
		}
	}
	return at
}

// lost makes the callers that wait for the scopes ask for themselves.
func (w *watcher) lost(scopes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, scope := range scopes {
		if e := w.scopes[scope]; e != nil && e.known {
			e.known, e.read = false, statesync.Mark{}
			e.announce()
		}
	}
}
