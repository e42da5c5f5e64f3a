package reconcile

import (
	"context"
	"time"
)

// Reconciler does one pass: it compares the desired with the actual state, and changes
// what differs. A pass must be safe to repeat and to cut short at any point. It should
// return soon after ctx ends.
//
// A [Loop] never calls Reconcile concurrently with itself.
type Reconciler interface {
	Reconcile(ctx context.Context) (Result, error)
}

// Func is a function used as a [Reconciler].
type Func func(ctx context.Context) (Result, error)

// Reconcile calls f.
func (f Func) Reconcile(ctx context.Context) (Result, error) { return f(ctx) }

// Result is the request of a successful pass. The zero Result requests nothing. The
// Result of a failed pass is ignored: [Backoff] decides its retry.
type Result struct {
	// RequeueAfter asks for another pass this long after the end of this one.
	// It can only make the next pass earlier. Zero or less asks for none.
	RequeueAfter time.Duration
}
