package origin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
)

// asked returns the context of a request from an address, with X-Forwarded-For.
func asked(t *testing.T, proxies, remote string, forwarded ...string) (ctx context.Context, address string) {
	t.Helper()
	list, err := origin.ParseProxies(proxies)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = remote
	for _, hops := range forwarded {
		r.Header.Add("X-Forwarded-For", hops)
	}
	var seen *http.Request
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r })
	origin.Handler(origin.Handler(handler, nil), list).ServeHTTP(httptest.NewRecorder(), r)
	return seen.Context(), seen.RemoteAddr
}

func TestHostileClientsDoNotChooseTheirAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		proxies, remote string
		forwarded       []string
		want            string
	}{
		"no proxy":                 {"", "192.0.2.1:7", []string{"203.0.113.9"}, "192.0.2.1"},
		"another than the proxy":   {"10.0.0.0/8", "192.0.2.1:7", []string{"203.0.113.9"}, "192.0.2.1"},
		"behind the proxy":         {"10.0.0.0/8", "10.1.2.3:7", []string{"203.0.113.9"}, "203.0.113.9"},
		"forged before the proxy":  {"10.0.0.0/8", "10.1.2.3:7", []string{"198.51.100.1, 203.0.113.9"}, "203.0.113.9"},
		"forged in another header": {"10.0.0.0/8", "10.1.2.3:7", []string{"198.51.100.1", "203.0.113.9"}, "203.0.113.9"},
		"behind two":               {"10.0.0.0/8, 192.0.2.7", "10.1.2.3:7", []string{"198.51.100.1, 203.0.113.9, 192.0.2.7"}, "203.0.113.9"},
		"no address":               {"10.0.0.0/8", "10.1.2.3:7", []string{"198.51.100.1, nonsense"}, "10.1.2.3"},
		"with a port":              {"10.0.0.0/8", "10.1.2.3:7", []string{"203.0.113.9:4444"}, "203.0.113.9"},
		"two with ports":           {"10.0.0.0/8", "10.1.2.3:7", []string{"203.0.113.9:4444, 10.9.9.9:80"}, "203.0.113.9"},
		"IPv6 with a port":         {"10.0.0.0/8", "10.1.2.3:7", []string{"[::ffff:203.0.113.9]:443"}, "203.0.113.9"},
		"IPv6 in brackets":         {"10.0.0.0/8", "10.1.2.3:7", []string{"[::ffff:203.0.113.9]"}, "203.0.113.9"},
		"a bracket that is open":   {"10.0.0.0/8", "10.1.2.3:7", []string{"[::ffff:203.0.113.9"}, "10.1.2.3"},
		"a port that is none":      {"10.0.0.0/8", "10.1.2.3:7", []string{"203.0.113.9:http"}, "10.1.2.3"},
		"no header":                {"10.0.0.0/8", "10.1.2.3:7", nil, "10.1.2.3"},
		"IPv6":                     {"2001:db8::/32", "[2001:db8::1]:7", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, remote := asked(t, test.proxies, test.remote, test.forwarded...)
			require.Equal(t, test.want, origin.Address(ctx))
			require.True(t, strings.HasPrefix(remote, test.want+":"), remote)
		})
	}
	for _, wrong := range []string{"proxy", "10.0.0.0/33", "10.0.0.1,"} {
		_, err := origin.ParseProxies(wrong)
		require.Error(t, err, wrong)
	}
	require.Empty(t, origin.Address(t.Context()))
}

func TestHostileStrangersDoNotFillTheLog(t *testing.T) {
	for name, level := range map[string]slog.Level{"errors": slog.LevelError, "details": slog.LevelDebug} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				logger := slog.New(origin.Logger(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))).With(slog.String("a", "b"))
				stranger, _ := asked(t, "", "192.0.2.1:7")
				long := strings.Repeat("x", 60_000)
				for range 10_000 { // for 100 seconds
					logger.LogAttrs(
						stranger,
						level,
						"request",
						slog.String("path", "/"+long),
						slog.Any("error", errors.New(long)),
						slog.Any("list", []string{long}),
					)
					time.Sleep(10 * time.Millisecond)
				}
				lines := strings.Count(out.String(), "\n")
				require.InDelta(t, 160, lines, 1, "60 at once, and one a second")
				require.Less(t, out.Len(), lines*1200)
				require.Contains(t, out.String(), `"lines_dropped":99`)

				before := out.Len()
				agent, _ := asked(t, "", "192.0.2.1:7")
				origin.Verified(agent, "region/eu")
				require.Equal(t, "region/eu", origin.Actor(agent))
				logger.InfoContext(agent, "report", slog.String("k8s_name", long))
				logger.InfoContext(t.Context(), "starting", slog.String("what", long))
				require.Greater(t, out.Len()-before, 2*len(long), "lines of others pass as they are")
			})
		})
	}
	t.Run("connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			logger := slog.NewLogLogger(origin.Strangers(slog.New(slog.NewTextHandler(&out, nil))).Handler(), slog.LevelWarn)
			for range 1000 {
				logger.Print("http: TLS handshake error")
			}
			require.Equal(t, origin.LinesAtOnce, strings.Count(out.String(), "\n"))
		})
	})
}
