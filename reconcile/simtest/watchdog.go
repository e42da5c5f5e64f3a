package simtest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// spins is how long a program may work in one moment of virtual time, in real time.
//
//nolint:gochecknoglobals // only a test changes it
var spins = 2 * time.Minute

// watch panics if the world makes no step within limit of real time: the program works
// without a pause, so that virtual time stands still. It is called outside of the bubble.
func watch(name string, beats *atomic.Int64, limit time.Duration) (stop func()) {
	ended := make(chan struct{})
	go func() {
		ticker := time.NewTicker(limit)
		defer ticker.Stop()
		for last := int64(-1); ; {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			now := beats.Load()
			if now == last {
				panic(fmt.Sprintf( //nolint:forbidigo // the test cannot end: a goroutine of its bubble never waits
					"simtest: %s: the program works without a pause, and virtual time stands still for %v:\n%s", name, limit, working(),
				))
			}
			last = now
		}
	}()
	return func() { close(ended) }
}

// working returns the stacks of the goroutines that could go on, and of those that wait for a
// mutex: one that is held during a request stops virtual time.
func working() string {
	return bubbled("[runnable", "[running", "[sync.Mutex.Lock", "[sync.RWMutex.")
}

// bubbled returns the stacks of the goroutines of bubbles in one of these states, of all for
// none.
func bubbled(states ...string) string {
	stacks := make([]byte, 1<<22)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var all []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		state, _, _ := strings.Cut(stack, "\n")
		is := len(states) == 0 || slices.ContainsFunc(states, func(of string) bool { return strings.Contains(state, of) })
		if is && strings.Contains(state, "synctest bubble") {
			all = append(all, stack)
		}
	}
	return strings.Join(all, "\n\n")
}
