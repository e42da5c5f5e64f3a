package program

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger returns a logger that writes one JSON object a line to w, from
// the level up: "debug", "info", "warn" or "error", in any case.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: parsed})), nil
}
