package statesync_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// heldLog holds back reads from the beginning while held is set, and all of them while
// closed is locked.
type heldLog struct {
	*statesync.Memory
	held   atomic.Pointer[chan struct{}]
	closed sync.RWMutex
}

func (l *heldLog) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	if held := l.held.Load(); held != nil && after == 0 {
		select {
		case <-*held:
		case <-ctx.Done():
			return statesync.Page{}, ctx.Err()
		}
	}
	l.closed.RLock()
	defer l.closed.RUnlock()
	return l.Memory.Read(ctx, scope, after, limit)
}

// TestAListIsNotEmptyBecauseTheLogIsReadAnew begins a stream and asks for a page after the
// server has dropped what it had read, and before it has read the log again.
func TestAListIsNotEmptyBecauseTheLogIsReadAnew(t *testing.T) {
	items := []statesync.Item{{Version: 1, Key: statesync.Key{Collection: "things", ID: "a"}, Value: json.RawMessage(`1`)}}
	for name, restart := range map[string]func(log *statesync.Memory) error{
		"another epoch": func(log *statesync.Memory) error { return log.Restore("eu", items) },
		"a floor above what was read": func(log *statesync.Memory) error {
			for range 3 {
				if err := log.Commit(drop("a"), put("b", 2)); err != nil {
					return err
				}
			}
			return log.Forget("eu", 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &heldLog{Memory: &statesync.Memory{}}
				require.NoError(t, log.AddScope("eu"))
				require.NoError(t, log.Commit(put("a", 1)))
				server := &statesync.Server{Log: log}
				run(t, server.Start)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				watch := func() chan statesync.Frame {
					synced := make(chan statesync.Frame, 1)
					go func() {
						_ = server.Watch(ctx, statesync.Watch{Scope: "eu"}, func(f statesync.Frame) error {
							if f.Type == statesync.FrameSynced {
								synced <- f
							}
							return nil
						})
					}()
					return synced
				}
				require.Equal(t, 1, (<-watch()).Count)
				held := make(chan struct{})
				log.held.Store(&held)
				log.closed.Lock() // or the server reads the tombstones in between
				require.NoError(t, restart(log.Memory))
				log.closed.Unlock()
				synctest.Wait()
				second := watch()
				synctest.Wait()
				require.Empty(t, second, "the log was not read to its end")
				close(held)
				require.Equal(t, 1, (<-second).Count)
			})
		})
	}
}
