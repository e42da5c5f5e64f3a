package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// watch keeps the watcher's positions up to date.
func (r *running) watch(ctx context.Context) error {
	s := r.store
	return r.supervise(ctx, "watcher", func(ctx context.Context) error {
		poll := time.NewTicker(s.poll())
		defer poll.Stop()
		for {
			rounds := 0
			select {
			case <-ctx.Done():
				return nil
			case <-s.watcher.ask:
			case <-poll.C:
				rounds = r.rounds()
			}
			scopes := s.watcher.wanted(rounds)
			if len(scopes) == 0 {
				continue
			}
			if err := s.refresh(ctx, scopes); err != nil {
				s.watcher.stale(nil)
				return err
			}
		}
	})
}

// rounds is over how many polls the scopes are spread. A process that sequences, or listens to the
// one that does, learns of changes by itself: polling only confirms what it knows, and finds a
// restored database.
func (r *running) rounds() int {
	if r.store.Dialect != PostgreSQL || !r.acts.Load() && !r.listens.Load() {
		return 1
	}
	return max(1, min(maxRounds, int(r.store.patience()/2/r.store.poll())))
}

// maxRounds bounds how long a change is not seen whose notification is lost.
const maxRounds = 8

// found is the position of a scope, and its mark at the version of the newest mark that
// was read.
type found struct {
	place
	scope string
	since sql.NullInt64
}

// refresh reads the positions of the scopes. A scope whose head has fallen, or that no
// longer has the mark that was read from it, has lost commits and gets a new epoch.
func (s *Store) refresh(ctx context.Context, scopes []string) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	type question struct {
		Scope string `json:"scope"`
		At    uint64 `json:"at"`
	}
	before, marks := s.watcher.known(scopes), s.watcher.reads(scopes)
	questions := make([]question, len(scopes))
	for n, scope := range scopes {
		questions[n] = question{scope, marks[scope].Version}
	}
	list, err := json.Marshal(questions)
	if err != nil {
		return err
	}
	answers, err := collect(ctx, s.readDB(), func(row *sql.Rows, f *found) error {
		return row.Scan(append(append([]any{&f.scope}, f.into()...), &f.since)...)
	}, s.sql.positions, string(list))
	if err != nil {
		return fmt.Errorf("positions: %w", err)
	}
	there := map[string]bool{}
	for _, f := range answers {
		there[f.scope] = true
		at := f.position(f.scope)
		why := ""
		switch mark := marks[f.scope]; {
		case before[f.scope].Epoch != at.Epoch:
		case before[f.scope].Head > at.Head:
			why = "the head has fallen"
		case mark != (statesync.Mark{}) && mark.Version >= at.Floor && seal(f.secret, f.scope, mark.Version, f.since.Int64) != mark:
			why = "the mark that was read last is not there"
		}
		if why == "" {
			s.watcher.put(f.scope, at)
			continue
		}
		err := s.transact(ctx, func(tx *sql.Tx) error {
			return s.renew(ctx, tx, f.scope, at.Epoch, why, s.sql.otherEpoch)
		})
		if err != nil {
			return fmt.Errorf("scope %q: %w", f.scope, err)
		}
		s.watcher.lost([]string{f.scope})
	}
	s.watcher.lost(slices.DeleteFunc(scopes, func(scope string) bool { return there[scope] }))
	return nil
}
