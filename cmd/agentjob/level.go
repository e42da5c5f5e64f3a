package main

import (
	"log/slog"
	"strings"
)

// logLevel reads what RUST_LOG may hold: a level, or a list of levels and target=level,
// of which the most talkative counts, because this program is one target. unknown is the
// first part that is none of these.
func logLevel(text string) (level slog.Level, unknown string) {
	const trace, off = slog.LevelDebug - 4, slog.LevelError + 4
	levels := map[string]slog.Level{
		"trace": trace, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn,
		"error": slog.LevelError, "off": off,
	}
	found := false
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		target, name, named := strings.Cut(part, "=")
		if !named {
			name = target
		}
		value, ok := levels[strings.ToLower(strings.TrimSpace(name))]
		if !ok {
			if unknown == "" {
				unknown = part
			}
			continue
		}
		if !found || value < level {
			level, found = value, true
		}
	}
	if !found || unknown != "" {
		return slog.LevelInfo, unknown
	}
	return level, ""
}
