package statesync_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// failed returns the pause after a stream that has lasted so long and brought frames.
func failed(pause func(statesync.Stream) time.Duration, lasted time.Duration, frames uint64, err error) time.Duration {
	return pause(statesync.Stream{Began: time.Now().Add(-lasted), Frames: frames, Err: err})
}

// TestAReaderIsBackBeforeTheServerWasAwayTwice has a thousand readers that lost their server together: each is back no
// later after the server than the server was away, and they come one by one.
func TestAReaderIsBackBeforeTheServerWasAwayTwice(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{0, time.Second, 10 * time.Second, 45 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			latest, longest, tries := max(away, 500*time.Millisecond), time.Duration(0), 0
			back := make(map[time.Duration]int) // by tenth of that
			for range 1000 {
				pause, began := statesync.NewPause(), time.Now()
				for time.Since(began) <= away {
					next := failed(pause, 0, 0, io.ErrUnexpectedEOF)
					longest = max(longest, next)
					tries++
					time.Sleep(next)
				}
				after := time.Since(began) - away
				require.LessOrEqual(t, after, min(latest, time.Minute), "away for %s", away)
				back[after/(min(latest, time.Minute)/10)]++
			}
			for tenth, n := range back {
				require.Less(t, n, 500, "away for %s, tenth %d", away, tenth)
			}
			// Up to twice as many as if each had tried in the middle of its bound.
			require.Less(t, tries, 1000*(4+int(away/(15*time.Second))+12), "away for %s", away)
			require.Greater(t, longest, min(latest, time.Minute)/2, "away for %s: no growth", away)
		})
	}
}

func TestTheTimeOfAStreamCountsAsAwayOnlyWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	longest := func(frames uint64, before time.Duration) (longest time.Duration) {
		for range 200 {
			pause := statesync.NewPause()
			if before > 0 {
				failed(pause, before, frames, io.ErrUnexpectedEOF)
			}
			longest = max(longest, failed(pause, 0, 0, io.ErrUnexpectedEOF))
		}
		return longest
	}
	require.Greater(t, longest(0, 30*time.Second), 20*time.Second, "an attempt without an answer")
	require.LessOrEqual(t, longest(1, 30*time.Second), time.Second, "a stream that brought something")
	pause := statesync.NewPause()
	failed(pause, time.Hour, 0, io.ErrUnexpectedEOF)
	failed(pause, time.Minute, 1, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, failed(pause, 0, 0, io.ErrUnexpectedEOF), time.Second, "after a healthy minute")
}

// TestAReaderThatMustListAgainDoesSoSoon unless it must again and again: two servers that disagree behind one address
// send each list to the other.
func TestAReaderThatMustListAgainDoesSoSoon(t *testing.T) {
	t.Parallel()
	resync := fmt.Errorf("restored: %w", statesync.ErrResync)
	longest := make([]time.Duration, 12)
	for range 200 {
		pause := statesync.NewPause()
		failed(pause, time.Hour, 0, io.ErrUnexpectedEOF) // the server was away
		for n := range longest {
			longest[n] = max(longest[n], failed(pause, 0, 0, resync))
		}
		failed(pause, time.Minute, 1, io.ErrUnexpectedEOF)
		require.LessOrEqual(t, failed(pause, 0, 0, resync), 500*time.Millisecond, "after a healthy minute")
	}
	bound := 500 * time.Millisecond
	for n, pause := range longest {
		require.LessOrEqual(t, pause, bound, n)
		require.Greater(t, pause, bound/2, n)
		bound = min(2*bound, time.Minute)
	}
}

func TestOtherPausesHaveReasonsOfTheirOwn(t *testing.T) {
	t.Parallel()
	pause := statesync.NewPause()
	failed(pause, time.Hour, 0, io.ErrUnexpectedEOF)
	require.Zero(t, failed(pause, 0, 0, statesync.ErrRelist))
	for range 10 {
		require.GreaterOrEqual(t, failed(pause, 0, 0, statesync.ErrUnauthenticated), 30*time.Second)
		require.LessOrEqual(t, failed(pause, 0, 0, &statesync.EndError{Reason: statesync.EndOfLog}), 4*time.Second)
	}
}
