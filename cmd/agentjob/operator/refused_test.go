package operator //nolint:testpackage // the memory is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestARunIsWithoutAPodSinceItWasFirstSeenSo: the times of the Job are another clock's.
func TestARunIsWithoutAPodSinceItWasFirstSeenSo(t *testing.T) {
	t.Parallel()
	var w withoutPod
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Zero(t, w.seen("a", true, now))
	require.Equal(t, 3*time.Second, w.seen("a", true, now.Add(3*time.Second)))
	require.Zero(t, w.seen("b", true, now.Add(3*time.Second)), "each run has its own time")
	require.Zero(t, w.seen("a", false, now.Add(4*time.Second)))
	require.Zero(t, w.seen("a", true, now.Add(5*time.Second)), "it begins again")
	require.Zero(t, w.seen("b", false, now))
	require.Zero(t, w.seen("a", false, now))
	require.Empty(t, w.since)
}
