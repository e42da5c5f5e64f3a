package agents_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

func TestADoorLetsFourInAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := agents.NewDoor()
		var inside, through atomic.Int32
		next := make(chan struct{})
		for range 10 {
			go func() {
				leave, err := door.Enter(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				inside.Add(1)
				<-next
				inside.Add(-1)
				through.Add(1)
				leave()
				leave() // does nothing
			}()
		}
		for n := range int32(10) {
			synctest.Wait()
			require.Equal(t, min(4, 10-n), inside.Load())
			require.Equal(t, n, through.Load())
			next <- struct{}{}
		}
		synctest.Wait()
		require.Equal(t, int32(10), through.Load())
	})
}

func TestOneWhoWaitsAtADoorMayGo(t *testing.T) {
	t.Parallel()
	door := agents.NewDoor()
	for range 4 {
		_, err := door.Enter(t.Context())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := door.Enter(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
