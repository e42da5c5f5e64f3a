package program

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
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

// WantEncrypted is what the URL of a token must be, unless a switch of this name allows any.
func WantEncrypted(allow string) string {
	return "a URL of https, or of http on this machine: the token is not encrypted; " + allow + "=true allows it"
}

// Encrypted reports whether a text is a URL with a host and without a user, query and fragment,
// to which secrets can be sent: of https, or of http on this machine.
func Encrypted(text string) bool {
	to, err := url.Parse(text)
	if err != nil || !HasHost(to) || to.User != nil || to.RawQuery != "" || to.ForceQuery || strings.Contains(text, "#") {
		return false
	}
	return to.Scheme == "https" || to.Scheme == "http" && loopback(to.Hostname())
}

// HasHost reports whether a URL has a host, and a port that there is, or none.
func HasHost(u *url.URL) bool {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	return u.Hostname() != "" && !strings.Contains(u.Host, "$") && !strings.Contains(u.Path, " ") && err == nil && port > 0
}

// Transport returns a transport that believes the authorities of a PEM file, and without a file
// the system's. An error is a usage error that names the flag of the file.
func Transport(flag, file string) (*http.Transport, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if file == "" {
		return transport, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, Usagef("--%s: %w", flag, Unreadable(file, err))
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, Usagef("--%s: is %q, must be a PEM file with a certificate", flag, Shown(file))
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// NoRedirect is the CheckRedirect of clients that send secrets: a redirect is the answer.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
	}
	return address.Unmap().IsLoopback()
}
