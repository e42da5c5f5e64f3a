package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// attempt runs one pass, bounded by timeout unless that is zero.
func attempt(ctx context.Context, timeout time.Duration, reconcile Func) (result Result, err error) {
	if timeout > 0 {
		within, cancel := context.WithTimeoutCause(ctx, timeout, errPassLimit)
		defer cancel()
		defer func() {
			if err != nil && errors.Is(context.Cause(within), errPassLimit) {
				err = fmt.Errorf("%w of %v: %w", errPassLimit, timeout, err)
			}
		}()
		ctx = within
	}
	defer contain(&err)
	return reconcile(ctx)
}

// errPassLimit is part of the error of a pass that its Timeout has ended.
var errPassLimit = errors.New("the pass has reached its limit")

// logPass logs one pass. What fails because ctx ended is no failure.
func logPass(ctx context.Context, logger *slog.Logger, err error, attrs ...slog.Attr) {
	switch {
	case err == nil:
		logger.LogAttrs(ctx, slog.LevelDebug, "pass done", attrs...)
	case ctx.Err() != nil:
		logger.LogAttrs(ctx, slog.LevelDebug, "pass interrupted", append(attrs, errorAttrs(err)...)...)
	default:
		logger.LogAttrs(ctx, slog.LevelError, "pass failed", append(attrs, errorAttrs(err)...)...)
	}
}

func errorAttrs(err error) []slog.Attr {
	attrs := []slog.Attr{slog.Any("error", err)}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	return attrs
}
