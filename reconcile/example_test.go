package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// A thermostat: every pass compares the whole of what should be with the whole
// of what is.
func ExampleLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	want, have := 21, 19
	loop := &reconcile.Loop{
		Name:     "thermostat",
		Interval: 30 * time.Second,
		Jitter:   0.2,
		Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
			if have == want {
				cancel() // a program would go on until it is told to stop
				return reconcile.Result{}, nil
			}
			have++
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		}),
		OnPass: func(pass reconcile.Pass) {
			fmt.Printf("pass %d (%s): %d degrees\n", pass.Number, pass.Reason, have)
		},
	}
	if err := loop.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// pass 1 (start): 20 degrees
	// pass 2 (requeue): 21 degrees
	// pass 3 (requeue): 21 degrees
}

// An event makes the next pass early. It carries nothing: the pass looks at
// everything anyway.
func ExampleLoop_Trigger() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	loop := &reconcile.Loop{Interval: time.Hour}
	loop.Reconciler = reconcile.Func(func(context.Context) (reconcile.Result, error) {
		loop.Trigger() // something changed while this pass was looking
		return reconcile.Result{}, nil
	})
	loop.OnPass = func(pass reconcile.Pass) {
		fmt.Println(pass.Number, pass.Reason)
		if pass.Number == 2 {
			cancel()
		}
	}
	if err := loop.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 start
	// 2 trigger
}

// Fresh events go first, and a key that cannot be cured is parked while the
// others go on.
func ExampleQueue() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	queue := &reconcile.Queue[string]{
		Reconcile: func(_ context.Context, pod string) (reconcile.Result, error) {
			if pod == "broken" {
				return reconcile.Result{}, reconcile.Terminal(errors.New("no image"))
			}
			return reconcile.Result{}, nil
		},
	}
	queue.OnPass = func(pass reconcile.KeyPass[string]) {
		fmt.Println(pass.Key, pass.Err)
		if queue.Len() == 0 {
			cancel()
		}
	}
	queue.Resync("web", "db") // a sweep over all there is
	queue.Add("broken", "db") // these changed just now
	if err := queue.Start(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("parked:", queue.Parked())
	// Output:
	// broken no image
	// db <nil>
	// web <nil>
	// parked: map[broken:no image]
}

// A sequence that failed halfway is resumed by running it again.
func ExampleSteps() {
	ctx := context.Background()
	say := func(text string) func(context.Context) error {
		return func(context.Context) error { fmt.Println(text); return nil }
	}
	created, ready := false, false
	steps := reconcile.Steps{
		{
			Name: "database",
			Do:   func(context.Context) error { created = true; fmt.Println("create database"); return nil },
			Undo: say("drop database"),
			Done: func(context.Context) (bool, error) { return created, nil },
		},
		{
			Name: "schema",
			Do: func(context.Context) error {
				if !ready {
					ready = true
					return errors.New("database is starting")
				}
				fmt.Println("load schema")
				return nil
			},
			Undo: say("unload schema"),
		},
	}
	fmt.Println(steps.Do(ctx))
	fmt.Println(steps.Do(ctx))
	fmt.Println(steps.Undo(ctx))
	// Output:
	// create database
	// schema: database is starting
	// load schema
	// <nil>
	// unload schema
	// drop database
	// <nil>
}

// The first member that fails stops the others, and each has time to clean up.
func ExampleGroup() {
	server := func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("server: closed")
		return nil
	}
	agent := func(context.Context) error { return errors.New("token refused") }

	group := &reconcile.Group{
		Members: []reconcile.Member{
			{Name: "server", Starter: reconcile.StarterFunc(server)},
			{Name: "agent", Starter: reconcile.StarterFunc(agent)},
		},
		StopTimeout: 10 * time.Second,
	}
	fmt.Println(group.Start(context.Background()))
	// Output:
	// server: closed
	// agent: token refused
}

func ExampleBackoff() {
	backoff := reconcile.Backoff{Min: time.Second, Max: 5 * time.Second}
	for retry := range 4 {
		fmt.Println(backoff.Delay(retry + 1))
	}
	// Output:
	// 1s
	// 2s
	// 4s
	// 5s
}

// Retry in place, within one pass.
func ExampleBackoff_Retry() {
	calls := 0
	backoff := reconcile.Backoff{Min: time.Millisecond, Retries: 3}
	err := backoff.Retry(context.Background(), func(context.Context) error {
		calls++
		if calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	fmt.Println(calls, err)
	// Output: 3 <nil>
}

func ExampleTerminal() {
	err := fmt.Errorf("pod web: %w", reconcile.Terminal(errors.New("image is required")))
	fmt.Println(err)
	fmt.Println(errors.Is(err, reconcile.ErrTerminal))
	// Output:
	// pod web: image is required
	// true
}
