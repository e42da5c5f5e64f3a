package kubeaccess

import (
	"context"
	"errors"
	"log/slog"

	"k8s.io/klog/v2"
)

// logTo has client-go log through the logger in place of writing text to
// standard error. It is set once for the process, before clients are made.
func logTo(logger *slog.Logger) {
	klog.SetSlogLogger(slog.New(handler{logger.Handler()}))
}

// handler leaves out what client-go says of requests that the program itself
// ended: at each stop that would be an error for whom it is not one.
type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, record slog.Record) error {
	ended := false
	record.Attrs(func(a slog.Attr) bool {
		err, is := a.Value.Any().(error)
		ended = is && errors.Is(err, context.Canceled)
		return !ended
	})
	if ended {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name)}
}
