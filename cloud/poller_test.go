package cloud_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// heldInventory counts lists, and holds each back until it may answer.
type heldInventory struct {
	cloud.Inventory
	lists  atomic.Int32
	answer chan struct{}
}

func (h *heldInventory) ListInstances(context.Context, map[string]string) ([]cloud.Instance, error) {
	h.lists.Add(1)
	<-h.answer
	return []cloud.Instance{{ID: "i-1", Tags: scope.Tags()}}, nil
}

func TestCallersThatWaitForAListShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inventory := &heldInventory{answer: make(chan struct{})}
		poller := &cloud.Poller{Inventory: inventory, Tags: scope.ClusterTags()}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				got, _, err := poller.List(t.Context(), scope, time.Hour)
				if err != nil || len(got) != 1 {
					t.Errorf("got %v: %v", got, err)
				}
			})
		}
		synctest.Wait() // each has found that there is no list
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := poller.List(ctx, scope, time.Hour)
		require.ErrorIs(t, err, context.Canceled, "it does not wait for the list of another")
		close(inventory.answer)
		all.Wait()
		require.Equal(t, int32(1), inventory.lists.Load())
	})
}

func TestACallerThatNeedsANewerListThanTheOthersGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inventory := &heldInventory{answer: make(chan struct{})}
		close(inventory.answer)
		poller := &cloud.Poller{Inventory: inventory, Tags: scope.ClusterTags()}
		_, first, err := poller.List(t.Context(), scope, time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, again, err := poller.List(t.Context(), scope, time.Minute)
		require.NoError(t, err)
		require.Equal(t, first, again)
		_, newer, err := poller.List(t.Context(), scope, 0)
		require.NoError(t, err)
		require.Equal(t, time.Now(), newer)
		require.Equal(t, int32(2), inventory.lists.Load())
	})
}
