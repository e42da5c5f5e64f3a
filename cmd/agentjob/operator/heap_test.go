package operator //nolint:testpackage // it is not exported

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsGivenBackOnceWhenPassesHaveComeToRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int64
		h := heap{release: func() { released.Add(1) }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Start(ctx) }()
		after := func(d time.Duration, want int64, why string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			require.Equal(t, want, released.Load(), why)
		}
		after(time.Hour, 0, "there was no pass")
		for range 100 {
			h.passed()
			after(restAfter-time.Second, 0, "there is work")
		}
		after(2*restAfter, 1, "it has come to rest")
		after(time.Hour, 1, "it rests")
		h.passed()
		after(2*restAfter, 2, "it has worked again")
		cancel()
		require.NoError(t, <-done)
	})
}
