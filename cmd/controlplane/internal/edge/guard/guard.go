// Package guard slows down the attempts that fail, by the address they come from.
//
// A credential is looked up first: a valid one is never refused for what other clients do,
// whether they share its address or use many. What keeps a credential from being guessed is its
// entropy (package tokens); the guard keeps the log and the audit readable, and makes a program
// with a wrong credential come less often.
//
// An address may fail a few times, with different credentials: a program that repeats one
// which was revoked does not guess. After that its failures are answered with 429 for a time
// that doubles after each further failure, up to [Config.MaxDelay]. An address from which
// nothing failed for [Config.Memory] is forgotten.
//
// The address is the client's, see package origin. An IPv6 address counts by its /64.
package guard

import (
	"cmp"
	"container/list"
	"context"
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

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
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
	// MaxAddresses bounds how many are remembered. The one that is silent for the
	// longest time is forgotten first. Default 10,000.
	MaxAddresses int
	// Logger gets a line for the first failure of an address, when it has to wait, and when
	// it has to wait longer. Nil: nothing is logged.
	Logger *slog.Logger
	// Refused is called for the same failures, but of all addresses together for no more than
	// one a second, and 60 at once. It must be safe for concurrent use. Nil: not called.
	Refused func(ctx context.Context, endpoint string)
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer
}

// Guard counts failed attempts. It is safe for concurrent use. A nil Guard counts none.
type Guard struct {
	config  Config
	seed    maphash.Seed
	refused *prometheus.CounterVec
	waiting *prometheus.CounterVec

	mu        sync.Mutex
	events    *rate.Limiter
	addresses map[netip.Prefix]*list.Element
	order     *list.List // of *address, the one that is silent for the longest time first
}

// address is the state that is kept of an address.
type address struct {
	prefix   netip.Prefix
	failures int
	until    time.Time // failures before are answered with 429 and not counted
	seen     time.Time
	tried    [8]uint64 // hashes of the last different credentials that failed
}

// New returns a guard. It fails only if the metrics cannot be registered.
func New(config Config) (*Guard, error) {
	config.Free = cmp.Or(config.Free, 5)
	config.FirstDelay = cmp.Or(config.FirstDelay, time.Second)
	config.MaxDelay = cmp.Or(config.MaxDelay, 5*time.Minute)
	config.Memory = cmp.Or(config.Memory, 15*time.Minute)
	config.MaxAddresses = cmp.Or(config.MaxAddresses, 10_000)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Refused == nil {
		config.Refused = func(context.Context, string) {}
	}
	g := &Guard{
		config: config, seed: maphash.MakeSeed(), addresses: map[netip.Prefix]*list.Element{}, order: list.New(),
		events: rate.NewLimiter(origin.LinesPerSecond, origin.LinesAtOnce),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_credentials_refused_total",
			Help: "Requests with a credential that is missing or not valid, by what they asked for (admin, agent, cluster, region, page or login) and the reason: missing or invalid.",
		}, []string{"endpoint", "reason"}),
		waiting: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_attempts_delayed_total",
			Help: "Requests with a credential that is missing or not valid that were answered with 429, because their address has failed too often, by what they asked for.",
		}, []string{"endpoint"}),
	}
	// A rate begins with the first failure if its series has begun before.
	for _, endpoint := range []string{"admin", "agent", "cluster", "region", "page", "login"} {
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

// Failed notes that the credential of the request was missing, which is the empty one, or not
// valid, and returns how long its sender has to wait before it comes back, zero if it need not.
// With a wait the request is answered with 429.
func (g *Guard) Failed(r *http.Request, endpoint, credential string) (wait time.Duration) {
	if g == nil {
		return 0
	}
	reason := "invalid"
	if credential == "" {
		reason = "missing"
	}
	g.refused.WithLabelValues(endpoint, reason).Inc()
	prefix := prefixOf(r.RemoteAddr)
	failures, wait, counted := g.count(prefix, maphash.String(g.seed, credential))
	if wait > 0 {
		g.waiting.WithLabelValues(endpoint).Inc()
	}
	line := []any{
		slog.String("from", prefix.String()),
		slog.String("endpoint", endpoint),
		slog.Int("failures", failures),
		slog.Duration("wait", wait),
	}
	switch {
	case counted && wait > 0:
		g.config.Logger.WarnContext(r.Context(), "credentials are guessed", line...)
	case counted && failures == 1:
		g.config.Logger.WarnContext(r.Context(), "credential refused", line...)
	default:
		return wait
	}
	if g.events.Allow() {
		g.config.Refused(r.Context(), endpoint)
	}
	return wait
}

// Refused is Failed, and returns what the request is answered with: 401, or 429.
func (g *Guard) Refused(r *http.Request, endpoint, credential string) *adminapi.Error {
	if wait := g.Failed(r, endpoint, credential); wait > 0 {
		return TooMany(wait)
	}
	return &adminapi.Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "the bearer token is missing or not valid"}
}

// TooMany is the answer to a credential that is not valid from an address that has to wait.
func TooMany(wait time.Duration) *adminapi.Error {
	return &adminapi.Error{
		Status: http.StatusTooManyRequests, Code: agenttoken.TooManyAttempts, Wait: wait,
		Message: "this token is not valid, and too many such came from this address; wait",
	}
}

// count notes a failure of an address with the credential of that hash. It is not counted while
// the address has to wait, and if the credential has failed before.
func (g *Guard) count(prefix netip.Prefix, hash uint64) (failures int, wait time.Duration, counted bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.remember(prefix, now)
	if now.Before(a.until) || slices.Contains(a.tried[:], hash) {
		return a.failures, max(0, a.until.Sub(now)), false
	}
	copy(a.tried[1:], a.tried[:])
	a.tried[0] = hash
	a.failures++
	if a.failures <= g.config.Free {
		return a.failures, 0, true
	}
	wait = g.config.MaxDelay
	if doubled := float64(g.config.FirstDelay) * math.Pow(2, float64(a.failures-g.config.Free-1)); doubled < float64(wait) {
		wait = time.Duration(doubled)
	}
	a.until = now.Add(wait)
	return a.failures, wait, true
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
