package statesync_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// world is a log in memory and its server, for as long as the test
// lasts.
func world(t *testing.T) (*statesync.Memory, *statesync.Server) {
	t.Helper()
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("eu"))
	server := &statesync.Server{Log: log, Heartbeat: 3 * time.Second}
	run(t, server.Start)
	return log, server
}

// run runs start until the end of the test, and begins when it runs.
func run(t *testing.T, start func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func conforming(log *statesync.Memory, source statesync.Source) statesynctest.Server {
	return statesynctest.Server{
		Source: source, Scope: "eu",
		Commit: func(_ context.Context, changes ...statesync.Change) error { return log.Commit(changes...) },
		Forget: func(ctx context.Context) error {
			page, err := log.Read(ctx, "eu", 0, 1)
			if err != nil {
				return err
			}
			return log.Forget("eu", page.Head)
		},
		Restore: func(ctx context.Context) error {
			page, err := log.Read(ctx, "eu", 0, 1<<20)
			if err != nil {
				return err
			}
			return log.Restore("eu", page.Items)
		},
	}
}

func TestAServerKeepsItsPromises(t *testing.T) {
	statesynctest.RunServer(t, func(t *testing.T) statesynctest.Server {
		t.Helper()
		log, server := world(t)
		return conforming(log, server)
	})
}

func TestAClientKeepsItsPromises(t *testing.T) {
	statesynctest.RunServer(t, func(t *testing.T) statesynctest.Server {
		t.Helper()
		log, server := world(t)
		web := httptest.NewServer(&statesync.Handler{Server: server, Authorize: anybody})
		t.Cleanup(web.Close)
		client := &statesync.Client{URL: web.URL}
		t.Cleanup(client.Close)
		return conforming(log, client)
	})
}

func anybody(*http.Request, string) (string, error) { return "somebody", nil }
