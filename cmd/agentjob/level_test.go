package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLogLevel(t *testing.T) {
	t.Parallel()
	const trace, off = slog.LevelDebug - 4, slog.LevelError + 4
	for text, want := range map[string]struct {
		level   slog.Level
		unknown string
	}{
		"":                            {slog.LevelInfo, ""},
		" , ,":                        {slog.LevelInfo, ""},
		"trace":                       {trace, ""},
		"debug":                       {slog.LevelDebug, ""},
		"INFO":                        {slog.LevelInfo, ""},
		" warn ":                      {slog.LevelWarn, ""},
		"Warning":                     {slog.LevelWarn, ""},
		"error":                       {slog.LevelError, ""},
		"off":                         {off, ""},
		"thurkube=debug":              {slog.LevelDebug, ""},
		"thurkube = Debug ":           {slog.LevelDebug, ""},
		"warn,thurkube=debug":         {slog.LevelDebug, ""},
		"debug,hyper=off,tower=error": {slog.LevelDebug, ""},
		"off,kube=error":              {slog.LevelError, ""},
		"a::b=warn":                   {slog.LevelWarn, ""},
		"loud":                        {slog.LevelInfo, "loud"},
		"thurkube=loud":               {slog.LevelInfo, "thurkube=loud"},
		"thurkube=":                   {slog.LevelInfo, "thurkube="},
		"debug,loud,louder":           {slog.LevelInfo, "loud"},
		"error,x=loud":                {slog.LevelInfo, "x=loud"},
		"a=b=debug":                   {slog.LevelInfo, "a=b=debug"},
		"debug;info":                  {slog.LevelInfo, "debug;info"},
	} {
		level, unknown := logLevel(text)
		require.Equal(t, want.level, level, text)
		require.Equal(t, want.unknown, unknown, text)
	}
}

// TestAnUnknownLevelIsWarnedOfOnce looks at what the program logs before it works.
func TestAnUnknownLevelIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "error": 0, "off": 0, "thurkube=debug": 0, "loud": 1, "loud,louder,x=loudest": 1} {
		var log bytes.Buffer
		o := options{
			levelFromVariable: true, logLevel: text,
			access: "all", keep: 1, health: "127.0.0.1:0", namespace: "x", ceiling: "c", kubeconfig: kubeconfig(t),
		}
		w, err := o.operator(&log)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(log.String(), "\n"), log.String())
		if want > 0 {
			var line struct{ Level, Value string }
			require.NoError(t, json.Unmarshal(log.Bytes(), &line), log.String())
			require.Equal(t, "WARN", line.Level)
			require.Equal(t, "loud", line.Value)
			require.True(t, w.Logger.Enabled(t.Context(), slog.LevelInfo))
			require.False(t, w.Logger.Enabled(t.Context(), slog.LevelDebug))
		}
	}
}
