package apply

import (
	"errors"
	"strings"
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
	if !lasting(result) {
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
	adoption  AdoptionPolicy
	conflicts ConflictPolicy
}

func (a *Applier) policy() policy { return policy{a.Adoption, a.Conflicts} }

// lasting reports an outcome that is about the object, not about the moment.
func lasting(r Result) bool {
	_, conflict := errors.AsType[*ConflictError](r.Err)
	return conflict || r.Action == Skipped || errors.Is(r.Err, ErrNotOurs) || apierrors.IsInvalid(r.Err) || apierrors.IsBadRequest(r.Err) || tooLarge(r.Err)
}

// tooLarge reports that the server cannot take so much, or its store cannot. For
// the latter there is no code: it is said by etcd, or by the connection to it.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || err != nil &&
		(strings.Contains(err.Error(), "etcdserver: request is too large") || strings.Contains(err.Error(), "message larger than max"))
}

// forget drops what is remembered of objects that are no longer wanted.
func (a *Applier) forget(set *Set) {
	for id := range a.setbacks {
		if !set.Has(id) {
			delete(a.setbacks, id)
		}
	}
	a.fights.forget(time.Now(), set)
	a.statuses.forget(set)
}
