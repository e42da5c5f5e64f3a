package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// lingers is how long the position of a scope is kept up to date for which
// nobody waits any more: a reader reads, and is back.
const lingers = time.Minute

// watcher knows the positions of the scopes that somebody waits for, however
// many do.
type watcher struct {
	mu     sync.Mutex
	scopes map[string]*watched
	all    bool            // everything is to be asked for
	asked  map[string]bool // or these
	ask    chan struct{}
}

type watched struct {
	statesync.Position
	known   bool
	changed chan struct{} // closed, and replaced, at every change
	waiting int
	used    time.Time // when the last left
	asking  *question // the one that is under way, if any
}

// question is one query for the position of a scope, that many may wait for.
type question struct {
	answered chan struct{} // closed when what follows is there
	answer   statesync.Position
	err      error
	dropped  bool // by the one who asked: nobody knows the answer
}

func newWatcher() watcher {
	return watcher{scopes: map[string]*watched{}, asked: map[string]bool{}, ask: make(chan struct{}, 1)}
}

// Wait is what [statesync.Log] says. It needs Start to run in this process. The
// first that waits for a scope costs a query, all others none, also those that
// come at once: one query for each Poll serves whoever waits in this process.
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
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		// Nothing is known, or something that may be older than what the caller
		// has read. So may be the answer to a question that somebody had asked
		// before.
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
		case q.answer.Epoch != at.Epoch || q.answer.Floor != at.Floor || q.answer.Head > at.Head:
			return nil
		}
		fresh = true
	}
}

func (w *watcher) enter(scope string) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.scopes[scope]
	if e == nil {
		e = &watched{changed: make(chan struct{})}
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

// look returns whether e is known to be at the position, or known to be above.
// Of an epoch or floor that differs, nobody knows here which one is older.
func (w *watcher) look(e *watched, at statesync.Position) (same, moved bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alike := e.known && e.Epoch == at.Epoch && e.Floor == at.Floor
	return alike && e.Head <= at.Head, alike && e.Head > at.Head, e.changed
}

// join returns the question that is under way, or a new one that the caller must
// put.
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

// put remembers a position that was read. Heads only rise in an epoch, so one
// that was read before another, and comes after it, does no harm.
func (w *watcher) put(scope string, p statesync.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.scopes[scope]
	if e == nil {
		return
	}
	if e.known && e.Epoch == p.Epoch {
		p.Head, p.Floor = max(p.Head, e.Head), max(p.Floor, e.Floor)
	}
	if !e.known || e.Position != p {
		e.Position, e.known = p, true
		e.announce()
	}
}

// rise is put by the sequencer, which knows the head alone.
func (w *watcher) rise(scope string, head uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.scopes[scope]; e != nil && e.known && head > e.Head {
		e.Head = head
		e.announce()
	}
}

func (e *watched) announce() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// stale asks for the positions of the scopes, nil for all.
func (w *watcher) stale(scopes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = w.all || scopes == nil
	for _, scope := range scopes {
		w.asked[scope] = true
	}
	signal(w.ask)
}

// wanted returns the scopes to ask for: all that somebody waits for, or those of
// them that stale named. It forgets those that nobody has waited for in a while.
func (w *watcher) wanted(all bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all = all || w.all
	var scopes []string
	for scope, e := range w.scopes {
		switch {
		case e.waiting == 0 && time.Since(e.used) > lingers:
			delete(w.scopes, scope)
		case all || w.asked[scope]:
			scopes = append(scopes, scope)
		}
	}
	w.all = false
	clear(w.asked)
	return scopes
}

// known returns what is known of the scopes.
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

// lost makes those that wait for the scopes ask for themselves.
func (w *watcher) lost(scopes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, scope := range scopes {
		if e := w.scopes[scope]; e != nil && e.known {
			e.known = false
			e.announce()
		}
	}
}

// watch keeps the watcher's positions up to date.
func (r *running) watch(ctx context.Context) error {
	return r.supervise(ctx, "watcher", func(ctx context.Context) error {
		poll := time.NewTicker(r.poll())
		defer poll.Stop()
		for {
			var all bool
			select {
			case <-ctx.Done():
				return nil
			case <-r.watcher.ask:
			case <-poll.C:
				all = true
			}
			scopes := r.watcher.wanted(all)
			if len(scopes) == 0 {
				continue
			}
			if err := r.refresh(ctx, scopes); err != nil {
				r.watcher.stale(nil)
				return err
			}
		}
	})
}

func (s *Store) refresh(ctx context.Context, scopes []string) error {
	list, err := json.Marshal(scopes)
	if err != nil {
		return err
	}
	type at struct {
		statesync.Position
		scope string
	}
	before := s.watcher.known(scopes)
	found, err := collect(ctx, s.readDB(), func(row *sql.Rows, p *at) error {
		return row.Scan(&p.scope, &p.Epoch, &p.Floor, &p.Head)
	}, s.sql.positions, string(list))
	if err != nil {
		return fmt.Errorf("positions: %w", err)
	}
	there := map[string]bool{}
	for _, p := range found {
		there[p.scope] = true
		if known := before[p.scope]; known.Epoch == p.Epoch && known.Head > p.Head {
			err := s.transact(ctx, func(tx *sql.Tx) error {
				_, err := s.renew(ctx, tx, p.scope, p.Epoch, known.Head)
				return err
			})
			if err != nil {
				return fmt.Errorf("scope %q: %w", p.scope, err)
			}
			s.watcher.lost([]string{p.scope})
			continue
		}
		s.watcher.put(p.scope, p.Position)
	}
	s.watcher.lost(slices.DeleteFunc(scopes, func(scope string) bool { return there[scope] }))
	return nil
}
