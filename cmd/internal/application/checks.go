package application

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lastingAgain is the time to the next attempt at what a person must see to.
const lastingAgain = time.Minute

// checks remember when each part of what is outside was last found as it should: one that
// waits for its turn does not make the others be looked at again. At first they remember
// none: after a start everything is looked at.
type checks struct {
	again time.Duration // between two looks

	mu   sync.Mutex
	last map[types.UID]map[string]check // by the name of the part
}

type check struct {
	version string
	at      time.Time
}

// due reports whether to look now at a part of what this version of an object wants, and
// after what time otherwise or the next time.
func (c *checks) due(uid types.UID, part, version string, now time.Time) (due bool, in time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.last[uid][part]
	if !ok || last.version != version {
		return true, c.again
	}
	left := c.again - now.Sub(last.at)
	if left <= 0 {
		return true, c.again
	}
	return false, left
}

// done remembers a look that found a part as it should, and forgets the last one after any
// other: the next pass looks again.
func (c *checks) done(uid types.UID, part, version string, now time.Time, well bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !well {
		delete(c.last[uid], part)
		return
	}
	if c.last == nil {
		c.last = map[types.UID]map[string]check{}
	}
	if c.last[uid] == nil {
		c.last[uid] = map[string]check{}
	}
	c.last[uid][part] = check{version, now}
}

// forget makes the next pass look, and drops what is remembered of an object that is gone.
func (c *checks) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, uid)
}
