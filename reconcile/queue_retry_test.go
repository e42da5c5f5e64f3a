package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestRetriesKeepTheRankOfTheirEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		queue, runs := queueOf(func(ctx context.Context, key string) (reconcile.Result, error) {
			if (key == "fresh" || key == "sweep") && failures < 2 {
				failures++
				return reconcile.Result{}, errBoom
			}
			return slow(ctx, key)
		})
		queue.Backoff = reconcile.Backoff{Min: 100 * time.Millisecond}
		queue.Add("fresh")
		queue.Resync("sweep", "a", "b")
		stop := start(t, queue)
		time.Sleep(time.Minute)
		stopped(t, stop)
		same(t, "passes", keys(runs), "fresh sweep a fresh b sweep")
	})
}

func TestAFailingKeyIsRetriedOnItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(func(_ context.Context, key string) (reconcile.Result, error) {
			if key == "bad" {
				return reconcile.Result{}, errBoom
			}
			return reconcile.Result{}, nil
		})
		var good []time.Duration
		stop := start(t, queue)
		queue.Add("bad")
		time.Sleep(50 * time.Millisecond)
		for range 100 { // with one worker, others never wait for the bad one
			queue.Add("good")
			begun := runs.elapsed()
			synctest.Wait()
			if all := runs.read(); all[len(all)-1] != (run{"good", begun}) {
				t.Fatalf("good waited at %v", begun)
			}
			time.Sleep(100 * time.Millisecond)
		}
		stopped(t, stop)
		var bad []time.Duration
		for _, r := range runs.read() {
			if r.key == "bad" {
				bad = append(bad, r.at)
			} else {
				good = append(good, r.at)
			}
		}
		same(t, "passes of bad", bad, seconds(0, 1, 3, 7))
		same(t, "number of passes of good", len(good), 100)
	})
}

func TestKeysCountTheirRetriesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(failing(errBoom))
		stop := start(t, queue)
		queue.Add("a")
		time.Sleep(2500 * time.Millisecond)
		queue.Add("b")
		time.Sleep(3100 * time.Millisecond)
		stopped(t, stop)
		second := time.Second
		same(t, "passes", runs.read(), []run{
			{"a", 0}, {"a", second}, {"b", 5 * second / 2}, {"a", 3 * second}, {"b", 7 * second / 2}, {"b", 11 * second / 2},
		})
	})
}

func TestAKeyIsParkedWhenRetriesCannotHelp(t *testing.T) {
	terminal := reconcile.Terminal(errBoom)
	for _, row := range []struct {
		name    string
		err     error
		backoff reconcile.Backoff
		want    []time.Duration
	}{
		{"terminal", fmt.Errorf("pod: %w", terminal), reconcile.Backoff{}, seconds(0)},
		{"retries used up", errBoom, reconcile.Backoff{Retries: 2}, seconds(0, 1, 3)},
		{"no retries", errBoom, reconcile.Backoff{Retries: -1}, seconds(0)},
	} {
		t.Run(row.name, func(t *testing.T) {
			for name, revive := range map[string]func(q *reconcile.Queue[string]){
				"Add":      func(q *reconcile.Queue[string]) { q.Add("a") },
				"Resync":   func(q *reconcile.Queue[string]) { q.Resync("a") },
				"AddAfter": func(q *reconcile.Queue[string]) { q.AddAfter("a", time.Nanosecond) },
			} {
				synctest.Test(t, func(t *testing.T) {
					queue, runs := queueOf(failing(row.err))
					queue.Backoff = row.backoff
					stop := start(t, queue)
					queue.Add("a")
					time.Sleep(time.Hour)
					same(t, "passes", times(runs), row.want)
					same(t, "parked", queue.Parked(), map[string]error{"a": row.err})
					same(t, "waiting", queue.Len(), 0)
					revive(queue) // resets its retries
					time.Sleep(time.Hour)
					same(t, "passes after "+name, len(runs.read()), 2*len(row.want))
					same(t, "parked after "+name, len(queue.Parked()), 1)
					stopped(t, stop)
				})
			}
		})
	}
}

func TestAParkedKeyThatSucceedsIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{reconcile.Terminal(errBoom), nil, errBoom, errBoom, nil}
		queue, runs := queueOf(func(context.Context, string) (reconcile.Result, error) {
			err := errs[0]
			errs = errs[1:]
			return reconcile.Result{}, err
		})
		stop := start(t, queue)
		queue.Add("a")
		time.Sleep(10 * time.Second)
		queue.Add("a")
		time.Sleep(10 * time.Second)
		same(t, "parked", queue.Parked(), map[string]error{})
		queue.Add("a")
		time.Sleep(time.Minute)
		stopped(t, stop)
		same(t, "passes", times(runs), seconds(0, 10, 20, 21, 23))
	})
}

func TestAnAddDuringAPassThatEndsTerminalIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, add := range map[string]func(*reconcile.Queue[string]){
			"Add":    func(q *reconcile.Queue[string]) { q.Add("a") },
			"Resync": func(q *reconcile.Queue[string]) { q.Resync("a") },
		} {
			first := true
			queue, runs := queueOf(func(context.Context, string) (reconcile.Result, error) {
				time.Sleep(time.Second)
				if !first {
					return reconcile.Result{}, nil
				}
				first = false
				return reconcile.Result{}, reconcile.Terminal(errBoom)
			})
			queue.Add("a")
			stop := start(t, queue)
			time.Sleep(500 * time.Millisecond)
			add(queue)
			time.Sleep(time.Minute)
			same(t, name+": parked", len(queue.Parked()), 0)
			stopped(t, stop)
			same(t, name, times(runs), seconds(0, 1))
		}
	})
}

func TestAnAddCutsTheWaitForARetryShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(failing(errBoom))
		stop := start(t, queue)
		queue.Add("a")
		time.Sleep(5 * time.Second)
		queue.Resync("a") // leaves it to the retry at 7s
		time.Sleep(5 * time.Second)
		queue.Add("a")
		time.Sleep(4 * time.Second)
		stopped(t, stop)
		same(t, "passes", times(runs), seconds(0, 1, 3, 7, 10, 11, 13))
	})
}

func TestRequeueAfterMakesOneMorePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := []time.Duration{10 * time.Second, 5 * time.Second, 0, 20 * time.Second, 0}
		queue, runs := queueOf(func(context.Context, string) (reconcile.Result, error) {
			after := results[0]
			results = results[1:]
			return reconcile.Result{RequeueAfter: after}, nil
		})
		stop := start(t, queue)
		queue.Add("a") // wants 10s
		time.Sleep(2 * time.Second)
		queue.Resync("a") // wants 5s, counted from now; the 10s are void
		time.Sleep(18 * time.Second)
		queue.Add("a")
		time.Sleep(time.Minute)
		stopped(t, stop)
		same(t, "passes", times(runs), seconds(0, 2, 7, 20, 40))
	})
}

func TestAPanicCostsOneKeyOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(func(_ context.Context, key string) (reconcile.Result, error) {
			if key == "bad" {
				panic("boom")
			}
			return reconcile.Result{}, nil
		})
		queue.Backoff = reconcile.Backoff{Retries: 1}
		queue.Add("bad", "good")
		stop := start(t, queue)
		time.Sleep(time.Minute)
		same(t, "passes", keys(runs), "bad good bad")
		says(t, queue.Parked()["bad"], "panic: boom")
		_, ok := errors.AsType[*reconcile.PanicError](queue.Parked()["bad"])
		same(t, "is a PanicError", ok, true)
		stopped(t, stop)
	})
}

func TestKeysWithOneSeedAreRetriedAtTimesOfTheirOwn(t *testing.T) {
	retries := func() (out string) {
		synctest.Test(t, func(t *testing.T) {
			queue, runs := queueOf(func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, errBoom })
			queue.Workers = 2
			queue.Backoff = reconcile.Backoff{Min: time.Second, Factor: 1, Jitter: 0.5, Retries: 1, Seed: "one"}
			queue.Add("a", "b")
			stop := start(t, queue)
			time.Sleep(time.Minute)
			stopped(t, stop)
			at := map[string]time.Duration{}
			for _, r := range runs.read() {
				at[r.key] = r.at
			}
			if at["a"] == at["b"] || at["a"] < time.Second/2 || at["b"] < time.Second/2 {
				t.Errorf("retried at %v", at)
			}
			out = fmt.Sprint(at)
		})
		return out
	}
	same(t, "again", retries(), retries())
}
