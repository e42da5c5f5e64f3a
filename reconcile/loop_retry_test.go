package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestAPanicIsTheErrorOfItsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := newDiary[error]()
		loop := &reconcile.Loop{
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) { panic("boom") }),
			OnPass:     func(pass reconcile.Pass) { errs.note(pass.Err) },
		}
		stop := start(t, loop)
		time.Sleep(31 * time.Second)
		stopped(t, stop)
		same(t, "passes", len(errs.read()), 2)
		says(t, errs.read()[0], "panic: boom")
		panicked, ok := errors.AsType[*reconcile.PanicError](errs.read()[0])
		if !ok || !strings.Contains(string(panicked.Stack), "loop_retry_test.go") {
			t.Errorf("the error has no stack of the panic")
		}
	})
}

func TestTimeoutEndsTheCtxOfOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{
			Timeout: 4 * time.Second,
			Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
				<-ctx.Done()
				return reconcile.Result{}, ctx.Err()
			}),
		}
		passes := newDiary[reconcile.Pass]()
		loop.OnPass = passes.note
		stop := start(t, loop)
		time.Sleep(35 * time.Second)
		stopped(t, stop)
		same(t, "passes", len(passes.read()), 2)
		for _, pass := range passes.read() {
			same(t, "duration", pass.Duration, 4*time.Second)
			same(t, "error", pass.Err.Error(), "the pass has reached its limit of 4s: context deadline exceeded")
		}
	})
}

func TestAFailedPassIsRetriedByBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := []error{errBoom, errBoom, nil, errBoom, errBoom, errBoom}
		loop := &reconcile.Loop{
			Backoff: reconcile.Backoff{Retries: 2},
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
				err := outcomes[0]
				outcomes = outcomes[1:]
				return reconcile.Result{RequeueAfter: time.Millisecond}, err
			}),
		}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(35 * time.Second)
		stopped(t, stop)
		ms := time.Millisecond
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started},
			{1000 * ms, reconcile.Retried},
			{3000 * ms, reconcile.Retried}, // succeeds, asks for 1ms
			{3001 * ms, reconcile.Requeued},
			{4001 * ms, reconcile.Retried},
			{6001 * ms, reconcile.Retried}, // the last one allowed
		})
	})
}

func TestRetriesStartAnewAfterATrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, errBoom), Backoff: reconcile.Backoff{Retries: 1}}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(5 * time.Second)
		loop.Trigger()
		time.Sleep(40 * time.Second)
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started},
			{1 * time.Second, reconcile.Retried},
			{5 * time.Second, reconcile.Triggered},
			{6 * time.Second, reconcile.Retried},
			{36 * time.Second, reconcile.Ticked},
		})
	})
}

func TestWithoutBackoffTheTickerAloneRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, errBoom)}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(31 * time.Second)
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{{0, reconcile.Started}, {30 * time.Second, reconcile.Ticked}})
	})
}

func TestATerminalErrorWaitsForTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{
			Reconciler: taking(0, reconcile.Terminal(errBoom)),
			Backoff:    reconcile.ThreeRetries(),
		}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(31 * time.Second)
		loop.Trigger()
		synctest.Wait()
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{
			{0, reconcile.Started}, {30 * time.Second, reconcile.Ticked}, {31 * time.Second, reconcile.Triggered},
		})
	})
}

func TestABackoffLongerThanTheIntervalDoesNotDelayIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &reconcile.Loop{Reconciler: taking(0, errBoom), Backoff: reconcile.Backoff{Min: time.Hour}}
		beats := watch(loop)
		stop := start(t, loop)
		time.Sleep(31 * time.Second)
		stopped(t, stop)
		same(t, "passes", beats.read(), []beat{{0, reconcile.Started}, {30 * time.Second, reconcile.Ticked}})
	})
}

func TestRequeueAfterOnlyMakesTheNextPassEarlier(t *testing.T) {
	for after, want := range map[time.Duration]beat{
		-time.Second:    {30 * time.Second, reconcile.Ticked},
		0:               {30 * time.Second, reconcile.Ticked},
		5 * time.Second: {7 * time.Second, reconcile.Requeued}, // counted from the end of the pass
		time.Hour:       {30 * time.Second, reconcile.Ticked},
	} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				loop := &reconcile.Loop{
					Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
						time.Sleep(2 * time.Second)
						return reconcile.Result{RequeueAfter: after}, nil
					}),
				}
				beats := watch(loop)
				stop := start(t, loop)
				time.Sleep(35 * time.Second)
				stopped(t, stop)
				same(t, "second pass", beats.read()[1], want)
			})
		})
	}
}
