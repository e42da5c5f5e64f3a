package kubeaccess_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

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
