// Package limits bounds what one credential uses: requests at once, open streams, bytes a
// second, and the memory in which request bodies are held.
//
// A request beyond a limit is refused at once with the time to wait, before any of its
// body is read, and costs the process next to nothing. A credential can hold a
// quarter of the memory for bodies at most, so that four at least share it.
package limits

import (
	"cmp"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Config has the limits. The zero value has the defaults.
type Config struct {
	// Requests is how many requests a credential may have under way, streams aside.
	// Default 32.
	Requests int
	// Streams is how many streams it may have open. Default 32.
	Streams int
	// BytesPerSecond is how much it may send, four times as much at once. Default 8 MiB.
	BytesPerSecond int
	// Bodies is how many bytes of request bodies the process holds at once. Decoding
	// takes a multiple of that. Default 64 MiB.
	Bodies int64
	// MaxBody is the size of a body whose length is not stated. Default 8 MiB.
	MaxBody int64
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer
}

// burst is how many seconds' worth of bytes may be sent at once.
const burst = 4

// share is the part of the memory for bodies that one credential can hold.
const share = 4

// Limits counts the requests, streams and body bytes in progress. It is safe for concurrent
// use. Nil Limits admit everything.
type Limits struct {
	config  Config
	refused *prometheus.CounterVec

	mu     sync.Mutex
	bodies int64
	users  map[string]*user
}

// user is one credential that has something under way, or has sent much lately.
type user struct {
	requests, streams int
	bodies            int64
	bytes             *rate.Limiter
}

// New returns limits. It fails only if the metrics cannot be registered.
func New(config Config) (*Limits, error) {
	config.Requests = cmp.Or(config.Requests, 32)
	config.Streams = cmp.Or(config.Streams, 32)
	config.BytesPerSecond = cmp.Or(config.BytesPerSecond, 8<<20)
	config.Bodies = cmp.Or(config.Bodies, 64<<20)
	config.MaxBody = cmp.Or(config.MaxBody, 8<<20)
	l := &Limits{config: config, users: map[string]*user{}, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trueup_controlplane_requests_limited_total",
		Help: "Requests answered with 429, by the limit: requests, streams or bytes of the credential, or memory of the process.",
	}, []string{"limit"})}
	if config.Registerer != nil {
		if err := config.Registerer.Register(l.refused); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Stream admits a stream of the credential that key names, until leave is called. With a
// wait above zero it is refused, and leave is nil.
func (l *Limits) Stream(key string) (leave func(), wait time.Duration) {
	if l == nil {
		return func() {}, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.user(key)
	if u.streams >= l.config.Streams {
		return nil, l.refuse(key, "streams", time.Second)
	}
	u.streams++
	return l.leave(key, func() { u.streams-- }), 0
}

// Request is Stream for a request that ends by itself and whose body is read as a whole.
func (l *Limits) Request(key string, r *http.Request) (leave func(), wait time.Duration) {
	if l == nil {
		return func() {}, 0
	}
	size := r.ContentLength
	if size < 0 || size > l.config.MaxBody { // the latter is refused when it is read
		size = l.config.MaxBody
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.user(key)
	switch {
	case u.requests >= l.config.Requests:
		return nil, l.refuse(key, "requests", time.Second)
	case u.bodies > 0 && u.bodies+size > l.config.Bodies/share, l.bodies > 0 && l.bodies+size > l.config.Bodies:
		return nil, l.refuse(key, "memory", time.Second)
	}
	if missing := float64(min(int(size), u.bytes.Burst())) - u.bytes.TokensAt(now); missing > 0 {
		return nil, l.refuse(key, "bytes", time.Duration(missing/float64(u.bytes.Limit())*float64(time.Second)))
	}
	u.bytes.AllowN(now, min(int(size), u.bytes.Burst()))
	u.requests++
	u.bodies += size
	l.bodies += size
	return l.leave(key, func() {
		u.requests--
		u.bodies -= size
		l.bodies -= size
	}), 0
}

// user returns what the credential has under way. The lock is held.
func (l *Limits) user(key string) *user {
	u := l.users[key]
	if u == nil {
		u = &user{bytes: rate.NewLimiter(rate.Limit(l.config.BytesPerSecond), burst*l.config.BytesPerSecond)}
		l.users[key] = u
	}
	return u
}

// refuse counts a refusal. The lock is held.
func (l *Limits) refuse(key, limit string, wait time.Duration) time.Duration {
	l.refused.WithLabelValues(limit).Inc()
	l.forget(key)
	return max(wait, time.Millisecond)
}

// leave returns what ends the use of a credential, once.
func (l *Limits) leave(key string, undo func()) func() {
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		undo()
		l.forget(key)
	})
}

// forget drops a credential that has nothing under way and has not sent much lately. The
// lock is held.
func (l *Limits) forget(key string) {
	if u := l.users[key]; u.requests == 0 && u.streams == 0 && u.bytes.Tokens() >= float64(u.bytes.Burst()) {
		delete(l.users, key)
	}
}
