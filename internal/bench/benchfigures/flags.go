package benchfigures

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// AtLeast returns an error for a flag whose value is less than the least with which a figure means something.
func AtLeast[T cmp.Ordered](flag string, value, least T) error {
	if value < least {
		return fmt.Errorf("-%s: is %v, must be %v or more", flag, value, least)
	}
	return nil
}

// Interrupted is a context that ends when a person or the system ends the program, so that it stops what it has started.
func Interrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // where a program begins
}
