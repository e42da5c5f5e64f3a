package regions

import (
	"sync"
	"time"
)

// refusals remembers for each region the last refusal that was logged. An agent that is refused
// asks again and again, and an agent can choose what it is refused for.
type refusals struct {
	mu   sync.Mutex
	last map[string]refusal // by id of the region
}

type refusal struct {
	what string
	at   time.Time
}

// The same refusal is logged once a day, and any once a minute.
const (
	sameRefusal = 24 * time.Hour
	anyRefusal  = time.Minute
)

// isNew reports whether a refusal must be logged.
func (r *refusals) isNew(region, what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.last[region]
	if age := now.Sub(last.at); known && (age < anyRefusal || last.what == what && age < sameRefusal) {
		return false
	}
	if r.last == nil {
		r.last = map[string]refusal{}
	}
	r.last[region] = refusal{what, now}
	return true
}
