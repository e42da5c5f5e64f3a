package apply

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// An object that is repaired more than fightLimit times within fightWindow is
// fought over.
const (
	fightLimit  = 5
	fightWindow = 10 * time.Minute
)

// FightError reports that another program changes an object back after each repair, or
// deletes it after each creation. The object is left as it is for now, and repaired
// once after 30 seconds, then after a minute, up to five minutes. The fight is over
// when no repair has been due for ten minutes.
type FightError struct {
	// Repairs counts the repairs, or creations, so far.
	Repairs int
	// Retry is how long the object is left alone from now on.
	Retry time.Duration
	// Deleted is whether the object was deleted each time, not changed.
	Deleted bool
	// Hint names a field of the desired object that may be the cause, empty if there
	// is none.
	Hint string
	// Conflicts names the fields and who owns them. It is empty when they have no
	// other owner: they are removed, or applied under our own manager's name.
	Conflicts []Conflict
}

func (e *FightError) Error() string {
	if e.Deleted {
		text := fmt.Sprintf("deleted after each of %d creations", e.Repairs)
		if e.Hint != "" {
			text += "; " + e.Hint
		}
		return text
	}
	by := "no other manager owns the changed fields: they are removed each time, or changed under our own manager's name"
	if len(e.Conflicts) > 0 {
		by = (&ConflictError{e.Conflicts}).Error()
	}
	return fmt.Sprintf("changed back after each of %d repairs; %s", e.Repairs, by)
}

// fights remembers the objects that were repaired not long ago.
type fights struct {
	mu    sync.Mutex
	by    map[ID]*fight
	swept int // fights left after the last sweep
}

type fight struct {
	last      time.Time // time when a repair was last due
	repairs   int
	asked     bool // the server has been asked for the other manager
	deleted   bool
	conflicts []Conflict
	until     time.Time // no request before
	delay     time.Duration
}

// enter is called when a repair is due. It returns whether to use force: the first
// repair beyond the limit does not, because the server's refusal names the owners. An
// error means that the object must be left alone.
func (f *fights) enter(id ID, now time.Time, deleted bool) (force bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.by[id]
	if at == nil || now.Sub(at.last) >= fightWindow {
		at = &fight{delay: firstDelay}
		f.sweep(now)
		f.by[id] = at
	}
	at.last, at.deleted = now, deleted
	switch {
	case at.repairs < fightLimit:
		at.repairs++
		return true, nil
	case now.Before(at.until):
		return false, at.error(now)
	case deleted && at.until.IsZero():
		at.wait(now)
		return false, at.error(now)
	case !deleted && !at.asked:
		at.asked = true
		return false, nil
	default:
		at.repairs++
		at.wait(now)
		return true, nil
	}
}

// failed takes back a repair that was not made: no other program has undone it.
func (f *fights) failed(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.by[id]; at != nil {
		at.repairs--
	}
}

// leave takes the outcome of the repair without force.
func (f *fights) leave(id ID, now time.Time, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.by[id]
	if at == nil {
		return err
	}
	at.wait(now)
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		at.conflicts = conflict.Conflicts
		return at.error(now)
	}
	return err
}

// contested counts the fights that are not over.
func (f *fights) contested(now time.Time) (count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.by {
		if !at.until.IsZero() && now.Sub(at.last) < fightWindow {
			count++
		}
	}
	return count
}

func (at *fight) error(now time.Time) *FightError {
	return &FightError{Repairs: at.repairs, Retry: at.until.Sub(now), Deleted: at.deleted, Conflicts: at.conflicts}
}

func (at *fight) wait(now time.Time) {
	at.until, at.delay = now.Add(at.delay), min(2*at.delay, maxDelay)
}

// sweep drops the fights that are over, now and then. The lock is held.
func (f *fights) sweep(now time.Time) {
	if f.by == nil {
		f.by = map[ID]*fight{}
	}
	if len(f.by) < 2*f.swept+minSwept {
		return
	}
	for id, at := range f.by {
		if now.Sub(at.last) >= fightWindow {
			delete(f.by, id)
		}
	}
	f.swept = len(f.by)
}

// forget drops the memory of an object.
func (f *fights) forget(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.by, id)
}
