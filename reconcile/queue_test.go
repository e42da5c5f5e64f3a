package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// run is one pass of a queue under test: for which key, and when it began.
type run struct {
	key string
	at  time.Duration
}

// queueOf returns a queue that notes its passes, which do what do says.
func queueOf(do func(ctx context.Context, key string) (reconcile.Result, error)) (*reconcile.Queue[string], *diary[run]) {
	runs := newDiary[run]()
	queue := &reconcile.Queue[string]{
		Reconcile: func(ctx context.Context, key string) (reconcile.Result, error) {
			runs.note(run{key, runs.elapsed()})
			return do(ctx, key)
		},
	}
	return queue, runs
}

func nothing(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, nil }

// slow takes a second for each pass.
func slow(context.Context, string) (reconcile.Result, error) {
	time.Sleep(time.Second)
	return reconcile.Result{}, nil
}

func failing(err error) func(context.Context, string) (reconcile.Result, error) {
	return func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, err }
}

func keys(runs *diary[run]) string {
	var list []string
	for _, r := range runs.read() {
		list = append(list, r.key)
	}
	return strings.Join(list, " ")
}

func times(runs *diary[run]) []time.Duration {
	var list []time.Duration
	for _, r := range runs.read() {
		list = append(list, r.at)
	}
	return list
}

func TestEveryKeyIsReconciledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(slow)
		queue.Add("a", "b") // works before Start, too
		stop := start(t, queue)
		synctest.Wait()
		queue.Add("c", "b", "c")
		same(t, "waiting", queue.Len(), 2)
		time.Sleep(time.Minute)
		same(t, "waiting in the end", queue.Len(), 0)
		stopped(t, stop)
		same(t, "passes", keys(runs), "a b c")
	})
}

func TestFreshEventsGoBeforeResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(slow)
		stop := start(t, queue)
		queue.Resync("r1", "r2", "r3", "r4")
		synctest.Wait() // r1 is being reconciled
		queue.Add("f1", "r3", "f2")
		queue.Resync("f1") // does not set it back
		time.Sleep(time.Minute)
		stopped(t, stop)
		same(t, "passes", keys(runs), "r1 f1 r3 f2 r2 r4")
	})
}

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

func TestOneKeyHasOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		inside, most, together := map[string]int{}, 0, 0
		queue, _ := queueOf(func(ctx context.Context, key string) (reconcile.Result, error) {
			mu.Lock()
			inside[key]++
			most = max(most, inside[key])
			together = max(together, inside["a"]+inside["b"]+inside["c"])
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				inside[key]--
			}()
			return slow(ctx, key)
		})
		queue.Workers = 8
		stop := start(t, queue)
		for range 50 {
			queue.Add("a", "b")
			queue.Resync("c")
			time.Sleep(300 * time.Millisecond)
		}
		stopped(t, stop)
		same(t, "passes of one key at a time", most, 1)
		same(t, "passes of different keys at a time", together, 3)
	})
}

func TestAnAddDuringAPassCausesOneMoreAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, add := range map[string]func(*reconcile.Queue[string]){
			"Add":      func(q *reconcile.Queue[string]) { q.Add("a") },
			"Resync":   func(q *reconcile.Queue[string]) { q.Resync("a") },
			"AddAfter": func(q *reconcile.Queue[string]) { q.AddAfter("a", 100*time.Millisecond) },
		} {
			queue, runs := queueOf(slow)
			queue.Workers = 4
			queue.Add("a")
			stop := start(t, queue)
			time.Sleep(500 * time.Millisecond)
			add(queue)
			add(queue)
			time.Sleep(time.Minute)
			stopped(t, stop)
			same(t, name, times(runs), seconds(0, 1))
		}
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
					revive(queue) // counts its retries anew
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

func TestAddAfterWaitsAndTheEarliestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(nothing)
		queue.AddAfter("a", 10*time.Second)
		stop := start(t, queue)
		synctest.Wait()
		queue.AddAfter("b", 5*time.Second)
		queue.AddAfter("b", 3*time.Second)
		queue.AddAfter("b", 7*time.Second)
		queue.AddAfter("c", 0)
		queue.AddAfter("d", -time.Second)
		queue.Add("a") // a pass in between does not make it void
		time.Sleep(time.Minute)
		stopped(t, stop)
		same(t, "passes", runs.read(), []run{
			{"c", 0}, {"d", 0}, {"a", 0}, {"b", 3 * time.Second}, {"a", 10 * time.Second},
		})
	})
}

func TestForgetDropsEverythingAboutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, runs := queueOf(func(ctx context.Context, key string) (reconcile.Result, error) {
			if key == "terminal" {
				return reconcile.Result{}, reconcile.Terminal(errBoom)
			}
			time.Sleep(time.Second)
			return reconcile.Result{}, errBoom
		})
		stop := start(t, queue)
		queue.Add("terminal")
		synctest.Wait()
		queue.Forget("terminal")
		same(t, "parked", len(queue.Parked()), 0)

		queue.Add("active", "waiting")
		synctest.Wait()
		queue.Add("active")
		queue.AddAfter("active", 10*time.Second)
		queue.AddAfter("timed", 10*time.Second)
		for _, key := range []string{"active", "waiting", "timed", "unknown"} {
			queue.Forget(key)
		}
		time.Sleep(time.Minute)
		same(t, "passes", keys(runs), "terminal active")

		queue.Add("active")
		synctest.Wait()
		queue.Forget("active")
		queue.Add("active") // after Forget, so it counts
		time.Sleep(1500 * time.Millisecond)
		stopped(t, stop)
		same(t, "passes in the end", keys(runs), "terminal active active active")
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

func TestQueueTimeoutEndsTheCtxOfOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, _ := queueOf(func(ctx context.Context, _ string) (reconcile.Result, error) {
			<-ctx.Done()
			return reconcile.Result{}, ctx.Err()
		})
		queue.Timeout = 4 * time.Second
		passes := newDiary[reconcile.KeyPass[string]]()
		queue.OnPass = passes.note
		queue.Add("a", "b")
		stop := start(t, queue)
		time.Sleep(9 * time.Second)
		stopped(t, stop)
		for i, pass := range passes.read()[:2] {
			same(t, "key", pass.Key, []string{"a", "b"}[i])
			same(t, "duration", pass.Duration, 4*time.Second)
			same(t, "error", pass.Err, context.DeadlineExceeded)
		}
	})
}

func TestQueueStopsAtOnceWhenItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, _ := queueOf(failing(errBoom))
		queue.Workers = 3
		queue.Add("a")
		queue.AddAfter("b", time.Hour)
		stop := start(t, queue)
		time.Sleep(1500 * time.Millisecond) // a waits for its retry
		begun := time.Now()
		stopped(t, stop)
		same(t, "time to stop", time.Since(begun), 0*time.Second)
	})
}

func TestWhatIsNotDoneWaitsForTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := true
		queue, runs := queueOf(func(ctx context.Context, key string) (reconcile.Result, error) {
			if block {
				<-ctx.Done()
				time.Sleep(time.Second)
				return reconcile.Result{}, reconcile.Terminal(ctx.Err())
			}
			return reconcile.Result{}, nil
		})
		queue.Add("interrupted", "waiting")
		queue.AddAfter("timed", 10*time.Second)
		stop := start(t, queue)
		time.Sleep(time.Second)
		begun := time.Now()
		stopped(t, stop)
		same(t, "waited for the pass in hand", time.Since(begun), time.Second)
		same(t, "passes", keys(runs), "interrupted")
		same(t, "parked", len(queue.Parked()), 0)
		queue.Add("late") // does not block
		block = false
		stop = start(t, queue)
		time.Sleep(time.Minute)
		stopped(t, stop)
		same(t, "passes", keys(runs), "interrupted waiting interrupted late timed")
	})
}

func TestAQueueRunsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, _ := queueOf(nothing)
		stop := start(t, queue)
		synctest.Wait()
		says(t, queue.Start(t.Context()), "reconcile: queue is running already")
		stopped(t, stop)
		stopped(t, start(t, queue))
	})
}

func TestQueueNamesTheFieldThatIsWrong(t *testing.T) {
	for want, queue := range map[string]*reconcile.Queue[string]{
		"reconcile: Queue.Reconcile: required":                                 {},
		"reconcile: Queue.Workers: -1 is negative; want 0 (1 default) or more": {Reconcile: nothing, Workers: -1},
		"reconcile: Queue.Timeout: -1s is negative; want 0 (no bound) or more": {Reconcile: nothing, Timeout: -time.Second},
		"reconcile: Queue.Backoff.Jitter: 2 is not a fraction":                 {Reconcile: nothing, Backoff: reconcile.Backoff{Jitter: 2}},
	} {
		says(t, queue.Start(t.Context()), want)
	}
}

func TestOnPassGetsTheWholeAccountOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := newDiary[reconcile.KeyPass[string]]()
		result := reconcile.Result{RequeueAfter: time.Hour}
		errs := []error{errBoom, errBoom, nil}
		queue, runs := queueOf(func(context.Context, string) (reconcile.Result, error) {
			time.Sleep(time.Second)
			err := errs[0]
			errs = errs[1:]
			return result, err
		})
		queue.Workers = 2
		queue.Backoff = reconcile.Backoff{Retries: 1}
		queue.OnPass = func(pass reconcile.KeyPass[string]) {
			passes.note(pass)
			time.Sleep(time.Minute) // the key waits for it
			panic("the observer fails")
		}
		stop := start(t, queue)
		queue.Add("a")
		time.Sleep(10 * time.Minute)
		queue.Add("a")
		time.Sleep(10 * time.Minute)
		stopped(t, stop)
		same(t, "passes", times(runs), seconds(0, 62, 600))
		begun := passes.begun
		same(t, "accounts", passes.read(), []reconcile.KeyPass[string]{
			{Key: "a", Attempt: 1, Start: begun, Duration: time.Second, Result: result, Err: errBoom, Next: time.Second},
			{Key: "a", Attempt: 2, Start: begun.Add(62 * time.Second), Duration: time.Second, Result: result, Err: errBoom, Parked: true},
			{Key: "a", Attempt: 1, Start: begun.Add(10 * time.Minute), Duration: time.Second, Result: result, Next: time.Hour},
		})
	})
}

func TestQueueLogsFailuresToItsLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		queue, _ := queueOf(failing(reconcile.Terminal(errBoom)))
		queue.Name = "pods"
		queue.Logger = slog.New(slog.NewTextHandler(&log, nil))
		queue.Add("a")
		stop := start(t, queue)
		synctest.Wait()
		stopped(t, stop)
		says(t, errors.New(log.String()),
			`level=ERROR msg="pass failed" queue=pods key=a attempt=1 duration=0s parked=true error=boom`)
	})
}
