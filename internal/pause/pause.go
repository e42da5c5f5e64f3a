// Package pause waits without outliving a context.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It reports whether ctx goes on: false means that the
// caller has to return.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
