package operator

import (
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// lastingAgain is the time to the next attempt at what a person must see to.
const lastingAgain = time.Minute

// checks store when the external objects of each part were last found correct, and the passwords.
type checks struct {
	parts outside.Checks

	mu sync.Mutex
	// roles are digests of the passwords that the roles were last given.
	roles map[types.UID][sha256.Size]byte
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
	c.parts.Forget(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.roles, uid)
}
