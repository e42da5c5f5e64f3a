package apply

import (
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// unanswered reports that the server could not ask a webhook, which takes up to its
// timeout, ten seconds by default. It answers 500 for that.
func unanswered(err error) bool {
	return apierrors.IsInternalError(err) &&
		(strings.Contains(err.Error(), "failed calling webhook") || strings.Contains(err.Error(), "conversion webhook for"))
}

// pauses holds back writes that would fail like the last one: of a kind in a namespace
// while a webhook does not answer for it, because one pass would spend the timeout on each
// object, and all writes while the server refuses our credentials.
type pauses struct {
	mu sync.Mutex
	by map[pausing]*pause
}

// pausing is what a pause holds back; the zero value is everything.
type pausing struct {
	kind      schema.GroupKind
	namespace string
}

// pause is how long no write begins after a failure. Those that have begun go on.
type pause struct {
	err   error
	until time.Time
	delay time.Duration
}

// maxPause is the maximum pause. The first is cureDelay.
const maxPause = 5 * time.Second

// standing returns the failure for which a write must wait.
func (p *pauses) standing(id ID, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []pausing{{}, {id.GroupKind(), id.Namespace}} {
		if at := p.by[key]; at != nil && now.Before(at.until) {
			return at.err
		}
	}
	return nil
}

// active reports whether there is any pause.
func (p *pauses) active() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.by) > 0
}

// note takes the outcome of a write, and reports whether it has ended a pause.
func (p *pauses) note(id ID, err error, now time.Time) (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := pausing{id.GroupKind(), id.Namespace}
	switch {
	case err == nil:
		ended = p.by[key] != nil
		delete(p.by, key)
		delete(p.by, pausing{})
		return ended
	case apierrors.IsUnauthorized(err):
		key = pausing{}
	case !unanswered(err):
		return false
	}
	at := p.by[key]
	if at == nil {
		at = &pause{delay: cureDelay}
		if p.by == nil {
			p.by = map[pausing]*pause{}
		}
		p.by[key] = at
	}
	if at.err = err; !now.Before(at.until) { // otherwise it has begun before the pause
		at.until, at.delay = now.Add(at.delay), min(2*at.delay, maxPause)
	}
	return false
}
