package statesync_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// piped is a client of one stream whose lines are written to the pipe.
func piped(ctx context.Context) (*statesync.Client, *io.PipeWriter) {
	body, lines := io.Pipe()
	context.AfterFunc(ctx, func() { _ = lines.CloseWithError(ctx.Err()) })
	return &statesync.Client{URL: "http://server", Transport: httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		context.AfterFunc(r.Context(), func() { _ = lines.CloseWithError(r.Context().Err()) })
		return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
	})}, lines
}

const (
	slowHeader = `{"type":"header","epoch":"e","after":0,"version":0,"head":9,"heartbeat":7000000000}` + "\n"
	heartbeat  = `{"type":"bookmark","epoch":"e","after":0,"version":0,"head":9}` + "\n"
)

// TestAStreamIsDeadAfterTwoHeartbeats says how long a client waits for what, and
// that the time of the reader of the frames is not the server's.
func TestAStreamIsDeadAfterTwoHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		script func(w io.Writer)
		takes  time.Duration
		dies   time.Duration
	}{
		"without a header":   {func(io.Writer) {}, 0, 10 * time.Second},
		"after its header":   {func(w io.Writer) { _, _ = io.WriteString(w, slowHeader) }, 0, 14 * time.Second},
		"after a slow frame": {func(w io.Writer) { _, _ = io.WriteString(w, slowHeader) }, time.Minute, 74 * time.Second},
		"after heartbeats": {func(w io.Writer) {
			_, _ = io.WriteString(w, slowHeader)
			for range 10 {
				time.Sleep(13 * time.Second)
				_, _ = io.WriteString(w, heartbeat)
			}
		}, 0, 144 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, lines := piped(t.Context())
				go c.script(lines)
				began := time.Now()
				err := client.Watch(t.Context(), eu, func(statesync.Frame) error { time.Sleep(c.takes); return nil })
				require.EqualError(t, err, "stream is silent")
				require.Equal(t, c.dies, time.Since(began))
			})
		})
	}
}

func TestARequestSaysWhatIsAskedFor(t *testing.T) {
	var asked *http.Request
	enough := errors.New("enough")
	client := &statesync.Client{
		URL:       "http://server/sync/",
		Transport: httpfunc.Transport(func(r *http.Request) (*http.Response, error) { asked = r; return nil, enough }),
	}
	w := statesync.Watch{Scope: "a/b c?", Cursor: statesync.Cursor{Epoch: "e", Version: 7, Floor: 3}, Collections: []string{"x", "y"}}
	require.ErrorIs(t, client.Watch(t.Context(), w, nil), enough)
	require.Equal(t, "/sync/scopes/a%2Fb%20c%3F/items", asked.URL.EscapedPath())
	require.Equal(t, "after=7&collection=x&collection=y&epoch=e&floor=3&watch=true", asked.URL.RawQuery)

	client = &statesync.Client{URL: "http://server", Transport: httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		asked = r
		return &http.Response{
			StatusCode: http.StatusOK,
			Body:       io.NopCloser(strings.NewReader(`{"type":"page","epoch":"e","version":9,"more":true,"floor":4}`)),
		}, nil
	})}
	page, err := client.Page(t.Context(), w, 7, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, "after=7&collection=x&collection=y&epoch=e&floor=3&limit=7&wait=20s", asked.URL.RawQuery)
	require.Equal(t, statesync.Cursor{Epoch: "e", Version: 9, Floor: 4}, page.Next())

	asked = nil
	client.Authorize = func(*http.Request) error { return errors.New("no token yet") }
	require.EqualError(t, client.Watch(t.Context(), w, nil), "credential: no token yet")
	_, err = client.Page(t.Context(), statesync.Watch{}, 1, 0)
	require.ErrorIs(t, err, statesync.ErrInvalid)
	_, err = client.Report(t.Context(), "eu", statesync.Report{})
	require.ErrorIs(t, err, statesync.ErrInvalid)
	require.Nil(t, asked, "a request was sent that could have been known to fail")
}

// A reader that does not fit gets its own position and the log's.
func TestAResyncArrivesAsItWas(t *testing.T) {
	log, web := served(t)
	require.NoError(t, log.Commit(put("a", 1), drop("a")))
	require.NoError(t, log.Forget("eu", 2))
	page, err := log.Read(t.Context(), "eu", 0, 1)
	require.NoError(t, err)
	w := statesync.Watch{Scope: "eu", Cursor: statesync.Cursor{Epoch: page.Epoch, Version: 1}}
	for _, err := range []error{client(t, web).Watch(t.Context(), w, nil), func() error { _, err := client(t, web).Page(t.Context(), w, 1, 0); return err }()} {
		var resync *statesync.ResyncError
		require.ErrorAs(t, err, &resync)
		require.Equal(t, &statesync.ResyncError{Reason: statesync.BelowFloor, Cursor: w.Cursor, Position: page.Position}, resync)
	}
}

// dated is an answer that notes until when each write has time.
type dated struct {
	*httptest.ResponseRecorder
	left []time.Duration
}

func (d *dated) SetWriteDeadline(t time.Time) error {
	d.left = append(d.left, time.Until(t))
	return nil
}

func TestAReaderThatTakesNothingIsGivenUp(t *testing.T) {
	server := &statesync.Server{Heartbeat: 7 * time.Second}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
		defer cancel()
		answer := &dated{ResponseRecorder: httptest.NewRecorder()}
		(&statesync.Handler{Server: server, Authorize: anybody}).ServeHTTP(
			answer,
			httptest.NewRequestWithContext(ctx, http.MethodGet, "/scopes/eu/items?watch", nil),
		)
		require.Equal(t, []time.Duration{14 * time.Second, 14 * time.Second, 14 * time.Second}, answer.left)
	})
}

// What a log says of itself is not for readers, and where there are no readers
// there is nowhere to report.
func TestAHandlerKeepsToItself(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, counts *counted) { //nolint:thelper // a test
		counts.down.Store(true)
		answer, done := request(ctx, server, "")
		<-done
		require.Equal(t, http.StatusServiceUnavailable, answer.Code)
		require.NotContains(t, answer.Body.String(), "no connection")
		report := httptest.NewRecorder()
		(&statesync.Handler{Server: server, Authorize: anybody}).ServeHTTP(
			report,
			httptest.NewRequestWithContext(ctx, http.MethodPost, "/scopes/eu/reports", nil),
		)
		require.Equal(t, http.StatusNotFound, report.Code)
	})
}
