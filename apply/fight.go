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

// FightError says that another program changes an object back each time that it
// is repaired. The object is left as it is for now, and repaired once after 30
// seconds, then after a minute, up to five, until that lasts: nothing is due for
// ten minutes.
type FightError struct {
	// Repairs is how often the object was repaired.
	Repairs int
	// Conflicts names the fields and who owns them. It is empty when nobody owns
	// them: somebody removes them, or applies under our own manager's name.
	Conflicts []Conflict
}

func (e *FightError) Error() string {
	by := "no other manager owns what was changed, so it is removed each time, or changed under our own manager's name"
	if len(e.Conflicts) > 0 {
		by = (&ConflictError{e.Conflicts}).Error()
	}
	return fmt.Sprintf("changed back after each of %d repairs; %s", e.Repairs, by)
}

// fights knows the objects that were repaired not long ago.
type fights struct {
	mu sync.Mutex
	by map[ID]*fight
}

type fight struct {
	last      time.Time // when a repair was due
	repairs   int
	asked     bool // the server has been asked who it is
	conflicts []Conflict
	until     time.Time // nothing is sent before
	delay     time.Duration
}

// enter is called when a repair is due. It says whether to use force: the first
// repair beyond the limit does not, because the server's refusal names who owns
// what. An error means that the object is left alone.
func (f *fights) enter(id ID, now time.Time) (force bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.by[id]
	if at == nil || now.Sub(at.last) >= fightWindow {
		at = &fight{delay: firstDelay}
		if f.by == nil {
			f.by = map[ID]*fight{}
		}
		f.by[id] = at
	}
	at.last = now
	switch {
	case at.repairs < fightLimit:
		at.repairs++
		return true, nil
	case !at.asked:
		at.asked = true
		return false, nil
	case now.Before(at.until):
		return false, &FightError{Repairs: at.repairs, Conflicts: at.conflicts}
	default:
		at.repairs++
		at.wait(now)
		return true, nil
	}
}

// leave takes the outcome of the repair without force.
func (f *fights) leave(id ID, now time.Time, action Action, err error) (Action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.by[id]
	at.wait(now)
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		at.conflicts = conflict.Conflicts
		return Refused, &FightError{Repairs: at.repairs, Conflicts: at.conflicts}
	}
	return action, err
}

func (at *fight) wait(now time.Time) {
	at.until, at.delay = now.Add(at.delay), min(2*at.delay, mostDelay)
}

// forget drops the fights that are over, and those over objects not wanted.
func (f *fights) forget(now time.Time, set *Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, at := range f.by {
		if now.Sub(at.last) >= fightWindow || !set.Has(id) {
			delete(f.by, id)
		}
	}
}
