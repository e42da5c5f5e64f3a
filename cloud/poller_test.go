package cloud_test

import (
	"context"
	"errors"
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

// failing lists as a test says.
type failing struct {
	cloud.Inventory
	list func(ctx context.Context) ([]cloud.Instance, error)
}

func (f *failing) ListInstances(ctx context.Context, _ map[string]string) ([]cloud.Instance, error) {
	return f.list(ctx)
}

func TestCallersThatWaitForAListShareItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, fail := atomic.Int32{}, errors.New("no")
		poller := &cloud.Poller{Inventory: &failing{list: func(ctx context.Context) ([]cloud.Instance, error) {
			lists.Add(1)
			<-ctx.Done() // it never answers
			return nil, fail
		}}}
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, _, err := poller.List(t.Context(), scope, time.Hour); !errors.Is(err, fail) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(1), lists.Load())
		require.Equal(t, 2*time.Minute, time.Since(began))
	})
}

func TestOneWhoGoesOrPanicsKeepsNoOtherFromTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := atomic.Int32{}
		poller := &cloud.Poller{Inventory: &failing{list: func(ctx context.Context) ([]cloud.Instance, error) {
			switch lists.Add(1) {
			case 1:
				<-ctx.Done()
				return nil, ctx.Err()
			case 3:
				time.Sleep(time.Second)
				panic("a provider")
			}
			return []cloud.Instance{{ID: "i-1", Tags: scope.Tags()}}, nil
		}}}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := poller.List(ctx, scope, time.Hour); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if got, _, err := poller.List(t.Context(), scope, time.Hour); err != nil || len(got) != 1 {
				t.Errorf("got %v: %v", got, err)
			}
		})
		synctest.Wait()
		cancel()
		all.Wait()

		time.Sleep(time.Minute)
		all.Go(func() {
			defer func() { _ = recover() }()
			_, _, _ = poller.List(t.Context(), scope, 0)
		})
		synctest.Wait()
		_, _, err := poller.List(t.Context(), scope, 0)
		require.ErrorContains(t, err, "has panicked")
		all.Wait()
		_, _, err = poller.List(t.Context(), scope, 0)
		require.NoError(t, err)
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
