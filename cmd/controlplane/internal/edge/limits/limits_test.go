package limits_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
)

const mib = 1 << 20

func sized(bytes int64) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", http.NoBody)
	r.ContentLength = bytes
	return r
}

func newLimits(t *testing.T, config limits.Config) *limits.Limits {
	t.Helper()
	l, err := limits.New(config)
	require.NoError(t, err)
	return l
}

func TestACredentialHasSoManyRequestsAndStreamsAndOthersGoOn(t *testing.T) {
	l := newLimits(t, limits.Config{Requests: 3, Streams: 2})
	var leaves []func()
	take := func(leave func(), wait time.Duration) bool {
		if wait == 0 {
			leaves = append(leaves, leave)
		}
		return wait == 0
	}
	for range 3 {
		require.True(t, take(l.Request("a", sized(1))))
	}
	require.False(t, take(l.Request("a", sized(1))))
	require.True(t, take(l.Stream("a")))
	require.True(t, take(l.Stream("a")))
	require.False(t, take(l.Stream("a")))
	require.True(t, take(l.Request("b", sized(1))))
	require.True(t, take(l.Stream("b")))
	leaves[0]()
	leaves[0]() // counts once
	require.True(t, take(l.Request("a", sized(1))))
	require.False(t, take(l.Request("a", sized(1))))
	leaves[3]()
	require.True(t, take(l.Stream("a")))
	require.False(t, take(l.Stream("a")))
}

func TestBodiesAreHeldInSoMuchMemoryOfWhichOneCredentialHasAQuarter(t *testing.T) {
	l := newLimits(t, limits.Config{Bodies: 64 * mib, BytesPerSecond: 1 << 40})
	held := 0
	for n := range 10 {
		for range 10 {
			if _, wait := l.Request(fmt.Sprint(n), sized(8*mib)); wait == 0 {
				held++
			}
		}
		require.Equal(t, min(2*(n+1), 8), held)
	}
}

func TestABodyOfUnknownSizeCountsAsTheLargest(t *testing.T) {
	l := newLimits(t, limits.Config{Bodies: 64 * mib, MaxBody: 16 * mib, BytesPerSecond: 1 << 40})
	leave, wait := l.Request("a", sized(-1))
	require.Zero(t, wait)
	_, wait = l.Request("a", sized(1))
	require.NotZero(t, wait)
	leave()
	_, wait = l.Request("a", sized(100*mib)) // the handler that reads it refuses its size
	require.Zero(t, wait)
}

func TestACredentialSendsSoMuchASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		l := newLimits(t, limits.Config{BytesPerSecond: mib, Registerer: registry})
		sent := 0
		for begin := time.Now(); time.Since(begin) < 100*time.Second; {
			leave, wait := l.Request("a", sized(mib))
			if wait > 0 {
				time.Sleep(wait)
				continue
			}
			sent++
			leave()
			other, wait := l.Request("b", sized(1))
			require.Zero(t, wait)
			other()
		}
		require.InDelta(t, 104, sent, 1, "4 at once, and 1 a second")
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP trueup_controlplane_requests_limited_total Requests answered with 429, by the limit: requests, streams or bytes of the credential, or memory of the process.
# TYPE trueup_controlplane_requests_limited_total counter
trueup_controlplane_requests_limited_total{limit="bytes"} 100
`)))
		leave, wait := l.Request("large", sized(8*mib))
		require.Zero(t, wait, "larger than all that may come at once: it takes all")
		leave()
	})
}

func TestNoLimitsAdmitEverything(t *testing.T) {
	var none *limits.Limits
	for range 1000 {
		_, wait := none.Request("a", sized(100*mib))
		require.Zero(t, wait)
		_, wait = none.Stream("a")
		require.Zero(t, wait)
	}
}
