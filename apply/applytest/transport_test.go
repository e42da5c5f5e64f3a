package applytest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// client sends requests through a Transport to a server that answers "ok".
func client(t *testing.T, net *applytest.Transport, handler http.HandlerFunc) func(method, path string) (answer, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	through := net.Wrap(server.Client().Transport)
	return func(method, path string) (answer, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader("{}"))
		require.NoError(t, err)
		got, err := through.RoundTrip(request)
		if err != nil {
			return answer{}, err
		}
		t.Cleanup(func() { _ = got.Body.Close() })
		return answer{got.StatusCode, got.Header, got.Body}, nil
	}
}

// answer is a response whose body is closed with the test.
type answer struct {
	StatusCode int
	Header     http.Header
	Body       io.ReadCloser
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestRequestsAreNamedAsTheServerNamesThem(t *testing.T) {
	t.Parallel()
	var net applytest.Transport
	send := client(t, &net, ok)
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/api/v1/namespaces/shop/pods", "list pods shop/"},
		{"GET", "/api/v1/namespaces/shop/pods?watch=true", "watch pods shop/"},
		{"GET", "/api/v1/pods", "list pods"},
		{"GET", "/api/v1/namespaces", "list namespaces"},
		{"GET", "/api/v1/namespaces/shop", "get namespaces shop"},
		{"PUT", "/api/v1/namespaces/shop/finalize", "update namespaces/finalize shop"},
		{"GET", "/apis/apps/v1/namespaces/shop/deployments/web", "get deployments.apps shop/web"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web?fieldManager=x&force=true", "patch deployments.apps shop/web"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/status", "patch deployments.apps/status shop/web"},
		{"POST", "/apis/apps/v1/namespaces/shop/deployments?dryRun=All", "create deployments.apps shop/ (dry run)"},
		{"POST", "/api/v1/nodes", "create nodes"},
		{"DELETE", "/api/v1/nodes/n1", "delete nodes n1"},
		{"DELETE", "/api/v1/namespaces/shop/pods", "deletecollection pods shop/"},
		{"GET", "/version", "get /version"},
		{"GET", "/apis/apps/v1", "get /apis/apps/v1"},
	} {
		net.Reset()
		_, err := send(test.method, test.path)
		require.NoError(t, err)
		require.Equal(t, test.want, net.Requests()[0].String())
		require.Equal(t, http.StatusOK, net.Requests()[0].Status)
	}
}

func TestAssertionsNameWhatWasSent(t *testing.T) {
	t.Parallel()
	var net applytest.Transport
	send := client(t, &net, ok)
	for _, path := range []string{"GET /api/v1/pods", "GET /api/v1/pods?watch=1", "GET /api/v1/nodes/n", "PATCH /api/v1/nodes/n", "POST /api/v1/nodes?dryRun=All"} {
		method, at, _ := strings.Cut(path, " ")
		_, err := send(method, at)
		require.NoError(t, err)
	}
	var told report
	net.NoWrites(&told)
	require.Equal(t, report{"a write where none was due: patch nodes n"}, told)
	told = nil
	net.NoRequests(&told)
	require.Equal(t, report{
		"a request where none was due: get nodes n",
		"a request where none was due: patch nodes n",
		"a request where none was due: create nodes (dry run)",
	}, told)
	require.Equal(t, 1, net.Count("list"))
	require.Len(t, net.Writes(), 1)
	require.Equal(t, 1, net.Writes()[0].WriteNumber)
	require.Equal(t, 4, net.Writes()[0].Number)
	net.Reset()
	told = nil
	net.NoRequests(&told)
	require.Empty(t, told)

	_, err := send("DELETE", "/api/v1/namespaces/shop/pods")
	require.NoError(t, err)
	net.NoWrites(&told)
	require.Equal(t, report{"a write where none was due: deletecollection pods shop/"}, told)
	require.Equal(t, []int{1, 1}, []int{net.Requests()[0].Number, net.Requests()[0].WriteNumber}, "counted from 1 again")
}

type report []string

func (r *report) Helper() {}

func (r *report) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestFaultsHappenToTheRequestThatTheyAreFor(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	served := 0
	net := applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		return map[string]applytest.Fault{
			"busy": {Status: http.StatusTooManyRequests, RetryAfter: 3 * time.Second},
			"lose": {Lose: true}, "drop": {LoseAnswer: true}, "late": {Delay: time.Hour},
		}[r.Name]
	}}
	send := client(t, &net, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served++
		ok(w, r)
	})
	answer, err := send("GET", "/api/v1/nodes/busy")
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	require.Equal(t, "3", answer.Header.Get("Retry-After"))
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"reason":"TooManyRequests"`)
	_, err = send("GET", "/api/v1/nodes/lose")
	require.ErrorIs(t, err, applytest.ErrLost)
	require.Zero(t, served, "none of them has reached the server")
	_, err = send("GET", "/api/v1/nodes/drop")
	require.ErrorIs(t, err, applytest.ErrLost)
	require.Equal(t, 1, served)
	_, err = send("GET", "/api/v1/nodes/fine")
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unused/api/v1/nodes/late", nil)
	require.NoError(t, err)
	_, err = net.Wrap(nil).RoundTrip(request) //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, context.Canceled, "a delay ends with the request")
}

func TestACrashLetsNothingMoreThrough(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after  bool
		served int
	}{"before": {false, 1}, "after": {true, 2}} {
		crashes, served := 0, 0
		net := applytest.Transport{OnCrash: func() { crashes++ }, Fault: func(r applytest.Request) applytest.Fault {
			if r.WriteNumber < 2 {
				return applytest.Fault{}
			}
			return applytest.Fault{Crash: true, LoseAnswer: test.after}
		}}
		send := client(t, &net, func(w http.ResponseWriter, r *http.Request) {
			served++
			assert.False(t, net.Crashed(), "%s: whoever waits for the crash would end this request", name)
			ok(w, r)
		})
		_, err := send("POST", "/api/v1/nodes")
		require.NoError(t, err)
		require.False(t, net.Crashed())
		for range 3 {
			_, err = send("POST", "/api/v1/nodes")
			require.ErrorIs(t, err, applytest.ErrCrashed, name)
		}
		require.Equal(t, test.served, served, name)
		require.Equal(t, 1, crashes)
		require.True(t, net.Crashed())
		require.Len(t, net.Requests(), 2, "requests after a crash are not sent")
	}
}

func TestWatchesAreHeldBackReplayedAndEnded(t *testing.T) {
	t.Parallel()
	var net applytest.Transport
	events := make(chan string)
	send := client(t, &net, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-events:
				_, _ = io.WriteString(w, e+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	watch, err := send("GET", "/api/v1/nodes?watch=true")
	require.NoError(t, err)
	lines := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		buf := make([]byte, 1)
		line := ""
		for {
			if _, err := watch.Body.Read(buf); err != nil {
				ended <- err
				return
			}
			if buf[0] == '\n' {
				lines <- line
				line = ""
				continue
			}
			line += string(buf)
		}
	}()
	events <- "one"
	require.Equal(t, "one", <-lines)
	require.Equal(t, 1, net.Watches())
	net.Freeze()
	events <- "two"
	events <- "three"
	select {
	case line := <-lines:
		t.Fatalf("%q came through a frozen watch", line)
	default:
	}
	net.Replay()
	require.Equal(t, "one", <-lines, "delivered events come again, events held back do not")
	net.Thaw()
	require.Equal(t, "two", <-lines)
	require.Equal(t, "three", <-lines)
	net.Expire()
	require.ErrorIs(t, <-ended, io.ErrUnexpectedEOF)
	require.NoError(t, watch.Body.Close())
	require.Zero(t, net.Watches())
	gone, err := send("GET", "/api/v1/nodes?watch=true")
	require.NoError(t, err)
	require.Equal(t, http.StatusGone, gone.StatusCode)
	again, err := send("GET", "/api/v1/nodes?watch=true")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, again.StatusCode)
	net.Cut()
	_, err = again.Body.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
