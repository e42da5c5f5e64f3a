package reconcile

import "sync"

// Generations remembers the handled generation of each key, so that a pass can skip
// unchanged keys. Call Done only after success: a pass that failed or was cut short
// then runs again.
//
// Generations of one key must grow. Kubernetes counts an object that was
// deleted and made again from 1, so either the key must hold the UID, or Forget must be
// called when the object is deleted.
//
// The zero Generations is ready to use and safe for concurrent use. It keeps
// one entry for each key until Forget or Reset.
type Generations[K comparable] struct {
	mu   sync.Mutex
	done map[K]int64
}

// Changed reports whether generation is newer than any that was Done for key.
// It is true for a key that was never Done, and false for a generation older
// than the one remembered: that is a stale view.
func (g *Generations[K]) Changed(key K, generation int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	done, ok := g.done[key]
	return !ok || generation > done
}

// Done records that generation of key was handled. A generation older than
// the one remembered changes nothing.
func (g *Generations[K]) Done(key K, generation int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if done, ok := g.done[key]; ok && generation <= done {
		return
	}
	if g.done == nil {
		g.done = make(map[K]int64)
	}
	g.done[key] = generation
}

// Forget drops key: whatever its generation, it has changed.
func (g *Generations[K]) Forget(key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.done, key)
}

// Reset drops all keys: everything has changed. Call it when others may have made
// changes meanwhile, such as after taking over leadership.
func (g *Generations[K]) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.done)
}
