package origin

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

const (
	// LinesPerSecond limits the lines that all requests without a valid credential cause.
	// Lines below level info have a limit of their own, of the same size.
	LinesPerSecond = 1
	// LinesAtOnce is the burst of that limit.
	LinesAtOnce = 60
	// MaxText is how many bytes of a text such a line has at most.
	MaxText = 200
)

// Logger returns a handler that bounds the lines logged for requests without a valid
// credential, by the context of the line: in rate, and in the length of each text. The next
// line after some were dropped has their number as lines_dropped. Other lines pass unchanged.
func Logger(next slog.Handler) slog.Handler { return handler{Handler: next, lines: newLines()} }

// Strangers returns a logger each line of which is bounded as if it were caused by a request
// without a valid credential. It is for what logs connections and has no request: net/http.
func Strangers(logger *slog.Logger) *slog.Logger {
	return slog.New(handler{Handler: logger.Handler(), lines: newLines(), all: true})
}

// lines counts what strangers have logged.
type lines struct {
	limit, detail *rate.Limiter // from level info on, and below
	dropped       atomic.Int64
}

func newLines() *lines {
	return &lines{limit: rate.NewLimiter(LinesPerSecond, LinesAtOnce), detail: rate.NewLimiter(LinesPerSecond, LinesAtOnce)}
}

type handler struct {
	slog.Handler
	lines *lines
	all   bool
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.all && !stranger(ctx) {
		return h.Handler.Handle(ctx, r)
	}
	limit := h.lines.limit
	if r.Level < slog.LevelInfo {
		limit = h.lines.detail
	}
	if !limit.Allow() {
		h.lines.dropped.Add(1)
		return nil
	}
	line := slog.NewRecord(r.Time, r.Level, clip(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		line.AddAttrs(slog.Attr{Key: a.Key, Value: short(a.Value)})
		return true
	})
	if n := h.lines.dropped.Swap(0); n > 0 {
		line.AddAttrs(slog.Int64("lines_dropped", n))
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// short returns the value with each text of it bounded.
func short(value slog.Value) slog.Value {
	switch value = value.Resolve(); value.Kind() {
	case slog.KindString:
		return slog.StringValue(clip(value.String()))
	case slog.KindAny:
		if err, ok := value.Any().(error); ok {
			return slog.StringValue(clip(err.Error()))
		}
		return slog.StringValue(clip(fmt.Sprint(value.Any())))
	default:
		return value
	}
}

func clip(text string) string {
	if len(text) <= MaxText {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:MaxText], len(text))
}
