package external

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// errBusy is a service that has as many passes as it may.
var errBusy = fmt.Errorf("%w for its turn", ErrWaits)

// Gate bounds the passes that use a service at a time, so that one which hangs leaves workers for
// objects that do not use it. A pass that would be one too many does not wait: it gets [ErrWaits].
// The nil Gate has no bound. It is safe for concurrent use.
type Gate chan struct{}

// NewGate returns a Gate for so many passes at a time, at least one. It should be fewer than
// the workers of the operator.
func NewGate(passes int) Gate { return make(Gate, max(passes, 1)) }

// try calls do, and again as reconcile.ThreeRetries has it when it fails and may succeed by itself.
// The first time, failed becomes the error, and early is called, unless it is nil.
func (g Gate) try(ctx context.Context, do func(context.Context) error, failed *error, early func(context.Context)) error {
	if g != nil {
		select {
		case g <- struct{}{}:
			defer func() { <-g }()
		default:
			return errBusy
		}
	}
	first := true
	return reconcile.ThreeRetries().Retry(ctx, func(ctx context.Context) error {
		err := contained(ctx, do)
		switch {
		case err == nil:
			return nil
		case lasting(err):
			return reconcile.Terminal(err)
		case first && early != nil && ctx.Err() == nil:
			first, *failed = false, err
			early(ctx)
		}
		return err
	})
}

// contained calls do. A panic is its error.
func contained(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &reconcile.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return do(ctx)
}
