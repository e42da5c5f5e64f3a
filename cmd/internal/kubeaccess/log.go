package kubeaccess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// logTo has client-go log through the logger in place of writing text to
// standard error. It is set once for the process, before clients are made.
func logTo(logger *slog.Logger) {
	klog.SetSlogLogger(slog.New(handler{Handler: logger.Handler(), repeats: &repeats{}}))
}

// handler leaves out what client-go says of requests that the program itself
// ended: at each stop that would be an error for whom it is not one. Of a line that is
// repeated it passes on ever fewer: see [repeats].
type handler struct {
	slog.Handler
	with    string // what WithAttrs and WithGroup have added
	repeats *repeats
}

func (h handler) Handle(ctx context.Context, record slog.Record) error {
	ended := false
	text := record.Message + h.with
	record.Attrs(func(a slog.Attr) bool {
		err, is := a.Value.Any().(error)
		ended = is && errors.Is(err, context.Canceled)
		text += " " + a.String()
		return !ended
	})
	if ended {
		return nil
	}
	hidden, ok := h.repeats.next(text)
	if !ok {
		return nil
	}
	if hidden > 0 {
		record = record.Clone()
		record.AddAttrs(slog.Int("repeated", hidden))
	}
	return h.Handler.Handle(ctx, record)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.with + fmt.Sprint(attrs), h.repeats}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.with + " " + name, h.repeats}
}

const (
	minPause = time.Second
	maxPause = time.Minute
	maxTexts = 256
)

// repeats passes each text on at once, and again after a pause that doubles from
// minPause to maxPause. A text that did not come for two of maxPause begins from the start. The zero
// repeats is ready.
type repeats struct {
	mu    sync.Mutex
	texts map[string]*repeat
}

type repeat struct {
	pause  time.Duration
	until  time.Time // when the pause ends
	latest time.Time
	hidden int
}

// next reports whether the text is passed on now, and how many times it was not since the
// last one that was. Digits make no difference: a port or a time is another in each error.
func (r *repeats) next(text string) (hidden int, ok bool) {
	key := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.texts[key]
	switch {
	case seen == nil || now.Sub(seen.latest) >= 2*maxPause:
		if r.texts == nil || len(r.texts) >= maxTexts {
			r.texts = map[string]*repeat{}
		}
		r.texts[key] = &repeat{pause: minPause, until: now.Add(minPause), latest: now}
		return 0, true
	case now.Before(seen.until):
		seen.latest = now
		seen.hidden++
		return 0, false
	}
	hidden = seen.hidden
	seen.pause = min(2*seen.pause, maxPause)
	seen.until, seen.latest, seen.hidden = now.Add(seen.pause), now, 0
	return hidden, true
}
