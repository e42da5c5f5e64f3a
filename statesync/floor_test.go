package statesync_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// TestAFloorThatRisesAboveAStreamEndsIt has readers that take a frame for so
// long that tombstones are forgotten which they have not been told. One that
// has nothing yet loses nothing by that.
func TestAFloorThatRisesAboveAStreamEndsIt(t *testing.T) {
	for name, c := range map[string]struct {
		slow statesync.FrameType
		// frames are the expected frames; floor means that the stream ends then.
		frames []statesync.FrameType
		floor  bool
	}{
		"in the header": {statesync.FrameHeader, []statesync.FrameType{statesync.FrameHeader, statesync.FrameItems, statesync.FrameItems, statesync.FrameSynced}, false},
		"in its list":   {statesync.FrameItems, []statesync.FrameType{statesync.FrameHeader, statesync.FrameItems}, true},
		"after it":      {statesync.FrameSynced, []statesync.FrameType{statesync.FrameHeader, statesync.FrameItems, statesync.FrameItems, statesync.FrameSynced}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &statesync.Server{Batch: 2}
			virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
				require.NoError(t, log.Commit(put("a", 1), put("b", 1), put("c", 1), put("d", 1)))
				ctx, cancel := context.WithCancel(ctx)
				resume, end := make(chan struct{}), make(chan error, 1)
				var came []statesync.FrameType
				go func() {
					end <- server.Watch(ctx, eu, func(f statesync.Frame) error {
						if came = append(came, f.Type); f.Type == c.slow {
							<-resume
						}
						return nil
					})
				}()
				synctest.Wait()
				require.NoError(t, log.Commit(drop("a"), put("e", 1)))
				require.NoError(t, log.Forget("eu", 6))
				synctest.Wait()
				close(resume)
				synctest.Wait()
				cancel()
				err := <-end
				require.Equal(t, c.frames, came)
				if !c.floor {
					require.ErrorIs(t, err, context.Canceled)
					return
				}
				var resync *statesync.ResyncError
				require.ErrorAs(t, err, &resync)
				require.Equal(t, statesync.BelowFloor, resync.Reason)
				require.Equal(t, uint64(6), resync.Position.Floor)
			})
		})
	}
}

// A floor that was there before the list began took nothing from it.
func TestAFloorAboveTheItemsOfAListEndsNothing(t *testing.T) {
	server := &statesync.Server{Batch: 1}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		require.NoError(t, log.Commit(put("a", 1), put("b", 1), put("c", 1), drop("d")))
		require.NoError(t, log.Forget("eu", 4))
		ctx, cancel := context.WithCancel(ctx)
		frames, end := open(ctx, server, eu)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-end, context.Canceled)
		var last statesync.Frame
		for f := range frames {
			last = f
		}
		require.Equal(t, statesync.FrameSynced, last.Type)
		require.Equal(t, 3, last.Count)
	})
}
