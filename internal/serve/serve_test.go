package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/serve"
)

// start runs the server and returns its base URL and a function that ends it
// and returns what Start returned.
func start(t *testing.T, server *serve.Server) (string, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	server.OnListen = func(a net.Addr) { address <- a }
	go func() { ended <- server.Start(ctx) }()
	stop := func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return "http://" + (<-address).String(), stop
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// things are metrics.
var things = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "things_total 42\n") // the test sees what is missing
})

func TestTheZeroServerIsHealthyAndReady(t *testing.T) {
	url, stop := start(t, &serve.Server{})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 404, "/": 404} {
		status, _ := get(t, url+path)
		require.Equal(t, want, status, path)
	}
	require.NoError(t, stop())
}

// TestMetricsHaveAListenerOfTheirOwn: neither address answers for the other, the log tells them
// apart, and both end.
func TestMetricsHaveAListenerOfTheirOwn(t *testing.T) {
	metrics := make(chan net.Addr, 1)
	var log bytes.Buffer
	url, stop := start(t, &serve.Server{
		MetricsAddress: "127.0.0.1:0", Metrics: things, OnListenMetrics: func(a net.Addr) { metrics <- a },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	own := "http://" + (<-metrics).String()
	for address, wanted := range map[string]map[string]int{
		url: {"/healthz": 200, "/readyz": 200, "/metrics": 404},
		own: {"/metrics": 200, "/more": 404},
	} {
		for path, want := range wanted {
			status, body := get(t, address+path)
			require.Equal(t, want, status, path)
			require.Equal(t, want == 200 && path == "/metrics", strings.Contains(body, "things_total"), path)
		}
	}
	require.NoError(t, stop())
	for _, line := range []string{"address=" + strings.TrimPrefix(url, "http://") + " for=health", "address=" + strings.TrimPrefix(own, "http://") + " for=metrics"} {
		require.Contains(t, log.String(), line)
	}
	_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(own, "http://"))
	require.Error(t, err)
}

// TestAnAddressInUseEndsBothListeners names the address.
func TestAnAddressInUseEndsBothListeners(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	server := serve.Server{MetricsAddress: taken.Addr().String(), Metrics: things}
	require.ErrorContains(t, server.Start(t.Context()), "listen on "+taken.Addr().String())
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	var filled atomic.Bool
	url, _ := start(t, &serve.Server{Checks: []serve.Check{
		{Name: "database", Func: func(context.Context) error { return nil }},
		{Name: "cache", Func: func(context.Context) error {
			if !filled.Load() {
				return errors.New("2 of 3 kinds listed")
			}
			return nil
		}},
	}})
	status, body := get(t, url+"/readyz")
	require.Equal(t, 503, status)
	require.Equal(t, "database: ok\ncache: not ready: 2 of 3 kinds listed\n", body)
	status, _ = get(t, url+"/healthz")
	require.Equal(t, 200, status)
	filled.Store(true)
	status, body = get(t, url+"/readyz")
	require.Equal(t, 200, status)
	require.Equal(t, "database: ok\ncache: ok\n", body)
}

func TestMetricsAndTheHandlerAreServed(t *testing.T) {
	url, _ := start(t, &serve.Server{Metrics: things, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})})
	_, body := get(t, url+"/metrics")
	require.Contains(t, body, "things_total 42")
	status, _ := get(t, url+"/api")
	require.Equal(t, http.StatusTeapot, status)
}

func TestStopWaitsForTheRequestUnderWay(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	url, stop := start(t, &serve.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	})})
	answered, stopped := make(chan int, 1), make(chan error, 1)
	go func() {
		status, _ := get(t, url+"/slow")
		answered <- status
	}()
	<-entered
	go func() { stopped <- stop() }()
	select {
	case <-stopped:
		t.Fatal("stopped in the middle of a request")
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	require.Equal(t, 200, <-answered)
	require.NoError(t, <-stopped)
}

func TestStopIsBounded(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	url, stop := start(
		t,
		&serve.Server{StopTimeout: 50 * time.Millisecond, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(entered)
			<-release
		})},
	)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	cut := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		cut <- err
	}()
	<-entered
	require.NoError(t, stop(), "though the request goes on")
	require.Error(t, <-cut)
}

func TestAnAddressInUseIsAnErrorWithTheAddress(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	err = (&serve.Server{Address: taken.Addr().String()}).Start(t.Context())
	require.ErrorContains(t, err, taken.Addr().String())
}
