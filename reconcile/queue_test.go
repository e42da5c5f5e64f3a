package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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
			same(t, "is of the ctx", errors.Is(pass.Err, context.DeadlineExceeded), true)
			same(t, "error", pass.Err.Error(), "the pass has reached its limit of 4s: context deadline exceeded")
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
		"reconcile: Queue.Reconcile: is required":                        {},
		"reconcile: Queue.Workers: is -1, must be 0 (1 default) or more": {Reconcile: nothing, Workers: -1},
		"reconcile: Queue.Timeout: is -1s, must be 0 (no bound) or more": {Reconcile: nothing, Timeout: -time.Second},
		"reconcile: Queue.Backoff.Jitter: is 2, must be 0":               {Reconcile: nothing, Backoff: reconcile.Backoff{Jitter: 2}},
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

func TestNothingIsKeptOfAKeyThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type big [1 << 10]byte
		queue := &reconcile.Queue[*big]{
			Reconcile: func(context.Context, *big) (reconcile.Result, error) { return reconcile.Result{}, nil },
		}
		stop := start(t, queue)
		defer func() { stopped(t, stop) }()
		key := new(big)
		left := weak.Make(key)
		queue.Resync(key)
		queue.Add(key)
		queue.AddAfter(key, time.Second)
		time.Sleep(time.Minute)
		queue.Add(new(big)) // takes the place of key in the worker's hand
		synctest.Wait()
		runtime.GC()
		if left.Value() != nil {
			t.Errorf("the queue still holds the key")
		}
	})
}
