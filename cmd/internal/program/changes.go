package program

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Changes returns a logger for one reconcile.Loop that depends on another server. An error is logged
// when it is a new one; until a pass succeeds, its repetitions are at level debug. The first pass that
// succeeds after a failure is logged with the number of failures.
func Changes(logger *slog.Logger) *slog.Logger {
	return slog.New(changes{logger.Handler(), &outage{}})
}

// changes is the handler of a logger that [Changes] returns.
type changes struct {
	slog.Handler
	outage *outage
}

// outage is what has failed since the last success.
type outage struct {
	mu       sync.Mutex
	seen     map[string]bool
	failures int
}

// maxSeen bounds the errors that are logged of one outage.
const maxSeen = 8

// Enabled implements [slog.Handler]: a success is a line at level debug, and has to be seen.
func (changes) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (c changes) Handle(ctx context.Context, record slog.Record) error {
	switch {
	case record.Level >= slog.LevelError:
		if !c.outage.begins(errorOf(record)) {
			record.Level = slog.LevelDebug
		}
	case record.Message == "pass done":
		if failures := c.outage.end(); failures > 0 {
			record.Level = slog.LevelInfo
			record.Message = "pass done again"
			record.AddAttrs(slog.Int("failures", failures))
		}
	}
	if !c.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return c.Handler.Handle(ctx, record)
}

// WithAttrs implements [slog.Handler].
func (c changes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return changes{c.Handler.WithAttrs(attrs), c.outage}
}

// WithGroup implements [slog.Handler].
func (c changes) WithGroup(name string) slog.Handler {
	return changes{c.Handler.WithGroup(name), c.outage}
}

// begins counts a failure, and reports whether its error is a new one.
func (o *outage) begins(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures++
	if o.seen[text] || len(o.seen) == maxSeen {
		return false
	}
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	o.seen[text] = true
	return true
}

// end returns how many failures there were.
func (o *outage) end() (failures int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	failures = o.failures
	o.seen, o.failures = nil, 0
	return failures
}

// errorOf returns the error of a record without its digits: ports and counts differ from try to try.
func errorOf(record slog.Record) (text string) {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			text = strings.Map(func(r rune) rune {
				if r >= '0' && r <= '9' {
					return -1
				}
				return r
			}, a.Value.String())
		}
		return text == ""
	})
	return text
}
