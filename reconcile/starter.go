package reconcile

import "context"

// Starter is something that runs until its context ends.
//
// Start blocks, returns nil when ctx ends, and before it returns waits for the
// goroutines that it started. It returns early with nil when its work is done, and with
// an error when it cannot continue. The end of ctx is not an error: a Starter must not
// return ctx.Err().
//
// Every manager.Runnable of controller-runtime is a Starter and the reverse.
type Starter interface {
	Start(ctx context.Context) error
}

// StarterFunc is a function used as a [Starter].
type StarterFunc func(ctx context.Context) error

// Start calls f.
func (f StarterFunc) Start(ctx context.Context) error { return f(ctx) }
