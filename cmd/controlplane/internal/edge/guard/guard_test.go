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

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
)

func from(address string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	r.RemoteAddr = address
	return r
}

var guesses atomic.Int64

// fail has another wrong credential fail.
func fail(g *guard.Guard, r *http.Request, endpoint string) time.Duration {
	return g.Failed(r, endpoint, fmt.Sprint(guesses.Add(1)))
}

func TestAProgramThatRepeatsOneCredentialDoesNotGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{})
		r := from("192.0.2.1:1000")
		for range 1000 {
			require.Zero(t, g.Failed(r, "agent", "revoked"))
			require.Zero(t, g.Failed(r, "agent", ""))
		}
		for range 4 {
			fail(g, r, "agent")
		}
		require.NotZero(t, g.Failed(r, "agent", "revoked"), "meanwhile its address has guessed")

		var log bytes.Buffer
		events := 0
		g = newGuard(t, guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Refused: func(context.Context, string) { events++ }})
		for range 1000 {
			require.Zero(t, g.Failed(r, "agent", "revoked"))
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "it is logged once")
		require.Equal(t, 1, events)
	})
	var none *guard.Guard
	require.Zero(t, fail(none, from("192.0.2.1:1"), "agent"))
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
			require.Zero(t, fail(g, r, "admin"))
		}
		var waits []time.Duration
		for range 12 {
			wait := fail(g, r, "admin")
			require.Equal(t, wait, fail(g, from("192.0.2.1:2000"), "admin"), "a failure meanwhile is not counted")
			waits = append(waits, wait)
			time.Sleep(wait)
		}
		s := time.Second
		require.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s, 300 * s}, waits)
		require.Zero(t, fail(g, from("192.0.2.2:1000"), "admin"), "another address")

		time.Sleep(15 * time.Minute)
		for range 5 {
			require.Zero(t, fail(g, r, "admin"), "it was forgotten")
		}
		require.NotZero(t, fail(g, r, "admin"), "and is remembered as any other")
	})
}

// TestHostileFloodsCallForFewEvents has strangers fail from ten thousand addresses.
func TestHostileFloodsCallForFewEvents(t *testing.T) {
	t.Run("many addresses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			events := 0
			g := newGuard(t, guard.Config{Refused: func(context.Context, string) { events++ }})
			for i := range 10_000 { // for 10 seconds
				fail(g, from(fmt.Sprintf("198.51.%d.%d:1", i/250, i%250)), "login")
				time.Sleep(time.Millisecond)
			}
			require.InDelta(t, 70, events, 1, "60 at once, and one a second")
		})
	})
}

func TestANetworkOfIPv6IsOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{})
		for i := range 5 {
			require.Zero(t, fail(g, from(fmt.Sprintf("[2001:db8::%d]:1", i)), "admin"))
		}
		require.NotZero(t, fail(g, from("[2001:db8::ffff]:1"), "admin"))
		require.Zero(t, fail(g, from("[2001:db8:0:1::1]:1"), "admin"))
		for range 5 {
			require.Zero(t, fail(g, from("[::ffff:192.0.2.1]:1"), "admin"))
		}
		require.NotZero(t, fail(g, from("192.0.2.1:1"), "admin"))
		require.Zero(t, fail(g, from("192.0.2.2:1"), "admin"))
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{MaxAddresses: 10})
		first := from("192.0.2.1:1")
		for range 6 {
			fail(g, first, "admin")
		}
		for i := range 9 {
			fail(g, from(fmt.Sprintf("198.51.100.%d:1", i)), "admin")
		}
		require.NotZero(t, fail(g, first, "admin"))
		fail(g, from("203.0.113.255:1"), "admin")
		require.NotZero(t, fail(g, first, "admin"), "another one was silent for longer")
		for i := range 10 {
			fail(g, from(fmt.Sprintf("203.0.113.%d:1", i)), "admin")
		}
		require.Zero(t, fail(g, first, "admin"), "the one that was silent for the longest time")
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
		fail(g, r, "admin")
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Equal(t, 2, strings.Count(log.String(), "192.0.2.7/32"), log.String())
		require.Contains(t, log.String(), "credential refused")
		require.Contains(t, log.String(), "credentials are guessed")
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP trueup_controlplane_attempts_delayed_total Requests with a credential that is missing or not valid that were answered with 429, because their address has failed too often, by what they asked for.
# TYPE trueup_controlplane_attempts_delayed_total counter
trueup_controlplane_attempts_delayed_total{endpoint="admin"} 1
trueup_controlplane_attempts_delayed_total{endpoint="login"} 1
`), "trueup_controlplane_attempts_delayed_total"))
	})
}

func TestAnAnswerSaysWhenToComeBack(t *testing.T) {
	w := httptest.NewRecorder()
	guard.Refuse(w, 1500*time.Millisecond)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
}
