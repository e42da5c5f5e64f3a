package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
)

var errDown = connect.NewError(connect.CodeUnavailable, errors.New("connection refused"))

// do makes a call that ends with err, and reports whether it was made.
func do(t *testing.T, b *breaker.Breaker, err error) bool {
	t.Helper()
	made := false
	got := b.Do(t.Context(), func(context.Context) error {
		made = true
		return err
	})
	if made {
		require.Equal(t, err, got)
	} else {
		require.ErrorIs(t, got, breaker.ErrOpen)
	}
	return made
}

func open(t *testing.T, b *breaker.Breaker) {
	t.Helper()
	for range 5 {
		require.True(t, do(t, b, errDown))
	}
	require.Equal(t, breaker.Open, b.State())
}

func TestFiveFailuresInTenSecondsOpenItForThirty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		for range 4 {
			do(t, &b, errDown)
			time.Sleep(2500 * time.Millisecond)
		}
		require.Equal(t, breaker.Closed, b.State())
		do(t, &b, errDown) // exactly 10 s after the first
		require.Equal(t, breaker.Open, b.State())
		for range 30 {
			require.False(t, do(t, &b, nil))
			time.Sleep(time.Second - time.Nanosecond)
		}
		require.False(t, do(t, &b, nil))
		time.Sleep(30 * time.Nanosecond)
		require.Equal(t, breaker.HalfOpen, b.State())
		require.True(t, do(t, &b, nil))
	})
}

func TestFailuresFurtherApartDoNotOpenIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		for range 100 {
			require.True(t, do(t, &b, errDown))
			time.Sleep(2501 * time.Millisecond)
		}
		require.Equal(t, breaker.Closed, b.State())
	})
}

func TestSuccessesBetweenFailuresDoNotHideThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		for range 4 {
			do(t, &b, errDown)
			do(t, &b, nil)
		}
		do(t, &b, errDown)
		require.Equal(t, breaker.Open, b.State())
	})
}

func TestOneProbeAtATimeAndTwoSuccessesCloseIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		open(t, &b)
		time.Sleep(30 * time.Second)
		answer := make(chan error)
		go func() {
			answer <- b.Do(t.Context(), func(context.Context) error { return <-answer })
		}()
		synctest.Wait()
		require.False(t, do(t, &b, nil), "a probe is under way")
		answer <- nil
		require.NoError(t, <-answer)
		require.Equal(t, breaker.HalfOpen, b.State())
		time.Sleep(time.Hour) // low traffic
		require.True(t, do(t, &b, nil))
		require.Equal(t, breaker.Closed, b.State())
		for range 4 {
			do(t, &b, errDown)
		}
		require.Equal(t, breaker.Closed, b.State(), "failures before the pause are forgotten")
	})
}

func TestAFailedProbeOpensItForTheFullTimeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		open(t, &b)
		time.Sleep(90 * time.Second)
		require.True(t, do(t, &b, nil))
		require.True(t, do(t, &b, errDown), "the second probe")
		time.Sleep(30*time.Second - time.Nanosecond)
		require.False(t, do(t, &b, nil))
		time.Sleep(time.Nanosecond)
		require.True(t, do(t, &b, nil))
		require.Equal(t, breaker.HalfOpen, b.State(), "the success before the failure does not count")
	})
}

// TestFailuresBeforeAPauseDoNotCountAfterIt, also if the pause is shorter than the window.
func TestFailuresBeforeAPauseDoNotCountAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Breaker{Pause: time.Second}
		open(t, &b)
		time.Sleep(time.Second)
		require.True(t, do(t, &b, nil))
		require.True(t, do(t, &b, nil))
		require.True(t, do(t, &b, errDown))
		require.Equal(t, breaker.Closed, b.State())
	})
}

func TestTheErrorsThatAreFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err                error
		fails, unreachable bool
	}{
		{nil, false, false},
		{io.ErrUnexpectedEOF, true, true},
		{connect.NewError(connect.CodeUnavailable, nil), true, true},
		{connect.NewError(connect.CodeDeadlineExceeded, nil), true, true},
		{connect.NewError(connect.CodeUnknown, nil), true, true},
		{connect.NewError(connect.CodeDataLoss, nil), true, true},
		{connect.NewError(connect.CodeInternal, nil), true, false},
		{connect.NewError(connect.CodeNotFound, nil), false, false},
		{connect.NewError(connect.CodeCanceled, nil), false, false},
	} {
		require.Equal(t, test.fails, breaker.TransportFailure(test.err), test.err)
		require.Equal(t, test.unreachable, breaker.Unreachable(test.err), test.err)
	}
}

func TestAnswersAboutTheRequestNeverCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		for _, code := range []connect.Code{
			connect.CodeNotFound, connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied,
			connect.CodeFailedPrecondition, connect.CodeCanceled, connect.CodeUnimplemented,
		} {
			for range 20 {
				require.True(t, do(t, &b, connect.NewError(code, nil)))
			}
		}
		require.Equal(t, breaker.Closed, b.State())
		open(t, &b)
		time.Sleep(time.Minute)
		notFound := connect.NewError(connect.CodeNotFound, nil)
		do(t, &b, notFound)
		do(t, &b, notFound)
		require.Equal(t, breaker.Closed, b.State(), "an answer is an answer")
	})
}

func TestACallThatItsCallerEndedShowsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			require.Error(t, b.Do(canceled, func(context.Context) error { return errDown }))
		}
		require.Equal(t, breaker.Closed, b.State())
		open(t, &b)
		time.Sleep(30 * time.Second)
		for range 3 { // releases the probe each time
			require.NotErrorIs(t, b.Do(canceled, func(context.Context) error { return errDown }), breaker.ErrOpen)
		}
		require.Equal(t, breaker.HalfOpen, b.State())

		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, b.Do(late, func(ctx context.Context) error {
			<-ctx.Done()
			return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		}))
		require.Equal(t, breaker.Open, b.State(), "a deadline that passes is a failure")
	})
}

func TestAProbeThatPanicsIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		open(t, &b)
		time.Sleep(30 * time.Second)
		require.Panics(t, func() { _ = b.Do(t.Context(), func(context.Context) error { panic("no") }) })
		require.True(t, do(t, &b, nil))
	})
}

func TestACallFromBeforeThePauseDecidesNothingAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker.Breaker
		answer := make(chan error)
		go func() {
			answer <- b.Do(t.Context(), func(context.Context) error { return <-answer })
		}()
		synctest.Wait()
		open(t, &b)
		time.Sleep(30 * time.Second)
		require.True(t, do(t, &b, nil))
		answer <- errDown
		require.Error(t, <-answer)
		require.Equal(t, breaker.HalfOpen, b.State())
		require.True(t, do(t, &b, nil))
		require.Equal(t, breaker.Closed, b.State())
	})
}

func TestEachRPCHasItsOwnAndChangesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		set := breaker.Set{OnChange: func(rpc string, to breaker.State) { changes = append(changes, fmt.Sprint(rpc, " ", to)) }}
		call := func(rpc string, err error) error {
			return set.Do(t.Context(), rpc, func(context.Context) error { return err })
		}
		for range 5 {
			require.Error(t, call("ReportDeploymentStatus", io.ErrUnexpectedEOF))
		}
		require.ErrorIs(t, call("ReportDeploymentStatus", nil), breaker.ErrOpen)
		require.NoError(t, call("Heartbeat", nil))
		time.Sleep(30 * time.Second)
		require.NoError(t, call("ReportDeploymentStatus", nil))
		require.NoError(t, call("ReportDeploymentStatus", nil))
		require.Equal(t, []string{
			"ReportDeploymentStatus open", "ReportDeploymentStatus half-open", "ReportDeploymentStatus closed",
		}, changes)
	})
}

func TestASetGivesItsLimitsToEachBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := breaker.Set{Pause: time.Hour, Failed: breaker.Unreachable}
		call := func(code connect.Code) error {
			return set.Do(t.Context(), "rpc", func(context.Context) error { return connect.NewError(code, nil) })
		}
		for range 20 {
			require.NotErrorIs(t, call(connect.CodeInternal), breaker.ErrOpen, "it is about one row")
		}
		for range 5 {
			require.NotErrorIs(t, call(connect.CodeUnavailable), breaker.ErrOpen)
		}
		time.Sleep(time.Hour - time.Nanosecond)
		require.ErrorIs(t, call(connect.CodeUnavailable), breaker.ErrOpen)
		time.Sleep(time.Nanosecond)
		require.NotErrorIs(t, call(connect.CodeUnavailable), breaker.ErrOpen)
	})
}

// TestItDoesWhatASimpleModelDoes compares it, call by call, with a model that
// keeps the whole history.
func TestItDoesWhatASimpleModelDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var b breaker.Breaker
			var m model
			time.Sleep(time.Duration(random.IntN(3)) * 24 * time.Hour) // a process of any age
			for step := range 200 {
				now := time.Now()
				err := []error{nil, errDown, errDown, connect.NewError(connect.CodeNotFound, nil)}[random.IntN(4)]
				want := m.call(now, errors.Is(err, errDown))
				require.Equal(t, want, do(t, &b, err), "seed %d, step %d", seed, step)
				time.Sleep([]time.Duration{time.Second, 2 * time.Second, 11 * time.Second, 30 * time.Second}[random.IntN(4)])
			}
		})
	}
}

type model struct {
	opened   time.Time
	probes   int // -1: closed
	failures []time.Time
	started  bool
}

func (m *model) call(now time.Time, fails bool) bool {
	if !m.started {
		m.started, m.probes = true, -1
	}
	if m.probes >= 0 {
		switch {
		case now.Sub(m.opened) < 30*time.Second:
			return false
		case fails:
			m.opened, m.probes = now, 0
		default:
			if m.probes++; m.probes == 2 {
				m.probes, m.failures = -1, nil
			}
		}
		return true
	}
	if fails {
		m.failures = append(m.failures, now)
		if n := len(m.failures); n >= 5 && now.Sub(m.failures[n-5]) <= 10*time.Second {
			m.opened, m.probes = now, 0
		}
	}
	return true
}
