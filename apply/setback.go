package apply

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// setback is an attempt on an object that a mere repetition will not better: it
// is invalid, or its name is taken. Until something changes, it is repeated
// with growing delays, and the passes in between report it without a request.
type setback struct {
	result Result
	hash   diff.Sum // of the object wanted
	seen   diff.Sum // of what we owned of the live one
	policy policy
	delay  time.Duration
	until  time.Time
}

// The first delay after a setback, and the longest.
const (
	firstDelay = 30 * time.Second
	mostDelay  = 5 * time.Minute
)

// standing returns the setback of an object if it still stands.
func (a *Applier) standing(it *item, seen diff.Sum, now time.Time) (Result, bool) {
	s, ok := a.setbacks[it.id]
	if !ok || s.hash != it.hash || s.seen != seen || s.policy != a.policy() || !now.Before(s.until) {
		return Result{}, false
	}
	return s.result, true
}

// settle remembers how an attempt ended.
func (a *Applier) settle(it *item, seen diff.Sum, result Result, now time.Time) {
	if !lasting(result.Err) {
		delete(a.setbacks, it.id)
		return
	}
	if a.setbacks == nil {
		a.setbacks = map[ID]setback{}
	}
	delay := firstDelay
	if last, ok := a.setbacks[it.id]; ok && last.hash == it.hash && last.seen == seen {
		delay = min(2*last.delay, mostDelay)
	}
	a.setbacks[it.id] = setback{result: result, hash: it.hash, seen: seen, policy: a.policy(), delay: delay, until: now.Add(delay)}
}

// policy is what the caller decides about objects of others.
type policy struct {
	adopt     bool
	conflicts ConflictPolicy
}

func (a *Applier) policy() policy { return policy{a.Adopt, a.Conflicts} }

// lasting reports an error that is about the object, not about the moment.
func lasting(err error) bool {
	_, conflict := errors.AsType[*ConflictError](err)
	return conflict || errors.Is(err, ErrNotOurs) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// forget drops the setbacks of objects that are no longer wanted.
func (a *Applier) forget(set *Set) {
	for id := range a.setbacks {
		if !set.Has(id) {
			delete(a.setbacks, id)
		}
	}
}
