package statesync_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestAListThatWaitsForTheLogNeverSaysSynced(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(4, 0, true, a1, b2)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
			log.patient = true
			frames, end := open(ctx, server, eu)
			for range 1200 {
				time.Sleep(time.Second)
				for _, f := range after(frames) {
					require.NotEqual(t, statesync.FrameSynced, f.Type, "the log has more")
					require.True(t, f.Type == statesync.FrameHeader || f.More, f.Type)
				}
			}
			log.write(map[uint64][]statesync.Page{0: page(4, 0, true, a1, b2), 2: page(4, 0, false, c3, is("d", 4))})
			require.Equal(t, []string{"items 4", "synced 4"}, told(after(frames)))
			select {
			case err := <-end:
				require.NoError(t, err)
			default:
			}
		},
	)
}

func TestAPageThatWaitsForTheLogIsNotTheEnd(t *testing.T) {
	telling(
		t,
		map[uint64][]statesync.Page{0: page(4, 0, true, a1, b2)},
		func(t *testing.T, ctx context.Context, server *statesync.Server, log *written) { //nolint:thelper // a test
			log.patient = true
			client := &statesync.Client{
				URL:       "http://server",
				Transport: buffering(&statesync.Handler{Server: server, Authorize: func(*http.Request, string) (string, error) { return "r", nil }}),
			}
			first, err := client.Page(ctx, eu, 2, 0)
			require.NoError(t, err)
			require.True(t, first.More)
			next := eu
			next.Cursor = first.Next()
			pages := make(chan statesync.Frame, 1)
			go func() {
				if p, err := client.Page(ctx, next, 2, 0); err == nil {
					pages <- p
				}
			}()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			require.Empty(t, pages)
			log.write(map[uint64][]statesync.Page{2: page(4, 0, false, c3, is("d", 4))})
			p := <-pages
			require.False(t, p.More)
			require.Len(t, p.Items, 2)
		},
	)
}

// TestASlowReaderIsToldWhyItsStreamEnds has readers that take a frame only now and
// then, while the log moves on.
func TestASlowReaderIsToldWhyItsStreamEnds(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, slow := range []time.Duration{time.Second, time.Minute, 10 * time.Minute, time.Hour} {
			end := make(chan error, 1)
			began := time.Now()
			go func() {
				end <- server.Watch(ctx, eu, func(statesync.Frame) error { time.Sleep(slow); return nil })
			}()
			var err error
			for n := 0; err == nil; n++ {
				for range 100 {
					require.NoError(t, log.Commit(put("a", n)))
				}
				select {
				case err = <-end:
				case <-time.After(10 * time.Second):
				}
				require.Less(t, time.Since(began), 5*time.Hour)
			}
			var ended *statesync.EndError
			require.ErrorAs(t, err, &ended, slow)
			require.Equal(t, statesync.EndOfAge, ended.Reason)
			require.GreaterOrEqual(t, time.Since(began), 24*time.Minute, "it is ended for nothing but its age")
		}
	})
}

// TestTheLastLineOfAStreamIsItsReason has slow readers over HTTP, whose last line
// comes although what they have not taken lies before it.
func TestTheLastLineOfAStreamIsItsReason(t *testing.T) {
	server := &statesync.Server{MaxAge: time.Minute}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		handler := &statesync.Handler{Server: server, Authorize: func(*http.Request, string) (string, error) { return "r", nil }}
		body, answer := io.Pipe()
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/scopes/eu/items?watch", nil)
		go func() {
			handler.ServeHTTP(&pipeWriter{header: http.Header{}, to: answer}, request)
			_ = answer.Close()
		}()
		var text strings.Builder
		buffer := make([]byte, 100)
		for n := 0; ; n++ {
			require.NoError(t, log.Commit(put("a", n)))
			time.Sleep(time.Second)
			got, err := body.Read(buffer)
			text.Write(buffer[:got])
			if err != nil {
				break
			}
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		require.Contains(t, lines[len(lines)-1], `"reason":"age"`)
	})
}

// pipeWriter is an answer that is taken as slowly as its reader reads.
type pipeWriter struct {
	header http.Header
	to     io.Writer
}

func (w *pipeWriter) Header() http.Header         { return w.header }
func (w *pipeWriter) WriteHeader(int)             {}
func (w *pipeWriter) Write(p []byte) (int, error) { return w.to.Write(p) }
func (w *pipeWriter) Flush()                      {}
