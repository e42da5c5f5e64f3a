package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// Wait returns once the machine is in one of the states, which it reads after a
// second, two seconds and so on up to every 15 seconds. The error of ctx names the
// last state. A machine that is terminated, while that is not waited for, is an
// [InvalidStateError] at once. A machine that the cloud does not know is terminated, if
// that is waited for, and [ErrNotFound] otherwise.
func Wait(ctx context.Context, inventory Inventory, id string, states ...InstanceState) error {
	delay := time.Second
	for {
		state, err := inventory.GetInstanceState(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound) && slices.Contains(states, InstanceTerminated):
			return nil
		case err != nil:
			return err
		case slices.Contains(states, state):
			return nil
		case state == InstanceTerminated:
			return &InvalidStateError{ID: id, State: state, Operation: "Wait"}
		}
		if !pause.For(ctx, delay) {
			return fmt.Errorf("wait for %s, which is %s: %w", id, state, context.Cause(ctx))
		}
		delay = min(2*delay, 15*time.Second)
	}
}
