package operator

import (
	"context"
	"sync/atomic"
	"time"
)

// restAfter is how long no pass must have ended before memory is given back, at least.
const restAfter = 15 * time.Second

// heap returns the memory allocated for passes to the system, once after they have come to
// rest. The runtime by itself keeps as much again as is in use.
type heap struct {
	// release frees memory. Required.
	release func()

	passes atomic.Int64
}

// passed notes the end of a pass.
func (h *heap) passed() { h.passes.Add(1) }

// Start works until ctx ends.
func (h *heap) Start(ctx context.Context) error {
	tick := time.NewTicker(restAfter)
	defer tick.Stop()
	var last, released int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := h.passes.Load()
		if now == last && now != released {
			h.release()
			released = now
		}
		last = now
	}
}
