package apply

import (
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// rejection is a failed attempt that an immediate retry cannot cure: the object is
// invalid, its name is taken, it is forbidden. Until the object, the policy or a
// possible cause changes, the attempt is repeated with growing delays, and the passes
// in between report it without a request.
type rejection struct {
	result Result
	part   string
	hash   diff.Sum // of the desired object
	seen   diff.Sum // of the fields that we owned of the live one
	policy policy
	cured  uint64 // changes of possible causes, so far
	woken  int    // passes that changed causes have started
	delay  time.Duration
	until  time.Time
}

// maxWakes bounds the passes that changed causes start between two delays.
const maxWakes = 5

// rejections remembers the rejection of each object, and counts the changes that could
// cure some by namespace; "" is the whole cluster.
type rejections struct {
	mu    sync.Mutex
	by    map[ID]*rejection
	cures map[string]uint64
	swept int
}

// attempt is the state with which a rejection is compared.
type attempt struct {
	id         ID
	part       string
	hash, seen diff.Sum
	policy     policy
	cured      uint64 // as counted before the attempt
}

// begin records the number of changes so far that could cure a rejection.
func (r *rejections) begin(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.cured = r.cured(a.id.Namespace)
}

// standing returns the result of the last attempt if it still stands.
func (r *rejections) standing(a attempt, now time.Time) (Result, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.by[a.id]
	if s == nil || s.hash != a.hash || s.seen != a.seen || s.policy != a.policy || !now.Before(s.until) {
		return Result{}, false
	}
	if s.cured != r.cured(a.id.Namespace) && s.woken <= maxWakes {
		return Result{}, false
	}
	return s.result, true
}

// until returns until when the rejection of an object stands, zero if there is none.
func (r *rejections) until(id ID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.by[id]; s != nil {
		return s.until
	}
	return time.Time{}
}

// note records how an attempt ended.
func (r *rejections) note(a attempt, result Result, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !lasting(result) {
		delete(r.by, a.id)
		return
	}
	next := &rejection{
		result: result, part: a.part, hash: a.hash, seen: a.seen, policy: a.policy, cured: a.cured, delay: firstDelay,
	}
	longest := maxDelay
	switch {
	case unanswered(result.Err): // that passes by itself
		next.delay, longest = cureDelay, firstDelay
	case overQuota(result.Err): // another program's quota is not watched
		longest = firstDelay
	}
	if last := r.by[a.id]; last == nil {
		r.sweep(now)
	} else if last.hash == a.hash && last.seen == a.seen {
		next.delay = min(2*last.delay, longest)
		if now.Before(last.until) { // tried after a changed cause, perhaps too early
			next.delay, next.woken = min(cureDelay<<last.woken, firstDelay), max(last.woken, 1)
		}
	}
	next.until = now.Add(next.delay)
	r.by[a.id] = next
}

// cured counts the changes that could cure a rejection in the namespace.
func (r *rejections) cured(namespace string) uint64 {
	if namespace == "" {
		return r.cures[""]
	}
	return r.cures[namespace] + r.cures[""]
}

// cure records that an object in the namespace, or a cluster-scoped one, has changed
// that may cure rejections, and returns the rejected objects there.
func (r *rejections) cure(namespace string) []Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cures == nil {
		r.cures = map[string]uint64{}
	}
	r.cures[namespace]++
	var found []Observed
	for id, s := range r.by {
		if namespace != "" && id.Namespace != namespace {
			continue
		}
		if s.woken++; s.woken <= maxWakes {
			found = append(found, Observed{ID: id, Part: s.part})
		}
	}
	return found
}

// sweep drops rejections that were not asked for in a long time, now and then. The lock
// is held.
func (r *rejections) sweep(now time.Time) {
	if r.by == nil {
		r.by = map[ID]*rejection{}
	}
	if len(r.by) < 2*r.swept+minSwept {
		return
	}
	for id, s := range r.by {
		if now.Sub(s.until) >= 2*maxDelay {
			delete(r.by, id)
		}
	}
	r.swept = len(r.by)
}

// forget drops the memory of an object.
func (r *rejections) forget(id ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, id)
}

// lasting reports whether the outcome is due to the object rather than to the moment.
func lasting(r Result) bool {
	_, conflict := errors.AsType[*ConflictError](r.Err)
	switch {
	case conflict, r.Action == Skipped, errors.Is(r.Err, ErrNotOurs), errors.Is(r.Err, ErrClaimed), tooLarge(r.Err), unreadable(r.Err),
		unanswered(r.Err):
		return true
	default:
		return meta.IsNoMatchError(r.Err) || apierrors.IsInvalid(r.Err) || apierrors.IsBadRequest(r.Err) || apierrors.IsForbidden(r.Err) ||
			apierrors.IsNotFound(r.Err)
	}
}

// tooLarge reports that the object is too large for the server or for its store. For
// the store there is no code: the message is etcd's or the connection's.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || err != nil &&
		(strings.Contains(err.Error(), "etcdserver: request is too large") || strings.Contains(err.Error(), "message larger than max"))
}

// overQuota reports that a ResourceQuota is exceeded. There is no code for that, either.
func overQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// unreadable reports that the server cannot read the object by the schema of its kind.
func unreadable(err error) bool { return unreadablePhrase(err) != "" }

// unreadablePhrase returns the server's words for it, without what it cannot read: "" if it
// can. It answers 500 for that.
func unreadablePhrase(err error) string {
	if !apierrors.IsInternalError(err) {
		return ""
	}
	for _, phrase := range []string{
		"field not declared in schema", "failed to create typed patch object", "unable to convert unstructured object",
		"failed to convert new object", "failed to create manager for existing fields",
	} {
		if strings.Contains(err.Error(), phrase) {
			return phrase
		}
	}
	return ""
}
