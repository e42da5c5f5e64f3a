package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestBackoffGrowsByFactorUpToMax(t *testing.T) {
	for _, row := range []struct {
		name    string
		backoff reconcile.Backoff
		want    []time.Duration
	}{
		{"the zero value", reconcile.Backoff{}, seconds(1, 2, 4, 8, 16, 32, 60, 60)},
		{"a constant", reconcile.Backoff{Min: 3 * time.Second, Factor: 1}, seconds(3, 3, 3)},
		{"a cap between two steps", reconcile.Backoff{Max: 3 * time.Second}, seconds(1, 2, 3, 3)},
		{"Min above the default Max", reconcile.Backoff{Min: 90 * time.Second}, seconds(90, 90)},
		{"Max below the default Min", reconcile.Backoff{Max: time.Second / 2}, seconds(.5, .5)},
	} {
		t.Run(row.name, func(t *testing.T) {
			for i, want := range row.want {
				same(t, fmt.Sprintf("retry %d", i+1), row.backoff.Delay(i+1), want)
			}
			same(t, "retry 0", row.backoff.Delay(0), row.want[0])
			same(t, "the last retry", row.backoff.Delay(math.MaxInt), row.want[len(row.want)-1])
		})
	}
}

func TestThreeRetriesWaitsOneTwoAndFourSecondsGiveOrTakeHalf(t *testing.T) {
	for retry, middle := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second} {
		lowest, highest := time.Hour, time.Duration(0)
		for range 1000 {
			delay, ok := reconcile.ThreeRetries().Next(retry)
			if !ok {
				t.Fatalf("retry %d is not allowed", retry)
			}
			lowest, highest = min(lowest, delay), max(highest, delay)
		}
		if lowest < middle/2 || lowest > middle*6/10 || highest > middle*3/2 || highest < middle*14/10 {
			t.Errorf("retry %d waits %v to %v, want about %v to %v", retry, lowest, highest, middle/2, middle*3/2)
		}
	}
	if delay, ok := reconcile.ThreeRetries().Next(4); ok || delay != 0 {
		t.Errorf("a fourth retry is allowed after %v", delay)
	}
	same(t, "cap", reconcile.ThreeRetries().Delay(99), 30*time.Second)
}

func TestBackoffJitterNeverPassesMax(t *testing.T) {
	backoff := reconcile.Backoff{Min: time.Second, Max: time.Second, Jitter: 1}
	atMax := 0
	for range 1000 {
		delay, _ := backoff.Next(1)
		if delay < 0 || delay > time.Second {
			t.Fatalf("waits %v, want at most 1s", delay)
		}
		if delay == time.Second {
			atMax++
		}
	}
	if atMax > 10 {
		t.Errorf("%d of 1000 delays are at Max: they are not spread", atMax)
	}
}

func TestBackoffWithASeedHasTheSameJitterEachTime(t *testing.T) {
	first := reconcile.Backoff{Min: time.Minute, Factor: 1, Jitter: 0.5, Seed: "one"}
	other := first
	other.Seed = "two"
	delays := map[time.Duration]bool{}
	for retry := 1; retry <= 100; retry++ {
		once, _ := first.Next(retry)
		again, _ := first.Next(retry)
		same(t, "again", again, once)
		second, _ := other.Next(retry)
		delays[once], delays[second] = true, true
	}
	if len(delays) < 150 {
		t.Errorf("200 retries have %d delays: they are not spread", len(delays))
	}
}

func TestBackoffLimitsRetriesOnlyWhenAskedTo(t *testing.T) {
	for _, row := range []struct {
		retries, retry int
		want           bool
	}{
		{0, 1, true}, {0, 1e9, true}, {-1, 1, false}, {1, 1, true}, {1, 2, false}, {10, 10, true}, {10, 11, false},
	} {
		_, ok := reconcile.Backoff{Retries: row.retries}.Next(row.retry)
		same(t, fmt.Sprintf("retry %d of %d", row.retry, row.retries), ok, row.want)
	}
}

func TestRetryWaitsBetweenCallsUntilOneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newDiary[time.Duration]()
		err := reconcile.Backoff{}.Retry(t.Context(), func(context.Context) error {
			calls.note(calls.elapsed())
			if len(calls.read()) < 4 {
				return errBoom
			}
			return nil
		})
		same(t, "error", err, nil)
		same(t, "calls", calls.read(), seconds(0, 1, 3, 7))
	})
}

func TestRetryGivesUp(t *testing.T) {
	for _, row := range []struct {
		name  string
		err   error
		limit time.Duration
		want  []time.Duration
	}{
		{"after the last retry", errBoom, time.Hour, seconds(0, 1, 3)},
		{"at once on a terminal error", reconcile.Terminal(errBoom), time.Hour, seconds(0)},
		{"when ctx ends in a wait", errBoom, 2 * time.Second, seconds(0, 1)},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), row.limit)
				defer cancel()
				calls := newDiary[time.Duration]()
				err := reconcile.Backoff{Retries: 2}.Retry(ctx, func(context.Context) error {
					calls.note(calls.elapsed())
					return row.err
				})
				same(t, "is the last error", errors.Is(err, errBoom), true)
				same(t, "calls", calls.read(), row.want)
				if calls.elapsed() > row.limit {
					t.Errorf("returned only after %v", calls.elapsed())
				}
			})
		})
	}
}

func FuzzBackoffStaysInItsBounds(f *testing.F) {
	f.Add(int64(0), 0.0, int64(0), 0.0, 1)
	f.Add(int64(time.Second), 2.0, int64(math.MaxInt64), 1.0, math.MaxInt)
	f.Add(int64(math.MaxInt64), math.MaxFloat64, int64(math.MaxInt64), 0.5, 3)
	f.Add(int64(-1), math.Inf(-1), int64(-1), math.NaN(), math.MinInt)
	f.Fuzz(func(t *testing.T, shortest int64, factor float64, longest int64, jitter float64, retry int) {
		backoff := reconcile.Backoff{
			Min: time.Duration(shortest), Factor: factor, Max: time.Duration(longest), Jitter: jitter,
		}
		limit := backoff.Max
		if limit <= 0 {
			limit = max(time.Minute, backoff.Min)
		}
		delay := backoff.Delay(retry)
		if delay < 0 || delay > limit {
			t.Errorf("%+v.Delay(%d) = %v, want 0 to %v", backoff, retry, delay, limit)
		}
		if retry < math.MaxInt && backoff.Delay(retry+1) < delay {
			t.Errorf("%+v shrinks after retry %d", backoff, retry)
		}
		if got, ok := backoff.Next(retry); !ok || got < 0 || got > limit {
			t.Errorf("%+v.Next(%d) = %v, %v, want 0 to %v", backoff, retry, got, ok, limit)
		}
	})
}
