package reconcile_test

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// beat is one pass of a loop under test: when it began, and why.
type beat struct {
	at     time.Duration
	reason reconcile.Reason
}

// watch makes loop note its passes.
func watch(loop *reconcile.Loop) *diary[beat] {
	beats := newDiary[beat]()
	loop.OnPass = func(pass reconcile.Pass) {
		beats.note(beat{pass.Start.Sub(beats.begun), pass.Reason})
	}
	return beats
}

// taking is a reconciler whose passes take a while and return err.
func taking(while time.Duration, err error) reconcile.Func {
	return func(context.Context) (reconcile.Result, error) {
		time.Sleep(while)
		return reconcile.Result{}, err
	}
}

func TestLoopPassesAtOnceAndThenEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(time.Second, nil)}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(65 * time.Second)
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started}, {30 * time.Second, reconcile.Ticked}, {60 * time.Second, reconcile.Ticked},
		})
	})
}

func TestLoopJitterSpreadsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, nil), Interval: 10 * time.Second, Jitter: 0.2}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(2 * time.Hour)
		stopped(t, stop)
		lowest, highest := time.Hour, time.Duration(0)
		passes := beats.read()
		for i := 1; i < len(passes); i++ {
			gap := passes[i].at - passes[i-1].at
			lowest, highest = min(lowest, gap), max(highest, gap)
		}
		if lowest < 8*time.Second || lowest > 8500*time.Millisecond ||
			highest > 12*time.Second || highest < 11500*time.Millisecond {
			t.Errorf("intervals are %v to %v, want about 8s to 12s", lowest, highest)
		}
	})
}

func TestPassesOfALoopNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, overlaps atomic.Int32
		loop := &reconcile.Loop{
			Interval: 10 * time.Second,
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
				if inside.Add(1) > 1 {
					overlaps.Add(1)
				}
				defer inside.Add(-1)
				time.Sleep(25 * time.Second)
				return reconcile.Result{}, nil
			}),
		}
		beats := watch(loop)
		stop := start(t, loop)
		for range 20 {
			time.Sleep(3 * time.Second)
			loop.Trigger()
		}
		stopped(t, stop)
		same(t, "overlaps", overlaps.Load(), int32(0))
		same(t, "passes", len(beats.read()), 3)
	})
}

func TestASlowPassDelaysTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Interval: 10 * time.Second}
		first := true
		loop.Reconciler = reconcile.Func(func(context.Context) (reconcile.Result, error) {
			if first {
				time.Sleep(25 * time.Second)
			}
			first = false
			return reconcile.Result{}, nil
		})
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(40 * time.Second)
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started}, {25 * time.Second, reconcile.Ticked}, {35 * time.Second, reconcile.Ticked},
		})
	})
}

func TestTriggerMakesOnePassAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, nil)}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(5 * time.Second)
		loop.Trigger()
		time.Sleep(31 * time.Second)
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started}, {5 * time.Second, reconcile.Triggered}, {35 * time.Second, reconcile.Ticked},
		})
	})
}

func TestTriggersBeforeStartAreAnsweredByTheFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, nil)}
		beats := watch(loop)
		loop.Trigger()
		loop.Trigger()
		stop := start(t, loop)
		time.Sleep(time.Second)
		stopped(t, stop)
		loop.Trigger() // after the end it does not block either
		loop.Trigger()
		same(t, "passes", beats.read(), []beat{{0, reconcile.Started}})
	})
}

func TestTriggersDuringAPassCauseOneMoreAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(10*time.Second, nil), Interval: 10 * time.Second}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(3 * time.Second)
		for range 5 {
			loop.Trigger()
		}
		time.Sleep(26 * time.Second)
		stopped(t, stop)
		// The second pass is due by the interval, too: the two reasons are one pass.
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started}, {10 * time.Second, reconcile.Triggered}, {20 * time.Second, reconcile.Ticked},
		})
	})
}

func TestNoTriggerIsEverLost(t *testing.T) {
	var wanted, seen atomic.Int64
	loop := &reconcile.Loop{
		Interval: time.Hour,
		Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
			seen.Store(wanted.Load())
			return reconcile.Result{}, nil
		}),
	}
	stop := start(t, loop)
	for range 10_000 {
		want := wanted.Add(1)
		loop.Trigger()
		for deadline := time.Now().Add(10 * time.Second); want%7 == 0 && seen.Load() < want; {
			if time.Now().After(deadline) {
				t.Fatalf("no pass saw change %d", want)
			}
		}
	}
	for deadline := time.Now().Add(10 * time.Second); seen.Load() < wanted.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no pass saw the last change")
		}
	}
	stopped(t, stop)
}

func TestLoopStopsAtOnceWhenItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, errBoom), Backoff: reconcile.Backoff{Min: 10 * time.Second}}
		stop := start(t, loop)
		time.Sleep(time.Second)
		begun := time.Now()
		stopped(t, stop)
		same(t, "time to stop", time.Since(begun), 0*time.Second)
	})
}

func TestLoopWaitsForThePassInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(10*time.Second, errBoom)}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(time.Second)
		loop.Trigger()
		begun := time.Now()
		stopped(t, stop)
		same(t, "time to stop", time.Since(begun), 9*time.Second)
		same(t, "passes", beats.read(), []beat{{0, reconcile.Started}})
	})
}

func TestNoPassBeginsAfterTheEndOfCtx(t *testing.T) {
	for range 100 { // a select with several ways to go takes any of them
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			loop := &reconcile.Loop{Interval: time.Nanosecond}
			passes := 0
			loop.Reconciler = reconcile.Func(func(context.Context) (reconcile.Result, error) {
				passes++
				time.Sleep(time.Second)
				loop.Trigger()
				cancel()
				return reconcile.Result{}, nil
			})
			same(t, "Start", loop.Start(ctx), nil)
			same(t, "Start with a ctx that has ended", loop.Start(ctx), nil)
			same(t, "passes", passes, 1)
		})
	}
}

func TestALoopRunsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Name: "agent", Reconciler: taking(0, nil)}
		stop := start(t, loop)
		synctest.Wait()
		says(t, loop.Start(t.Context()), "reconcile: agent is running already")
		says(t, loop.Start(t.Context()), "reconcile: agent is running already")
		stopped(t, stop)
		stopped(t, start(t, loop))
	})
}

func TestLoopNamesTheFieldThatIsWrong(t *testing.T) {
	ok := taking(0, nil)
	for want, loop := range map[string]*reconcile.Loop{
		"reconcile: Loop.Reconciler: is required":                             {},
		"reconcile: Loop.Interval: is -1s, must be 0 (30s default) or more":   {Reconciler: ok, Interval: -time.Second},
		"reconcile: Loop.Jitter: is 1.5, must be 0 (none) to 1":               {Reconciler: ok, Jitter: 1.5},
		"reconcile: Loop.Jitter: is NaN, must be 0 (none) to 1":               {Reconciler: ok, Jitter: math.NaN()},
		"reconcile: Loop.Timeout: is -1s, must be 0 (no bound) or more":       {Reconciler: ok, Timeout: -time.Second},
		"reconcile: Loop.Backoff.Min: is -1s, must be 0 (1s default) or more": {Reconciler: ok, Backoff: reconcile.Backoff{Min: -time.Second}},
		"reconcile: Loop.Backoff.Max: is -1s, must be 0 (1m default) or more": {Reconciler: ok, Backoff: reconcile.Backoff{Max: -time.Second}},
		"reconcile: Loop.Backoff.Min: is 2s, more than Max, 1s":               {Reconciler: ok, Backoff: reconcile.Backoff{Min: 2 * time.Second, Max: time.Second}},
		"reconcile: Loop.Backoff.Factor: is 0.5, must be 0 (2 default) or":    {Reconciler: ok, Backoff: reconcile.Backoff{Factor: 0.5}},
		"reconcile: Loop.Backoff.Jitter: is -1, must be 0 (none) to 1":        {Reconciler: ok, Backoff: reconcile.Backoff{Jitter: -1}},
	} {
		says(t, loop.Start(t.Context()), want)
	}
}

func TestOnPassGetsTheWholeAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := newDiary[reconcile.Pass]()
		result := reconcile.Result{RequeueAfter: time.Second}
		loop := &reconcile.Loop{
			Name: "agent",
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
				time.Sleep(2 * time.Second)
				return result, errBoom
			}),
			OnPass: func(pass reconcile.Pass) {
				passes.note(pass)
				panic("the observer fails")
			},
		}
		stop := start(t, loop)
		time.Sleep(35 * time.Second) // goes on in spite of OnPass
		stopped(t, stop)
		same(t, "passes", len(passes.read()), 2)
		same(t, "second pass", passes.read()[1], reconcile.Pass{
			Name: "agent", Number: 2, Reason: reconcile.Ticked, Start: passes.begun.Add(30 * time.Second),
			Duration: 2 * time.Second, Result: result, Err: errBoom,
		})
	})
}

func TestLoopLogsToItsLoggerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var global, own bytes.Buffer
		before, writer, flags := slog.Default(), log.Writer(), log.Flags()
		slog.SetDefault(slog.New(slog.NewTextHandler(&global, nil)))
		defer func() {
			slog.SetDefault(before)
			log.SetOutput(writer)
			log.SetFlags(flags)
		}()
		loop := &reconcile.Loop{
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) { panic("boom") }),
			OnPass:     func(reconcile.Pass) { panic("watcher") },
		}
		run := func() {
			stop := start(t, loop)
			synctest.Wait()
			stopped(t, stop)
		}
		run()
		loop.Logger = slog.New(slog.NewTextHandler(&own, nil))
		run()
		same(t, "global log", global.String(), "")
		for _, want := range []string{
			`level=ERROR msg="pass failed" loop=loop number=1 reason=start duration=0s error="panic: boom" stack=`,
			`level=ERROR msg="callback failed" error="panic: watcher" stack=`,
		} {
			if strings.Count(own.String(), want) != 1 {
				t.Errorf("log has not one line %s:\n%s", want, own.String())
			}
		}
	})
}
