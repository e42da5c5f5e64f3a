package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/guard"
)

func from(address string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	r.RemoteAddr = address
	return r
}

var guesses atomic.Int64

// fail has another wrong credential fail.
func fail(g *guard.Guard, r *http.Request, endpoint string) {
	g.Failed(r, endpoint, fmt.Sprint(guesses.Add(1)))
}

func TestAProgramThatRepeatsOneCredentialDoesNotGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{})
		r := from("192.0.2.1:1000")
		for range 1000 {
			g.Failed(r, "agent", "revoked")
			g.Failed(r, "agent", "")
		}
		require.Zero(t, g.Wait(r, "agent"))
		for range 6 {
			fail(g, r, "agent")
		}
		require.NotZero(t, g.Wait(r, "agent"))
	})
	var none *guard.Guard
	fail(none, from("192.0.2.1:1"), "agent")
	none.Succeeded(from("192.0.2.1:1"))
	require.Zero(t, none.Wait(from("192.0.2.1:1"), "agent"))
}

func newGuard(t *testing.T, config guard.Config) *guard.Guard {
	t.Helper()
	g, err := guard.New(config)
	require.NoError(t, err)
	return g
}

func TestAnAddressWaitsLongerAfterEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{})
		r := from("192.0.2.1:1000")
		for range 5 {
			require.Zero(t, g.Wait(r, "admin"))
			fail(g, r, "admin")
		}
		var waits []time.Duration
		for range 12 {
			require.Zero(t, g.Wait(r, "admin"))
			fail(g, r, "admin")
			wait := g.Wait(from("192.0.2.1:2000"), "admin")
			waits = append(waits, wait)
			time.Sleep(wait)
		}
		s := time.Second
		require.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s, 300 * s}, waits)
		require.Zero(t, g.Wait(from("192.0.2.2:1000"), "admin"), "another address")

		fail(g, r, "admin")
		time.Sleep(15 * time.Minute)
		fail(g, r, "admin")
		require.Zero(t, g.Wait(r, "admin"), "it was forgotten")
	})
}

func TestASuccessEndsTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{})
		r := from("192.0.2.1:1000")
		for range 20 {
			for range 5 {
				fail(g, r, "admin")
			}
			require.Zero(t, g.Wait(r, "admin"))
			g.Succeeded(r)
		}
	})
}

func TestManyAddressesTogetherAreLimitedAndThoseThatSucceedGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{TotalRate: 10})
		good := from("192.0.2.1:1000")
		g.Succeeded(good)
		tried := 0
		for i := range 10_000 { // for 10 seconds
			r := from(fmt.Sprintf("198.51.%d.%d:1", i/250, i%250))
			if g.Wait(r, "login") == 0 {
				fail(g, r, "login")
				tried++
			}
			require.Zero(t, g.Wait(good, "login"))
			time.Sleep(time.Millisecond)
		}
		require.Greater(t, tried, 100)
		require.Less(t, tried, 130, "20 at once, and 10 a second")
		for g.Wait(from("203.0.113.1:1"), "login") == 0 {
			fail(g, from("203.0.113.2:1"), "login")
		}
		require.Equal(t, time.Second, g.Wait(from("203.0.113.1:1"), "login"))
		time.Sleep(time.Second)
		require.Zero(t, g.Wait(from("203.0.113.1:1"), "login"))
	})
}

func TestANetworkOfIPv6IsOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{})
		for i := range 6 {
			fail(g, from(fmt.Sprintf("[2001:db8::%d]:1", i)), "admin")
		}
		require.NotZero(t, g.Wait(from("[2001:db8::ffff]:1"), "admin"))
		require.Zero(t, g.Wait(from("[2001:db8:0:1::1]:1"), "admin"))
		for range 6 {
			fail(g, from("[::ffff:192.0.2.1]:1"), "admin")
		}
		require.NotZero(t, g.Wait(from("192.0.2.1:1"), "admin"))
		require.Zero(t, g.Wait(from("192.0.2.2:1"), "admin"))
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{MaxAddresses: 10, TotalRate: 1e6})
		first := from("192.0.2.1:1")
		for range 6 {
			fail(g, first, "admin")
		}
		for i := range 9 {
			fail(g, from(fmt.Sprintf("198.51.100.%d:1", i)), "admin")
		}
		require.NotZero(t, g.Wait(first, "admin"))
		fail(g, from("203.0.113.1:1"), "admin")
		require.Zero(t, g.Wait(first, "admin"), "the one that was silent for the longest time")
	})
}

func TestGuessingIsCountedAndLoggedWithItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		g := newGuard(t, guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: registry})
		r := from("192.0.2.7:1000")
		for range 6 {
			fail(g, r, "login")
		}
		g.Wait(r, "admin")
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "192.0.2.7/32")
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP trueup_controlplane_attempts_delayed_total Requests answered with 429 because their address, or all addresses together, have failed too often, by what they asked for and which of both.
# TYPE trueup_controlplane_attempts_delayed_total counter
trueup_controlplane_attempts_delayed_total{endpoint="admin",limit="address"} 1
# HELP trueup_controlplane_credentials_refused_total Requests with a credential that is missing or not valid, by what they asked for (admin, cluster, region, page or login) and the reason: missing or invalid.
# TYPE trueup_controlplane_credentials_refused_total counter
trueup_controlplane_credentials_refused_total{endpoint="admin",reason="invalid"} 0
trueup_controlplane_credentials_refused_total{endpoint="admin",reason="missing"} 0
trueup_controlplane_credentials_refused_total{endpoint="cluster",reason="invalid"} 0
trueup_controlplane_credentials_refused_total{endpoint="cluster",reason="missing"} 0
trueup_controlplane_credentials_refused_total{endpoint="login",reason="invalid"} 6
trueup_controlplane_credentials_refused_total{endpoint="login",reason="missing"} 0
trueup_controlplane_credentials_refused_total{endpoint="page",reason="invalid"} 0
trueup_controlplane_credentials_refused_total{endpoint="page",reason="missing"} 0
trueup_controlplane_credentials_refused_total{endpoint="region",reason="invalid"} 0
trueup_controlplane_credentials_refused_total{endpoint="region",reason="missing"} 0
`)))
	})
}

func TestAnAnswerSaysWhenToComeBack(t *testing.T) {
	w := httptest.NewRecorder()
	guard.Refuse(w, 1500*time.Millisecond)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
}
