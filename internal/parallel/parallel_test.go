package parallel_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/parallel"
)

func TestEachCallsAtMostTheLimitAtOnceAndWaitsForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		calls := make([]int, 10)
		begun := time.Now()
		parallel.Each(len(calls), 4, func(i int) {
			mu.Lock()
			calls[i]++
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
		})
		require.Equal(t, 4, most)
		require.Zero(t, running)
		require.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, calls)
		require.Equal(t, 3*time.Second, time.Since(begun), "ten calls of a second, four at once")
	})
}

func TestEachOfNothingReturns(t *testing.T) {
	t.Parallel()
	parallel.Each(0, 4, func(int) { t.Error("called") })
}
