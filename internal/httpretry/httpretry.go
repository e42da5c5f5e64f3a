// Package httpretry makes an [http.Client] that repeats requests which failed
// in a way that passes. It is the only importer of go-retryablehttp, so that
// nothing of it shows in a public API, and keeps that library's logger off.
package httpretry

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Config configures the retries. Its zero value makes three attempts in total.
type Config struct {
	// Attempts is the number of attempts in all. Default 3.
	Attempts int
	// Timeout bounds one attempt, its body included. Default 30 s.
	Timeout time.Duration
	// Base is the upper bound of the first wait, doubled for each further one.
	// The wait is drawn evenly from zero to that bound (full jitter). Default
	// 500 ms.
	Base time.Duration
	// Cap bounds each wait, also one that the server asks for with
	// Retry-After. Default 8 s.
	Cap time.Duration
	// Transport carries the attempts. Default: one of its own, with
	// http.DefaultTransport's settings.
	Transport http.RoundTripper
	// OnAttempt is called, if set, after each attempt. Status is 0 where no
	// answer came.
	OnAttempt func(request *http.Request, status int, duration time.Duration)
}

// New returns a client that repeats a request whose attempt failed on the way
// or was answered with 408, 425, 429, 500, 502, 503 or 504. After the last
// attempt the answer or error of that attempt is returned as it is. Redirects
// are returned, not followed. A request ends with its context, in the middle of a
// wait too; then the error names the last answer before. Closing the client's idle connections closes the transport's.
//
// Requests must be made with a body that can be read again: http.NewRequest
// sees to that for a bytes.Reader, a bytes.Buffer and a strings.Reader.
func New(c Config) *http.Client {
	transport := c.Transport
	if transport == nil {
		transport = defaultTransport()
	}
	client := &retryablehttp.Client{
		HTTPClient: &http.Client{
			Timeout:       cmp.Or(c.Timeout, 30*time.Second),
			Transport:     observed{transport, c.OnAttempt},
			CheckRedirect: stay,
		},
		RetryMax:     cmp.Or(c.Attempts, 3) - 1,
		RetryWaitMin: cmp.Or(c.Base, 500*time.Millisecond),
		RetryWaitMax: cmp.Or(c.Cap, 8*time.Second),
		CheckRetry:   passes,
		Backoff:      wait,
		ErrorHandler: either,
	}
	return &http.Client{
		Transport:     retrying{&retryablehttp.RoundTripper{Client: client}, transport},
		CheckRedirect: stay,
	}
}

// retrying repeats requests on the attempts' transport.
type retrying struct {
	http.RoundTripper
	attempts http.RoundTripper
}

// lastKey is the context key of an *int, the status of the last answer to a request.
type lastKey struct{}

// RoundTrip implements http.RoundTripper.
func (r retrying) RoundTrip(request *http.Request) (*http.Response, error) {
	var last int
	ctx := request.Context()
	response, err := r.RoundTripper.RoundTrip(request.WithContext(context.WithValue(ctx, lastKey{}, &last)))
	if err != nil && ctx.Err() != nil && last != 0 {
		err = fmt.Errorf("%w; the last answer was %d %s", err, last, http.StatusText(last))
	}
	return response, err
}

// CloseIdleConnections is what http.Client looks for in its transport.
func (r retrying) CloseIdleConnections() {
	(&http.Client{Transport: r.attempts}).CloseIdleConnections()
}

// either returns the last answer or the last error: net/http takes no answer
// beside an error. There are both when the context ended during the attempt.
func either(response *http.Response, err error, _ int) (*http.Response, error) {
	if err == nil {
		return response, nil
	}
	if response != nil {
		response.Body.Close() //nolint:errcheck // the error is the context's
	}
	return nil, err
}

// stay keeps a request, and the bearer token in it, from following a redirect.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func defaultTransport() http.RoundTripper {
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		return standard.Clone()
	}
	return http.DefaultTransport
}

// passes decides whether a failure may pass.
func passes(ctx context.Context, response *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return !permanent(err), nil
	}
	return slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, response.StatusCode), nil
}

// permanent reports a transport error that the next attempt would repeat: a
// certificate that is not trusted.
func permanent(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	return verification || authority
}

// wait returns the time until the next attempt.
func wait(base, most time.Duration, attempt int, response *http.Response) time.Duration {
	if asked, ok := retryAfter(response); ok {
		return min(asked, most)
	}
	bound := max(0, min(base<<min(attempt, 20), most))
	return rand.N(bound + 1)
}

// retryAfter reads the header in both its forms: seconds and a date.
func retryAfter(response *http.Response) (time.Duration, bool) {
	if response == nil {
		return 0, false
	}
	text := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

type observed struct {
	http.RoundTripper
	onAttempt func(*http.Request, int, time.Duration)
}

// RoundTrip implements http.RoundTripper.
func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	start := time.Now()
	response, err := o.RoundTripper.RoundTrip(request)
	if last, ok := request.Context().Value(lastKey{}).(*int); ok && response != nil {
		*last = response.StatusCode
	}
	if o.onAttempt != nil {
		status := 0
		if response != nil {
			status = response.StatusCode
		}
		o.onAttempt(request, status, time.Since(start))
	}
	return response, err
}
