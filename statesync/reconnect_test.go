package statesync_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// refusing streams are refused, each after a while, and then paused for half a
// minute or longer.
func refusing(n int, after time.Duration) [][]step {
	streams := make([][]step, n)
	for i := range streams {
		streams[i] = []step{waits(after), ends(statesync.ErrUnauthenticated)}
	}
	return streams
}

// gaps returns how long after the end of each stream the next began.
func (f *follower) gaps() []time.Duration {
	told := f.told()
	var gaps []time.Duration
	for n := range told.ended {
		if n+1 < len(told.began) {
			gaps = append(gaps, told.began[n+1].Sub(told.ended[n].at))
		}
	}
	return gaps
}

func TestReconnectEndsAPause(t *testing.T) {
	script(t, refusing(2, 0), nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(10 * time.Second)
		require.Len(t, f.told().began, 1)
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(f.Reconnect)
		}
		calls.Wait()
		passes(25 * time.Second)
		require.Equal(t, []time.Duration{10 * time.Second}, f.gaps(), "many calls are one")
		passes(time.Minute)
		require.Len(t, f.told().began, 3)
		require.Equal(t, f.told().ended[1].Retry, f.gaps()[1])
	})
}

func TestReconnectWhileAStreamIsOpenedIsNotLost(t *testing.T) {
	script(t, refusing(3, 5*time.Second), nil, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(time.Second)
		f.Reconnect()
		f.Reconnect()
		passes(4 * time.Minute)
		require.Zero(t, f.gaps()[0])
		require.Equal(t, f.told().ended[1].Retry, f.gaps()[1], "it counts once")
		require.Equal(t, f.told().ended[2].Retry, f.gaps()[2])
	})
}

func TestReconnectDoesNothingBesideAStream(t *testing.T) {
	log := epoch("e")
	script(t, [][]step{
		{
			waits(time.Second),
			says(log.header(0, 1)),
			says(log.items(0, a1)),
			says(log.synced(1, a1)),
			waits(time.Minute),
			ends(statesync.ErrUnauthenticated),
		},
	}, func(f *follower) { f.Reconnect() }, func(t *testing.T, f *follower) { //nolint:thelper // a test
		f.Reconnect()
		passes(30 * time.Second)
		require.Empty(t, f.told().ended)
		f.arrives(t, "a@1")
		f.Reconnect()
		passes(2 * time.Minute)
		require.Equal(t, []time.Duration{f.told().ended[0].Retry}, f.gaps(), "a stream that opened has fulfilled the call")
	})
}

func TestReconnectBeforeStartDoesNothing(t *testing.T) {
	script(t, refusing(1, 0), func(f *follower) { f.Reconnect() }, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(2 * time.Minute)
		require.Equal(t, []time.Duration{f.told().ended[0].Retry}, f.gaps())
	})
}

// A program that calls it whenever a stream ends does not call in a loop.
func TestReconnectIsNoTightLoop(t *testing.T) {
	script(t, refusing(1000, 0), func(f *follower) {
		count := f.OnStream
		f.OnStream = func(s statesync.Stream) { count(s); f.Reconnect() }
	}, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(100*time.Second + time.Millisecond)
		require.Equal(t, 102, len(f.told().ended))
		require.Equal(t, []time.Duration{0, time.Second, time.Second}, f.gaps()[:3])
	})
}

func TestReconnectMakesNoPauseLonger(t *testing.T) {
	streams := make([][]step, 50)
	for n := range streams {
		streams[n] = []step{ends(statesync.ErrInvalid)}
	}
	script(t, streams, func(f *follower) {
		count := f.OnStream
		f.OnStream = func(s statesync.Stream) { count(s); f.Reconnect() }
	}, func(t *testing.T, f *follower) { //nolint:thelper // a test
		passes(time.Hour)
		for n, gap := range f.gaps() {
			require.LessOrEqual(t, gap, min(time.Second, f.told().ended[n].Retry))
		}
	})
}
