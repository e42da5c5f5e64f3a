package regions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

func TestARefusalIsLoggedOnceADayAndAnyOnceAMinute(t *testing.T) {
	t.Parallel()
	var r regions.Refusals
	now := time.Now()
	after := now.Add
	require.True(t, r.New("eu", "a", now))
	require.False(t, r.New("eu", "a", after(time.Hour)))
	require.True(t, r.New("us", "a", now), "each region for itself")
	require.False(t, r.New("eu", "b", after(59*time.Second)), "an agent that chooses another cell each time")
	require.True(t, r.New("eu", "b", after(time.Minute)))
	require.False(t, r.New("eu", "b", after(24*time.Hour)))
	require.True(t, r.New("eu", "b", after(25*time.Hour)))
}
