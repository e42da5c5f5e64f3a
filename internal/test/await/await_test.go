package await_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB

	failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

// fails runs what a test does and returns how it failed.
func fails(tb testing.TB, do func(testing.TB)) string {
	tb.Helper()
	r := &recorder{TB: tb}
	func() {
		defer func() {
			if recover() == nil {
				return
			}
		}()
		do(r)
	}()
	return r.failed
}

func TestAWaitEndsWhenItHolds(t *testing.T) {
	t.Parallel()
	asked := 0
	require.Empty(t, fails(t, func(tb testing.TB) {
		tb.Helper()
		await.Eventually(tb, "the third look", func() bool { asked++; return asked == 3 })
	}))
	require.Equal(t, 3, asked)
}

func TestAMissSaysWhatItWaitedForHowFarItWasAndTheLoad(t *testing.T) {
	t.Parallel()
	failed := fails(t, func(tb testing.TB) {
		tb.Helper()
		await.Until(tb, 10*time.Millisecond, "two pods", func() bool { return false }, func() string { return "one pod" })
	})
	require.Regexp(t, `^waited \d+ms for: two pods \(bound 10ms, times \d+\.\d for a load of .+\)\none pod$`, failed)
}

func TestWhatHoldsAtTheEndOfAWaitHolds(t *testing.T) {
	t.Parallel()
	asked := 0
	require.Empty(t, fails(t, func(tb testing.TB) {
		tb.Helper()
		await.Until(tb, 0, "the second look", func() bool { asked++; return asked == 2 })
	}))
}

func TestWhatTookTooLongFails(t *testing.T) {
	t.Parallel()
	factor, _ := await.Factor()
	require.GreaterOrEqual(t, factor, 2.0)
	require.Empty(t, fails(t, func(tb testing.TB) { tb.Helper(); await.Within(tb, time.Second, "a start", time.Second) }))
	require.Regexp(
		t,
		`^a start took 1h0m0s \(bound 1s, times `,
		fails(t, func(tb testing.TB) { tb.Helper(); await.Within(tb, time.Second, "a start", time.Hour) }),
	)
}
