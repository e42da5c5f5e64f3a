package statesync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestAStreamListsThenWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log statesync.Memory
		require.NoError(t, log.AddScope("eu"))
		require.NoError(t, log.Commit(put("eu", "a", 1), put("eu", "b", 1)))
		server := &statesync.Server{Log: &log}
		done := make(chan error)
		go func() { done <- server.Start(ctx) }()
		synctest.Wait()
		frames := make(chan statesync.Frame, 100)
		ended := make(chan error)
		go func() {
			ended <- server.Watch(ctx, statesync.Watch{Scope: "eu"}, func(f statesync.Frame) error { frames <- f; return nil })
		}()
		synctest.Wait()
		require.NoError(t, log.Commit(put("eu", "a", 2), drop("eu", "b")))
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		fmt.Println(<-ended)
		close(frames)
		for f := range frames {
			text, _ := json.Marshal(f)
			fmt.Println(string(text))
		}
	})
}

func put(scope, id string, n int) statesync.Change {
	return statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: id}, Value: json.RawMessage(fmt.Sprint(n))}
}

func drop(scope, id string) statesync.Change {
	return statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: id}, Deleted: true}
}
