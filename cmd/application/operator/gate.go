package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// errBusy is a service that has as many passes as it may: this one comes back.
var errBusy = errors.New("waits for its turn")

// gate bounds the passes that use a service at a time, so that one which hangs leaves
// workers for applications that do not use it.
type gate chan struct{}

func newGate(most int) gate { return make(gate, most) }

// pass calls do, and again as B3 has it when it fails and may succeed by itself: after 1 s,
// 2 s and 4 s, each 50 % more or less. early is called once, with the first error.
func (g gate) pass(ctx context.Context, do func(context.Context) error, early func(error)) error {
	select {
	case g <- struct{}{}:
		defer func() { <-g }()
	default:
		return errBusy
	}
	first := true
	return reconcile.ThreeRetries().Retry(ctx, func(ctx context.Context) error {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if external.Lasting(err) {
			return reconcile.Terminal(err)
		}
		if first && ctx.Err() == nil {
			first = false
			early(err)
		}
		return err
	})
}

// unset is the error of a service that the operator has no address of.
func unset(what, variables string) error {
	return fmt.Errorf("%s: %w: the operator is started without %s; set it, or turn %s off", what, external.ErrUnset, variables, what)
}
