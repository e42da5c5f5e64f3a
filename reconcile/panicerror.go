package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// PanicError is the error of a pass, step or Starter that panicked.
type PanicError struct {
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine at the panic, as debug.Stack prints it.
	Stack []byte
}

// Error gives the value of the panic, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// contain is deferred around code of the caller and turns its panic into *err.
func contain(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}

// observe calls a callback of the caller. Its panic is logged and stops nothing.
func observe(ctx context.Context, logger *slog.Logger, callback func()) {
	var err error
	defer func() {
		if err != nil {
			logger.LogAttrs(ctx, slog.LevelError, "callback failed", errorAttrs(err)...)
		}
	}()
	defer contain(&err)
	callback()
}
