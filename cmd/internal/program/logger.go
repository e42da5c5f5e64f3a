package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLogger returns a logger that writes one JSON object a line to w, from
// the level up: "debug", "info", "warn" or "error", in any case.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	from, ok := levels[strings.ToLower(level)]
	if !ok {
		return nil, fmt.Errorf("--log-level: is %q, must be debug, info, warn or error", level)
	}
	return slog.New(NewHandler(w, from)), nil
}

// NewHandler returns the handler of the logger of a program: JSON with durations as text
// such as "1.5s".
func NewHandler(w io.Writer, from slog.Level) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: from, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}})
}

// Starter is what a program runs.
type Starter interface {
	Start(ctx context.Context) error
}

// Start runs the starter, after a line with the version, and logs its end.
func Start(ctx context.Context, logger *slog.Logger, starter Starter, attrs ...slog.Attr) error {
	Starting(ctx, logger, attrs...)
	return Started(ctx, logger, starter)
}

// Starting logs the line with the version. It is for a program that has to wait before it can run: [Started] follows.
func Starting(ctx context.Context, logger *slog.Logger, attrs ...slog.Attr) {
	logger.LogAttrs(ctx, slog.LevelInfo, "starting", append([]slog.Attr{slog.String("version", Version())}, attrs...)...)
}

// Started runs the starter, and logs its end.
func Started(ctx context.Context, logger *slog.Logger, starter Starter) error {
	defer logger.InfoContext(ctx, "stopped")
	return starter.Start(ctx)
}
