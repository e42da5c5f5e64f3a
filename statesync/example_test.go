package statesync_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// A control plane tells what it wants over HTTP; an agent makes it so.
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
			handled <- fmt.Sprintf("%s at version %d, deleted: %t %s", item.Key, item.Version, item.Deleted, item.Value)
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
