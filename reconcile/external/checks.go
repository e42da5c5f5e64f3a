package external

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Checks store when the parts of each object were last found correct. A part that waits for its
// turn does not cause checks of the others. Initially they are empty: after a start everything is
// checked. They are safe for concurrent use, and must not be copied after first use.
type Checks struct {
	// Interval is the time between two looks at a part that was found correct. Required.
	Interval time.Duration
	// Now returns the time. Default time.Now.
	Now func() time.Time

	mu   sync.Mutex
	last map[types.UID]map[string]check // by the name of the part
	room int                            // how many objects last holds before expired checks are dropped
}

type check struct {
	well    bool
	version string
	at      time.Time
}

// Forget makes the next pass for an object look at all of its parts. It is called also for an object
// that is deleted: its state is dropped.
func (c *Checks) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, uid)
}

// due reports whether to look now at a part of what this version of an object wants, and
// after what time otherwise or the next time.
func (c *Checks) due(uid types.UID, part, version string) (due bool, in time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last[uid][part]
	left := c.Interval - c.now().Sub(last.at)
	if !last.well || last.version != version || left <= 0 {
		return true, c.Interval
	}
	return false, left
}

// done remembers a look. After one that did not find a part as it should be, the next pass looks again.
func (c *Checks) done(uid types.UID, part, version string, well bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[types.UID]map[string]check{}
	}
	if c.last[uid] == nil {
		if len(c.last) >= c.room {
			c.drop()
			c.room = 2*len(c.last) + 100
		}
		c.last[uid] = map[string]check{}
	}
	c.last[uid][part] = check{well, version, c.now()}
}

// drop removes the objects whose parts are all due. An object that was never forgotten is among them: another
// client has removed its finalizer. The lock is held.
func (c *Checks) drop() {
	maps.DeleteFunc(c.last, func(_ types.UID, parts map[string]check) bool {
		for _, part := range parts {
			if part.well && c.now().Sub(part.at) < c.Interval {
				return false
			}
		}
		return true
	})
}

func (c *Checks) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}
