package regions

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// linger is how long messages are kept after the last stream that needed them: an agent
// that reconnects gets them as they are.
const linger = time.Minute

// cache has the newest item of each resource of one region, collection and epoch, for
// all streams.
type cache struct {
	codec *codec
	key   [3]string
	// streams and left are guarded by the mutex of caches: how many streams need it,
	// and when the last one left.
	streams int
	left    time.Time

	mu   sync.RWMutex
	byID map[string]*rendered
}

func (s *cache) get(id string) *rendered {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byID[id]
}

// put replaces the item; one without a version removes it. The codec follows under
// the same lock: of two streams that render one item at once it would otherwise
// never forget the message of the slower one.
func (s *cache) put(id string, r *rendered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byID[id]; known != nil {
		s.codec.forget(known.message)
	}
	if r.version == 0 {
		delete(s.byID, id)
		return
	}
	s.byID[id] = r
	s.codec.remember(r.message)
}

// clear forgets every message.
func (s *cache) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byID {
		s.codec.forget(r.message)
	}
	s.byID = nil
}

func (s *cache) size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.byID)
}

// caches are the caches of all regions that have a stream, or recently had one.
type caches struct {
	codec *codec
	kept  prometheus.GaugeFunc

	mu    sync.Mutex
	byKey map[[3]string]*cache
}

func newCaches(codec *codec) *caches {
	c := &caches{codec: codec, byKey: map[[3]string]*cache{}}
	c.kept = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trueup_controlplane_messages_kept",
		Help: "Messages kept in memory for streaming agents: those of regions that have a stream, or had one in the last minute.",
	}, func() float64 { return float64(c.size()) })
	return c
}

// join returns the cache that a stream needs until leave is called.
func (c *caches) join(region, collection, epoch string) *cache {
	key := [3]string{region, collection, epoch}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.byKey[key]
	if found == nil {
		found = &cache{codec: c.codec, key: key, byID: map[string]*rendered{}}
		c.byKey[key] = found
	}
	found.streams++
	return found
}

// leave ends the use of a cache. Nil is the cache of a stream that had no frame.
func (c *caches) leave(used *cache) {
	if used == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	used.streams--
	used.left = time.Now()
}

// drop forgets what no stream has needed since then.
func (c *caches) drop(then time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, cache := range c.byKey {
		if cache.streams == 0 && cache.left.Before(then) {
			cache.clear()
			delete(c.byKey, key)
		}
	}
}

func (c *caches) size() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cache := range c.byKey {
		n += cache.size()
	}
	return n
}
