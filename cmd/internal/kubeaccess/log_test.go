package kubeaccess_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
)

// TestClientGoLogsThroughTheLogger logs as client-go does, with and without a context. What
// it says of a request that the program itself ended is not logged.
func TestClientGoLogsThroughTheLogger(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	_, err := kubeaccess.Config("/no/such/file", slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	require.Error(t, err)
	logger := klog.FromContext(t.Context())
	logger.Error(fmt.Errorf("read: %w", context.Canceled), "Unexpected error")
	logger.WithValues("reflector", "pods").WithName("watch").Error(context.Canceled, "Unexpected error")
	logger.Info("quiet")
	require.Empty(t, out.String())
	logger.WithValues("reflector", "pods").Error(errors.New("reset"), "Unexpected error")
	klog.ErrorS(errors.New("refused"), "Failed", "name", "a")
	var said []string
	for line := range bytes.Lines(out.Bytes()) {
		var entry struct{ Level, Msg, Err string }
		require.NoError(t, json.Unmarshal(line, &entry), "%s", line)
		said = append(said, entry.Level+" "+entry.Msg+": "+entry.Err)
	}
	require.Equal(t, []string{"ERROR Unexpected error: reset", "ERROR Failed: refused"}, said)
}

// TestARepeatedErrorIsLoggedEverMoreSeldom logs the same error each 100 ms, as client-go does
// without an API server, with another port each time.
func TestARepeatedErrorIsLoggedEverMoreSeldom(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		_, err := kubeaccess.Config("/no/such/file", slog.New(slog.NewJSONHandler(&out, nil)))
		require.Error(t, err)
		begin := time.Now()
		for n := range 100 {
			klog.FromContext(t.Context()).Error(fmt.Errorf("read tcp 127.0.0.1:%d: refused", 40000+n), "Unhandled Error")
			time.Sleep(100 * time.Millisecond)
		}
		klog.FromContext(t.Context()).Error(errors.New("reset"), "Unhandled Error")
		var at []time.Duration
		repeated := 0
		for line := range bytes.Lines(out.Bytes()) {
			var entry struct {
				Time     time.Time
				Repeated int
			}
			require.NoError(t, json.Unmarshal(line, &entry), "%s", line)
			at = append(at, entry.Time.Sub(begin))
			repeated += entry.Repeated
		}
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 10 * time.Second}, at, "the last is another error")
		require.Equal(t, 67, repeated, "before the line at 7s")
	})
}
