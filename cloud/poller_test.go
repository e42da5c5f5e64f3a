package cloud_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
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

// TestCallersThatWaitForAListShareIt is no test of synctest: a caller that waits for a
// mutex does not let virtual time pass.
func TestCallersThatWaitForAListShareIt(t *testing.T) {
	inventory := &heldInventory{answer: make(chan struct{})}
	poller := &cloud.Poller{Inventory: inventory, Tags: scope.ClusterTags()}
	const callers = 5
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			got, _, err := poller.List(t.Context(), scope, time.Hour)
			if err != nil || len(got) != 1 {
				t.Errorf("got %v: %v", got, err)
			}
		})
	}
	await.Until(t, 10*time.Second, "each has found that there is no list", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return strings.Count(string(stacks), "cloud.(*Poller).refresh(") == callers
	})
	close(inventory.answer)
	all.Wait()
	require.Equal(t, int32(1), inventory.lists.Load())
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
