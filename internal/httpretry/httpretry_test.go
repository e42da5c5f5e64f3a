package httpretry_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
)

// answers is a transport that gives one answer after the other: a status, or 0
// for a broken connection.
type answers struct {
	statuses []int
	header   http.Header
	bodies   []string
	at       []time.Time
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	status := a.statuses[len(a.at)]
	a.at = append(a.at, time.Now())
	if request.Body != nil {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		a.bodies = append(a.bodies, string(body))
	}
	if status == 0 {
		return nil, errors.New("connection reset")
	}
	return &http.Response{StatusCode: status, Header: a.header, Body: io.NopCloser(strings.NewReader("answer")), Request: request}, nil
}

const url = "http://starbase/x"

// post returns the status of the answer.
func post(ctx context.Context, t *testing.T, client *http.Client, url string) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
	require.NoError(t, err)
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	require.NoError(t, response.Body.Close())
	return response.StatusCode, nil
}

func TestWhatPassesIsRepeatedWithItsBody(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 408, 425, 429, 500, 502, 503, 504} {
		synctest.Test(t, func(t *testing.T) {
			transport := &answers{statuses: []int{status, status, 200}}
			got, err := post(t.Context(), t, httpretry.New(httpretry.Config{Transport: transport}), url)
			require.NoError(t, err)
			require.Equal(t, 200, got)
			require.Equal(t, []string{"body", "body", "body"}, transport.bodies)
			require.LessOrEqual(t, transport.at[1].Sub(transport.at[0]), 500*time.Millisecond)
			require.LessOrEqual(t, transport.at[2].Sub(transport.at[1]), time.Second)
		})
	}
}

func TestWhatDoesNotPassFailsAtOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 204, 301, 304, 400, 401, 403, 404, 409, 413, 422, 501} {
		transport := &answers{statuses: []int{status, 500}}
		got, err := post(t.Context(), t, httpretry.New(httpretry.Config{Transport: transport}), url)
		require.NoError(t, err)
		require.Equal(t, status, got)
		require.Len(t, transport.at, 1)
	}
}

func TestTheLastAnswerIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := &answers{statuses: []int{500, 502, 503}}
		status, err := post(t.Context(), t, httpretry.New(httpretry.Config{Transport: transport}), url)
		require.NoError(t, err)
		require.Equal(t, 503, status)

		broken := &answers{statuses: []int{0, 0}}
		_, err = post(t.Context(), t, httpretry.New(httpretry.Config{Transport: broken, Attempts: 2}), url)
		require.ErrorContains(t, err, "connection reset")
		require.Len(t, broken.at, 2)
	})
}

func TestRetryAfterIsObeyedUpToTheCap(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"3": 3 * time.Second, "3600": 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			transport := &answers{statuses: []int{429, 200}, header: http.Header{"Retry-After": {value}}}
			_, err := post(t.Context(), t, httpretry.New(httpretry.Config{Transport: transport}), url)
			require.NoError(t, err)
			require.Equal(t, want, transport.at[1].Sub(transport.at[0]))
		})
	}
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)
		transport := &answers{statuses: []int{503, 200}, header: http.Header{"Retry-After": {at}}}
		_, err := post(t.Context(), t, httpretry.New(httpretry.Config{Transport: transport}), url)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, transport.at[1].Sub(transport.at[0]))
	})
}

func TestTheContextEndsAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		transport := &answers{statuses: []int{503, 503, 503}, header: http.Header{"Retry-After": {"8"}}}
		_, err := post(ctx, t, httpretry.New(httpretry.Config{Transport: transport}), url)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, `Post "http://starbase/x": context deadline exceeded; the last answer was 503 Service Unavailable`)
		require.Equal(t, time.Second, time.Since(start))
	})
	synctest.Test(t, func(t *testing.T) { // an attempt without an answer leaves the one of before
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		transport := &answers{statuses: []int{429, 0, 0}, header: http.Header{"Retry-After": {"8"}}}
		client := httpretry.New(httpretry.Config{Transport: transport, Base: 1000 * time.Hour, Cap: 1000 * time.Hour})
		_, err := post(ctx, t, client, url)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the last answer was 429 Too Many Requests")
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		transport := &answers{statuses: []int{0, 0, 0}}
		client := httpretry.New(httpretry.Config{Transport: transport, Base: 1000 * time.Hour, Cap: 1000 * time.Hour})
		_, err := post(ctx, t, client, url)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "answer", "there was none")
	})
}

// TestAnAnswerAfterTheContextIsClosed: net/http would drop an answer that comes
// with an error unclosed, and say so in the standard log.
func TestAnAnswerAfterTheContextIsClosed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 503} {
		ctx, cancel := context.WithCancel(t.Context())
		body := &closing{Reader: strings.NewReader("answer")}
		_, err := post(ctx, t, httpretry.New(httpretry.Config{Transport: httpfunc.Transport(func(request *http.Request) (*http.Response, error) {
			cancel()
			return &http.Response{StatusCode: status, Body: body, Request: request}, nil
		})}), url)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, body.closed, status)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestItsOwnIdleConnectionsCanBeClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	server.Start()
	defer server.Close()
	client := httpretry.New(httpretry.Config{})
	_, err := post(t.Context(), t, client, server.URL)
	require.NoError(t, err)
	client.CloseIdleConnections()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is still open")
	}
}

func TestATokenFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed to %s", r.URL)
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	status, err := post(t.Context(), t, httpretry.New(httpretry.Config{}), server.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusTemporaryRedirect, status)
}

func TestAnUntrustedCertificateIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the client, as it should
	server.StartTLS()
	defer server.Close()
	attempts := 0
	client := httpretry.New(httpretry.Config{OnAttempt: func(*http.Request, int, time.Duration) { attempts++ }})
	_, err := post(t.Context(), t, client, server.URL)
	require.ErrorContains(t, err, "certificate")
	require.Equal(t, 1, attempts)
}
