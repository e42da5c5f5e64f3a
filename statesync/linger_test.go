package statesync_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestAScopeIsReadAsLongAsAStreamIsOpen(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		first, leave := context.WithCancel(ctx)
		_, end := open(first, server, eu)
		synctest.Wait()
		leave()
		<-end
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		frames, _ := open(ctx, server, eu)
		time.Sleep(2 * time.Minute)
		after(frames)
		require.NoError(t, log.Commit(put("a", 1)))
		require.Equal(t, []string{"changes 1"}, told(after(frames)))
		require.Equal(t, int64(2), counts.reads.Load())
	})
}

// Each page is a short stream.
func TestAScopeThatIsPolledIsReadOnce(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, counts *counted) { //nolint:thelper // a test
		for range 20 {
			_, done := request(ctx, server, "")
			<-done
			time.Sleep(25 * time.Second)
		}
		require.Equal(t, int64(1), counts.reads.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, counts.waits.Load())
	})
}

// A scope that is made after a reader asked for it is there at once, and is not
// forgotten with what was found before.
func TestAScopeThatWasUnknownIsReadOnceItIsThere(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		asia := statesync.Watch{Scope: "asia"}
		_, end := open(ctx, server, asia)
		require.ErrorIs(t, <-end, statesync.ErrUnknownScope)
		require.NoError(t, log.AddScope("asia"))
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		frames, _ := open(ctx, server, asia)
		require.Equal(t, []string{"header 0", "synced 0"}, told(after(frames)))
		time.Sleep(90 * time.Second)
		_, _ = open(ctx, server, asia)
		synctest.Wait()
		require.Equal(t, int64(1), counts.waits.Load(), "it is read twice")
	})
}

// TestAScopeIsFoundByTheStreamAfterTheOneThatEnded: each stream that ends for a scope that does
// not exist is followed at once by one for the same scope, which exists by then.
func TestAScopeIsFoundByTheStreamAfterTheOneThatEnded(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for n := range 4000 {
			w := statesync.Watch{Scope: fmt.Sprint("scope-", n)}
			_, end := open(ctx, server, w)
			require.ErrorIs(t, <-end, statesync.ErrUnknownScope)
			require.NoError(t, log.AddScope(w.Scope))
			frames, _ := open(ctx, server, w)
			require.Equal(t, []string{"header 0", "synced 0"}, told(after(frames)), n)
		}
	})
}

// failing is a log that cannot be read that many times.
type failing struct {
	statesync.Log
	times int
	at    []time.Time
}

func (f *failing) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	f.at = append(f.at, time.Now())
	if f.times--; f.times >= 0 {
		return statesync.Page{}, errors.New("no connection")
	}
	return f.Log.Read(ctx, scope, after, limit)
}

func TestALogThatFailsIsReadLessAndLessOften(t *testing.T) {
	server := &statesync.Server{Linger: 2 * time.Hour}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		broken := &failing{Log: log, times: 20}
		counts.Log = broken
		// One stream asks for the scope, and ends before it could wait.
		short, cancel := context.WithTimeout(ctx, time.Nanosecond)
		defer cancel()
		require.ErrorIs(t, server.Watch(short, eu, func(statesync.Frame) error { return nil }), context.DeadlineExceeded)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, broken.at, 21)
		for n := range 20 {
			pause := broken.at[n+1].Sub(broken.at[n])
			most := min(30*time.Second, time.Duration(float64(500*time.Millisecond<<n)*1.5))
			require.True(t, n < 2 || most/3 <= pause, "pause %d is %v, not from %v", n, pause, most/3)
			require.LessOrEqual(t, pause, most, n)
		}
		// After a long time in which it could be read, it counts again from zero.
		broken.times = 1
		require.NoError(t, log.Commit(put("a", 1)))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, broken.at[22].Sub(broken.at[21]), 750*time.Millisecond)
	})
}

// stubborn is a log that does not heed its context at once.
type stubborn struct{ statesync.Log }

func (s stubborn) Wait(ctx context.Context, scope string, at statesync.Position) error {
	err := s.Log.Wait(ctx, scope, at)
	time.Sleep(5 * time.Second)
	return err
}

func TestAServerEndsAfterWhatItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &statesync.Memory{}
		require.NoError(t, log.AddScope("eu"))
		server := &statesync.Server{Log: stubborn{log}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Start(ctx) }()
		_, end := open(t.Context(), server, eu)
		synctest.Wait()
		began := time.Now()
		cancel()
		<-end
		require.Zero(t, time.Since(began), "a stream waits for the log")
		require.NoError(t, <-done)
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestStreamsThatBeganTogetherDoNotEndTogether(t *testing.T) {
	server := &statesync.Server{MaxAge: 10 * time.Minute}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, _ *counted) { //nolint:thelper // a test
		began := time.Now()
		ages := make(chan time.Duration, 50)
		for range cap(ages) {
			go func() {
				_ = server.Watch(ctx, eu, func(statesync.Frame) error { return nil })
				ages <- time.Since(began)
			}()
		}
		shortest, longest := time.Hour, time.Duration(0)
		for range cap(ages) {
			age := <-ages
			shortest, longest = min(shortest, age), max(longest, age)
		}
		require.GreaterOrEqual(t, shortest, 8*time.Minute)
		require.LessOrEqual(t, longest, 12*time.Minute)
		require.Greater(t, longest-shortest, time.Minute)
	})
}
