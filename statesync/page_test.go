package statesync_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// request begins a request to a Handler of server, and returns the answer, which
// is complete once done is closed.
func request(ctx context.Context, server *statesync.Server, path string) (answer *httptest.ResponseRecorder, done <-chan struct{}) {
	handler := &statesync.Handler{Server: server, Authorize: anybody}
	answer = httptest.NewRecorder()
	over := make(chan struct{})
	go func() {
		defer close(over)
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/scopes/eu/items"+path, nil))
	}()
	return answer, over
}

func TestALongPollEndsWithWhatThereIs(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		began := time.Now()
		require.NoError(t, log.Commit(put("a", 1), put("b", 1)))
		answer, done := request(ctx, server, "?watch=false")
		<-done
		require.Contains(t, answer.Body.String(), `{"type":"page"`)
		answer, done = request(ctx, server, "?wait=30s&limit=1")
		<-done
		require.Zero(t, time.Since(began))
		require.Contains(t, answer.Body.String(), `"after":0,"version":1,"head":2,"more":true,"items":[{"version":1`)
		page, err := log.Read(ctx, "eu", 0, 1)
		require.NoError(t, err)
		answer, done = request(ctx, server, "?wait=30s&after=2&epoch="+page.Epoch)
		<-done
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Contains(t, answer.Body.String(), `"after":2,"version":2,"head":2,"count":2,"digest"`)
		require.NotContains(t, answer.Body.String(), "items")

		// Another epoch while it waits.
		answer, done = request(ctx, server, "?wait=30s&after=2&epoch="+page.Epoch)
		time.Sleep(time.Second)
		require.NoError(t, log.Restore("eu", page.Items))
		<-done
		require.Equal(t, http.StatusGone, answer.Code)
		require.Contains(t, answer.Body.String(), `"reason":"other-epoch"`)
		require.Equal(t, 31*time.Second, time.Since(began))
	})
}

// What is not read yet is not the end, whatever the reader is willing to wait.
func TestAPageWaitsForTheLog(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(3, 0, true, a1, b2)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
			log.patient = true
			first, done := request(ctx, server, "?limit=2")
			<-done
			require.Contains(t, first.Body.String(), `"version":2,"head":3,"more":true`)
			second, done := request(ctx, server, "?limit=2&after=2&epoch=e")
			time.Sleep(time.Hour)
			require.Empty(t, second.Body.String())
			log.write(map[uint64][]statesync.Page{2: page(3, 0, false, c3)})
			<-done
			require.Contains(t, second.Body.String(), `"version":3,"head":3,"count":3`)
		},
	)
}

// TestWhoeverWaitsHearsThatTheServerEnds has those that wait for the log to be
// read at all, and those that wait for a change.
func TestWhoeverWaitsHearsThatTheServerEnds(t *testing.T) {
	for name, pages := range map[string]map[uint64][]statesync.Page{
		"for the log":  nil,
		"for a change": {0: page(0, 0, false)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &written{patient: true}
				log.write(pages)
				server := &statesync.Server{Log: log}
				ctx, cancel := context.WithCancel(t.Context())
				started := make(chan error, 1)
				go func() { started <- server.Start(ctx) }()
				_, end := open(t.Context(), server, eu)
				answer, done := request(t.Context(), server, "?wait=1m")
				stream, streamed := request(t.Context(), server, "?watch")
				time.Sleep(3 * time.Second)
				cancel()
				began := time.Now()
				var ended *statesync.EndError
				require.ErrorAs(t, <-end, &ended)
				require.Equal(t, statesync.EndOfServer, ended.Reason)
				<-done
				require.Equal(t, http.StatusServiceUnavailable, answer.Code)
				require.Equal(t, "1", answer.Header().Get("Retry-After"))
				<-streamed
				require.Contains(
					t,
					stream.Body.String(),
					`"code":"end","message":"stream ended: shutdown; come back with your cursor","reason":"shutdown"`,
				)
				require.Zero(t, time.Since(began))
				require.NoError(t, <-started)
			})
		})
	}
}

func TestAStreamIsOneFrameALine(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		broad := put("a", 1)
		broad.Value = []byte("{\n  \"b\": 1\r\n}")
		require.NoError(t, log.Commit(broad))
		ctx, cancel := context.WithCancel(ctx)
		answer, done := request(ctx, server, "?watch")
		synctest.Wait()
		cancel()
		<-done
		lines := strings.Split(strings.TrimSuffix(answer.Body.String(), "\n"), "\n")
		require.Len(t, lines, 3)
		require.Contains(t, lines[1], `"items":[{"version":1,"collection":"things","id":"a","value":{"b":1}}]`)
		require.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
		require.Equal(t, "no", answer.Header().Get("X-Accel-Buffering"))
		require.True(t, answer.Flushed)
	})
}

func TestAReaderOfOneCollectionMovesOnWithTheOthers(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		frames, _ := open(ctx, server, statesync.Watch{Scope: "eu", Collections: []string{"others"}})
		synctest.Wait()
		after(frames)
		require.NoError(t, log.Commit(put("a", 1), put("b", 1)))
		require.Equal(t, []string{"bookmark 2"}, told(after(frames)), "without waiting for the heartbeat")
	})
}

func TestWhatIsForgottenIsListedNoMore(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		require.NoError(t, log.Commit(put("a", 1), drop("a"), put("b", 1), drop("c")))
		count := func() (items int) {
			frames, _ := open(ctx, server, eu)
			for _, f := range after(frames) {
				items += len(f.Items)
			}
			return items
		}
		require.Equal(t, 3, count())
		require.NoError(t, log.Forget("eu", 2))
		synctest.Wait()
		require.Equal(t, 2, count())
	})
}
