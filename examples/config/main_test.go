package main_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// freeAddress returns an address that nothing listens on: the program keeps it over a restart.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

//nolint:paralleltest // it sets a variable of the environment
func TestAReaderFollowsTheServiceOverARestart(t *testing.T) {
	const token = "token-of-the-test"
	t.Setenv("CONFIG_TOKEN", token)
	address, file, path := freeAddress(t), filepath.Join(t.TempDir(), "a b?.db"), programtest.Build(t)
	ask := func(method, path, credential, body string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+credential)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, string(text)
	}
	start := func() func() error {
		_, stop := programtest.Start(t, path, "--listen", address, "--database", file)
		await.Eventually(t, "the service answers", func() bool { status, _ := ask(http.MethodGet, "/", token, ""); return status != 0 })
		return stop
	}
	stop := start()
	status, _ := ask(http.MethodPut, "/settings/shop/limit", "wrong", "1")
	require.Equal(t, http.StatusUnauthorized, status)
	status, text := ask(http.MethodPut, "/settings/shop/limit", token, "{")
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "value: must be one JSON value")
	status, text = ask(http.MethodPut, "/settings/shop/limit", token, "1")
	require.Equal(t, http.StatusOK, status, text)

	replica := &statesync.Replica{
		Scope: "shop", Handle: func(context.Context, statesync.Item) error { return nil },
		Source: &statesync.Client{URL: "http://" + address + "/sync", Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- replica.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	has := func(version uint64, want string) {
		t.Helper()
		await.Eventually(t, "the reader has "+want, func() bool {
			state, complete := replica.Complete()
			item := state.Items[statesync.Key{Collection: "settings", ID: "limit"}]
			return complete && item.Version == version && string(item.Value) == want && item.Deleted == (want == "")
		})
	}
	has(1, "1")
	began := time.Now()
	require.NoError(t, stop(), "it ends by itself, though a stream is open")
	require.Less(t, time.Since(began), 9*time.Second, "it does not wait for the stream")
	stop = start()
	status, _ = ask(http.MethodPut, "/settings/shop/limit", token, "2")
	require.Equal(t, http.StatusOK, status)
	has(2, "2")
	status, _ = ask(http.MethodDelete, "/settings/shop/limit", token, "")
	require.Equal(t, http.StatusOK, status)
	has(3, "")
	require.NoError(t, stop())

	file = "config.db" // the default, in the working directory
	require.NoError(t, start()())
}
