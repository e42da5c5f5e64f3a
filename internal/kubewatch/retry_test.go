package kubewatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// TestANudgeEndsAPauseSoon: discovery follows a definition soon, and not at once.
func TestANudgeEndsAPauseSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r kubewatch.Retry
		nudge := make(chan struct{}, 1)
		wait := func() (time.Duration, bool) {
			began := time.Now()
			nudged := r.WaitAtMost(t.Context(), nudge, kubewatch.Unserved)
			return time.Since(began), nudged
		}
		require.False(t, r.Tried())
		nudge <- struct{}{}
		waited, nudged := wait()
		require.True(t, nudged)
		require.True(t, r.Tried())
		require.Equal(t, 50*time.Millisecond, waited)
		waited, nudged = wait()
		require.False(t, nudged)
		require.InDelta(t, 2, waited.Seconds(), 0.5, "the second delay")
	})
}
