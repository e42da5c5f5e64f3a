package statesync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPauseGrowsIsSpreadAndBeginsAnew(t *testing.T) {
	var p pause
	failed := func(lasted time.Duration, err error) time.Duration {
		return p.after(Stream{Began: time.Now().Add(-lasted), Err: err})
	}
	bound := 500 * time.Millisecond
	var spread int
	for range 20 {
		delay := failed(0, errSilent)
		require.LessOrEqual(t, delay, min(bound, time.Minute))
		if delay > min(bound, time.Minute)/2 {
			spread++
		}
		bound *= 2
	}
	require.NotZero(t, spread, "no growth")
	require.NotEqual(t, 20, spread, "no jitter")
	require.LessOrEqual(t, failed(time.Minute, errSilent), 500*time.Millisecond, "after a healthy minute")
	require.Zero(t, failed(0, errRelist))
	for range 10 {
		require.GreaterOrEqual(t, failed(0, ErrUnauthenticated), 30*time.Second)
	}
}
