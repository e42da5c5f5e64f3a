// Package parallel runs a bounded number of calls at once.
package parallel

import "sync"

// Each calls do for 0 to n-1, at most limit at a time, in order of their start, and
// returns when all calls have returned. It does not look at a ctx: do returns early
// when its own has ended. limit must be positive.
func Each(n, limit int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, limit) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}
