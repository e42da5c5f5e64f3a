package statesync_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// buffering answers from the handler as a proxy does that collects whole answers.
func buffering(handler http.Handler) httpfunc.Transport {
	return func(r *http.Request) (*http.Response, error) {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return recorder.Result(), nil
	}
}

func TestAReplicaBehindAProxyThatBuffersPolls(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		for n := range 1200 {
			require.NoError(
				t,
				log.Commit(
					put("item", n),
					statesync.Change{Scope: "eu", Key: statesync.Key{Collection: "many", ID: strconv.Itoa(n)}, Value: []byte(`1`)},
				),
			)
		}
		var said bytes.Buffer
		client := &statesync.Client{
			URL:    "http://server",
			Logger: slog.New(slog.NewTextHandler(&said, nil)),
			Transport: buffering(
				&statesync.Handler{Server: server, Authorize: func(*http.Request, string) (string, error) { return "reader", nil }},
			),
		}
		var handled atomic.Int64
		replica := &statesync.Replica{
			Source: client,
			Scope:  "eu",
			Handle: func(context.Context, statesync.Item) error { handled.Add(1); return nil },
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- replica.Start(ctx) }()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		page, err := log.Read(ctx, "eu", 0, 2000)
		require.NoError(t, err)
		state, complete := replica.Complete()
		require.True(t, complete)
		require.Len(t, state.Items, len(page.Items))
		require.Equal(t, statesync.Cursor{Epoch: page.Epoch, Version: page.Head, Mark: page.Mark}, replica.Status().Applied)
		require.Contains(t, said.String(), "polling pages instead")
		require.True(t, client.Polling())

		require.NoError(t, log.Commit(drop("item")))
		synctest.Wait()
		require.Equal(t, page.Head+1, replica.Status().Applied.Version, "a long poll is answered at once")
		time.Sleep(3 * time.Hour)
		require.NoError(t, log.Commit(put("item", 7)))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		_, complete = replica.Complete()
		require.True(t, complete)
		require.Equal(t, page.Head+2, replica.Status().Applied.Version)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestAfterAnOutageOfTheLogAllIsBackWithinFiveSeconds(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, 20 * time.Second, 5 * time.Minute, time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			server := &statesync.Server{}
			virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
				require.NoError(t, log.Commit(put("a", 1)))
				ctx, cancel := context.WithCancel(ctx)
				const many = 50
				replicas := make([]*statesync.Replica, many)
				done := make(chan error, many)
				for n := range replicas {
					replicas[n] = &statesync.Replica{Source: server, Scope: "eu", Handle: func(context.Context, statesync.Item) error { return nil }}
					go func() { done <- replicas[n].Start(ctx) }()
				}
				synctest.Wait()
				counts.down.Store(true)
				require.NoError(t, log.Commit(put("a", 2)))
				synctest.Wait()
				for _, r := range replicas {
					_, complete := r.Complete()
					require.False(t, complete)
				}
				before := counts.reads.Load()
				time.Sleep(outage)
				require.LessOrEqual(t, counts.reads.Load()-before, int64(outage/time.Second)+1, "the log is not read more than once a second")
				counts.down.Store(false)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				for n, r := range replicas {
					_, complete := r.Complete()
					require.True(t, complete, n)
				}
				cancel()
				for range many {
					require.NoError(t, <-done)
				}
			})
		})
	}
}
