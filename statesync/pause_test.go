package statesync_test

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestAPauseGrowsIsSpreadAndBeginsAnew(t *testing.T) {
	pause := statesync.NewPause()
	failed := func(lasted time.Duration, err error) time.Duration {
		return pause(statesync.Stream{Began: time.Now().Add(-lasted), Err: err})
	}
	bound := 500 * time.Millisecond
	var spread int
	for range 20 {
		delay := failed(0, io.ErrUnexpectedEOF)
		require.LessOrEqual(t, delay, min(bound, time.Minute))
		if delay > min(bound, time.Minute)/2 {
			spread++
		}
		bound *= 2
	}
	require.NotZero(t, spread, "no growth")
	require.NotEqual(t, 20, spread, "no jitter")
	require.LessOrEqual(t, failed(time.Minute, io.ErrUnexpectedEOF), 500*time.Millisecond, "after a healthy minute")
	require.Zero(t, failed(0, statesync.ErrRelist))
	for range 10 {
		require.GreaterOrEqual(t, failed(0, statesync.ErrUnauthenticated), 30*time.Second)
	}
}
