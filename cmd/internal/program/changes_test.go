package program_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestAnErrorOfALoopIsLoggedOncePerOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		passes := 0
		loop := reconcile.Loop{
			Name: "pull", Interval: time.Second, Logger: program.Changes(slog.New(slog.NewTextHandler(&log, nil)).With(slog.String("agent", "a"))),
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
				passes++
				switch {
				case passes%100 < 50:
					return reconcile.Result{}, nil
				case passes%2 == 0:
					return reconcile.Result{}, errors.New("502")
				default:
					return reconcile.Result{}, fmt.Errorf("read 127.0.0.1:%d: connection reset", passes)
				}
			}),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 220*time.Second)
		defer cancel()
		require.NoError(t, loop.Start(ctx))
		var said []string
		for line := range strings.Lines(log.String()) {
			_, after, _ := strings.Cut(line, "level=")
			level, _, _ := strings.Cut(after, " ")
			_, what, _ := strings.Cut(line, "error=")
			_, failures, _ := strings.Cut(line, "failures=")
			said = append(said, strings.TrimSpace(level+" "+what+failures))
			require.Contains(t, line, "agent=a")
		}
		require.Equal(t, []string{
			"ERROR 502", `ERROR "read 127.0.0.1:51: connection reset"`, "INFO 50",
			"ERROR 502", `ERROR "read 127.0.0.1:151: connection reset"`, "INFO 50",
		}, said)
	})
}
