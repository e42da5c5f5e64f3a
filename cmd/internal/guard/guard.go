// Package guard slows down guesses of credentials, by address and in total.
//
// An address may fail a few times, with different credentials: a program that repeats
// one which was revoked does not guess, and others at its address go on. After that it has to wait before the next attempt
// is looked at, twice as long after each further failure, up to [Config.MaxDelay];
// meanwhile also the right credential gets 429. An address from which nothing failed
// for [Config.Memory] is forgotten. If all addresses together fail more often than
// [Config.TotalRate], addresses without a success in that time wait, too, whether they
// have failed or not; the others go on.
//
// The address is that of the connection, of an IPv6 address its /64. Behind a proxy
// it is the proxy's: limit there then, by the client's.
package guard

import (
	"cmp"
	"container/list"
	"hash/maphash"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/serve"
)

// Config is how much failing is allowed. The zero value has the defaults.
type Config struct {
	// Free is how many failures of an address have no consequence. Default 5.
	Free int
	// FirstDelay is the wait after the next one, doubled for each further one.
	// Default 1 s.
	FirstDelay time.Duration
	// MaxDelay bounds it. Default 5 minutes.
	MaxDelay time.Duration
	// Memory is how long an address is remembered after its last attempt. Default 15
	// minutes.
	Memory time.Duration
	// TotalRate is how many failures a second all addresses may have together, twice
	// as many at once. Default 50.
	TotalRate float64
	// MaxAddresses bounds how many are remembered. The one that is silent for the
	// longest time is forgotten first. Default 10,000.
	MaxAddresses int
	// Logger gets a line when an address has to wait, and when it has to wait longer.
	// Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer
}

// Guard counts failed attempts. It is safe for concurrent use. A nil Guard lets every
// attempt through.
type Guard struct {
	config  Config
	seed    maphash.Seed
	refused *prometheus.CounterVec
	waiting *prometheus.CounterVec

	mu        sync.Mutex
	total     *rate.Limiter
	addresses map[netip.Prefix]*list.Element
	order     *list.List // of *address, the one that is silent for the longest time first
}

// address is what is remembered of one.
type address struct {
	prefix    netip.Prefix
	failures  int
	until     time.Time // no attempt is looked at before
	succeeded time.Time
	seen      time.Time
	tried     [8]uint64 // hashes of the last different credentials that failed
}

// New returns a guard. It fails only if the metrics cannot be registered.
func New(config Config) (*Guard, error) {
	config.Free = cmp.Or(config.Free, 5)
	config.FirstDelay = cmp.Or(config.FirstDelay, time.Second)
	config.MaxDelay = cmp.Or(config.MaxDelay, 5*time.Minute)
	config.Memory = cmp.Or(config.Memory, 15*time.Minute)
	config.TotalRate = cmp.Or(config.TotalRate, 50)
	config.MaxAddresses = cmp.Or(config.MaxAddresses, 10_000)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	g := &Guard{
		config: config, seed: maphash.MakeSeed(), addresses: map[netip.Prefix]*list.Element{}, order: list.New(),
		total: rate.NewLimiter(rate.Limit(config.TotalRate), max(1, int(2*config.TotalRate))),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_credentials_refused_total",
			Help: "Requests with a credential that is missing or not valid, by what they asked for (admin, cluster, region, page or login) and the reason: missing or invalid.",
		}, []string{"endpoint", "reason"}),
		waiting: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_attempts_delayed_total",
			Help: "Requests answered with 429 because their address, or all addresses together, have failed too often, by what they asked for and which of both.",
		}, []string{"endpoint", "limit"}),
	}
	// A rate begins with the first failure if its series has begun before.
	for _, endpoint := range []string{"admin", "cluster", "region", "page", "login"} {
		for _, reason := range []string{"missing", "invalid"} {
			g.refused.WithLabelValues(endpoint, reason)
		}
	}
	if config.Registerer != nil {
		for _, c := range []prometheus.Collector{g.refused, g.waiting} {
			if err := config.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return g, nil
}

// Wait returns how long the sender of the request has to wait before its credential is
// looked at, zero if it need not.
func (g *Guard) Wait(r *http.Request, endpoint string) time.Duration {
	if g == nil {
		return 0
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.known(prefixOf(r.RemoteAddr))
	if a != nil && now.Before(a.until) {
		g.waiting.WithLabelValues(endpoint, "address").Inc()
		return a.until.Sub(now)
	}
	if g.total.TokensAt(now) < 1 && (a == nil || a.succeeded.IsZero() || now.Sub(a.succeeded) > g.config.Memory) {
		g.waiting.WithLabelValues(endpoint, "total").Inc()
		return time.Second
	}
	return 0
}

// Failed notes that the credential of the request was missing, which is the empty one,
// or not valid.
func (g *Guard) Failed(r *http.Request, endpoint, credential string) {
	if g == nil {
		return
	}
	now := time.Now()
	hash := maphash.String(g.seed, credential)
	g.mu.Lock()
	defer g.mu.Unlock()
	reason := "invalid"
	if credential == "" {
		reason = "missing"
	}
	g.refused.WithLabelValues(endpoint, reason).Inc()
	a := g.remember(prefixOf(r.RemoteAddr), now)
	if slices.Contains(a.tried[:], hash) {
		return
	}
	copy(a.tried[1:], a.tried[:])
	a.tried[0] = hash
	g.total.AllowN(now, 1)
	a.failures++
	if a.failures <= g.config.Free {
		return
	}
	delay := g.config.MaxDelay
	if doubled := float64(g.config.FirstDelay) * math.Pow(2, float64(a.failures-g.config.Free-1)); doubled < float64(delay) {
		delay = time.Duration(doubled)
	}
	a.until = now.Add(delay)
	g.config.Logger.WarnContext(r.Context(), "credentials are guessed", slog.String("from", a.prefix.String()), slog.String("endpoint", endpoint),
		slog.Int("failures", a.failures), slog.Duration("wait", delay))
}

// Succeeded notes that the credential of the request was valid. The failures of its
// address count no more.
func (g *Guard) Succeeded(r *http.Request) {
	if g == nil {
		return
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.remember(prefixOf(r.RemoteAddr), now)
	a.failures, a.until, a.succeeded = 0, time.Time{}, now
}

// known returns the record of an address, nil if there is none. The lock is held.
func (g *Guard) known(prefix netip.Prefix) *address {
	element := g.addresses[prefix]
	if element == nil {
		return nil
	}
	return element.Value.(*address) //nolint:forcetypeassert // the list holds no other type
}

// remember returns the record of an address that is seen now, and drops old records.
// The lock is held.
func (g *Guard) remember(prefix netip.Prefix, now time.Time) *address {
	if a := g.known(prefix); a != nil && now.Sub(a.seen) < g.config.Memory {
		a.seen = now
		g.order.MoveToBack(g.addresses[prefix])
		return a
	} else if a != nil {
		g.order.Remove(g.addresses[prefix])
	}
	a := &address{prefix: prefix, seen: now}
	g.addresses[prefix] = g.order.PushBack(a)
	for first := g.order.Front(); first != nil; first = g.order.Front() {
		oldest := first.Value.(*address) //nolint:forcetypeassert // as above
		if len(g.addresses) <= g.config.MaxAddresses && now.Sub(oldest.seen) < g.config.Memory {
			break
		}
		g.order.Remove(first)
		delete(g.addresses, oldest.prefix)
	}
	return a
}

// Refuse answers 429 with Retry-After. The body is for people.
func Refuse(w http.ResponseWriter, wait time.Duration) {
	serve.RetryAfter(w.Header(), wait)
	http.Error(w, "too many attempts with a credential that is not valid; wait", http.StatusTooManyRequests)
}

// prefixOf returns the address of a connection, or its /64 if that is IPv6: a host with
// one address of a /64 can use all of them. Text that is no address has the zero prefix.
func prefixOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	parsed, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	parsed = parsed.Unmap().WithZone("")
	bits := parsed.BitLen()
	if parsed.Is6() {
		bits = 64
	}
	prefix, err := parsed.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
