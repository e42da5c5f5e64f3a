package operator

import (
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lastingAgain is the time to the next attempt at what a person must see to.
const lastingAgain = time.Minute

// checks store when the external objects of each part were last found correct. A part that
// waits for its turn does not cause checks of the others. Initially they are empty: after a
// start everything is checked.
type checks struct {
	again time.Duration // between two looks

	mu   sync.Mutex
	last map[types.UID]map[string]check // by the name of the part
	// roles are digests of the passwords that the roles were last given.
	roles map[types.UID][sha256.Size]byte
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

// gave remembers the password that the role of an object has.
func (c *checks) gave(uid types.UID, password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roles == nil {
		c.roles = map[types.UID][sha256.Size]byte{}
	}
	c.roles[uid] = sha256.Sum256([]byte(password))
}

// another reports whether the role of an object was last given another password. What is not
// known is left to the next check.
func (c *checks) another(uid types.UID, password string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	given, ok := c.roles[uid]
	return ok && given != sha256.Sum256([]byte(password))
}

// forget makes the next pass check, and drops the state of a deleted object.
func (c *checks) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, uid)
	delete(c.roles, uid)
}
