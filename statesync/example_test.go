package statesync_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// A control plane serves desired state over HTTP; an agent applies it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())

	// The control plane.
	log := &statesync.Memory{}
	server := &statesync.Server{Log: log}
	go server.Start(ctx) //nolint:errcheck // nil when ctx ends
	web := httptest.NewServer(&statesync.Handler{
		Server:    server,
		Authorize: func(*http.Request, string) (string, error) { return "agent-1", nil },
	})
	defer web.Close()
	defer stop()
	web1 := statesync.Key{Collection: "deployments", ID: "web"}
	fmt.Println(log.AddScope("eu"), log.Commit(statesync.Change{Scope: "eu", Key: web1, Value: []byte(`{"image":"web:1"}`)}))

	// The agent.
	handled := make(chan string)
	agent := &statesync.Replica{
		Source: &statesync.Client{URL: web.URL},
		Scope:  "eu",
		Handle: func(_ context.Context, item statesync.Item) error {
			handled <- fmt.Sprintf("%s at version %d, deleted: %t %s", item.Key, item.Version, item.Deleted, string(item.Value))
			return nil
		},
	}
	go agent.Start(ctx) //nolint:errcheck // nil when ctx ends
	fmt.Println(<-handled)

	fmt.Println(log.Commit(statesync.Change{Scope: "eu", Key: web1, Deleted: true}))
	fmt.Println(<-handled)
	// Output:
	// <nil> <nil>
	// deployments/web at version 1, deleted: false {"image":"web:1"}
	// <nil>
	// deployments/web at version 2, deleted: true
}

// A reader whose token is refused waits for half a minute or longer. Once the
// program has another token there is nothing to wait for.
func ExampleReplica_Reconnect() {
	ctx, stop := context.WithCancel(context.Background())
	log := &statesync.Memory{}
	server := &statesync.Server{Log: log}
	go server.Start(ctx) //nolint:errcheck // nil when ctx ends
	web := httptest.NewServer(&statesync.Handler{Server: server, Authorize: func(r *http.Request, _ string) (string, error) {
		if r.Header.Get("Authorization") != "Bearer new" {
			return "", statesync.ErrUnauthenticated
		}
		return "agent-1", nil
	}})
	defer web.Close()
	defer stop()
	fmt.Println(log.AddScope("eu"))

	var token atomic.Value
	token.Store("old")
	synced, refused := make(chan statesync.Snapshot), make(chan statesync.Stream)
	agent := &statesync.Replica{
		Source: &statesync.Client{URL: web.URL, Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", token.Load()))
			return nil
		}},
		Scope:    "eu",
		Handle:   func(context.Context, statesync.Item) error { return nil },
		OnStream: func(s statesync.Stream) { refused <- s },
		OnSynced: func(s statesync.Snapshot) { synced <- s },
	}
	go agent.Start(ctx) //nolint:errcheck // nil when ctx ends

	stream := <-refused
	fmt.Println(errors.Is(stream.Err, statesync.ErrUnauthenticated), stream.Retry.Seconds() >= 30)
	token.Store("new")
	agent.Reconnect()
	fmt.Println((<-synced).Lists)
	// Output:
	// <nil>
	// true true
	// 1
}
