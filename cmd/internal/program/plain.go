package program

import (
	"context"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
)

// WarnPlain logs a warning for each URL whose token would travel without encryption to another
// machine. The keys of urls are the names of the settings. Call it once, at the start.
func WarnPlain(ctx context.Context, logger *slog.Logger, urls map[string]*url.URL) {
	for name, to := range urls {
		if to == nil || !strings.EqualFold(to.Scheme, "http") || loopback(to.Hostname()) {
			continue
		}
		logger.WarnContext(ctx, "a token is sent without encryption: use https", slog.String("setting", name), slog.String("host", to.Host))
	}
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
	}
	return address.Unmap().IsLoopback()
}
