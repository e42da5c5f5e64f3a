package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// figure prints one number in the form in which figures are collected.
func figure(name string, perOp float64) {
	fmt.Printf("figure %s %.0f ns\n", name, perOp)
}

// nsPerOp is how long one turn of the benchmark took.
func nsPerOp(b *testing.B) float64 {
	b.Helper()
	return float64(b.Elapsed().Nanoseconds()) / float64(b.N)
}

// One key added to a queue in which all keys wait, which merges.
func BenchmarkQueueAdd(b *testing.B) {
	var perOp float64
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			queue := &reconcile.Queue[int]{}
			next := 0
			for b.Loop() {
				queue.Add(next)
				next = (next + 1) % size
			}
			perOp = nsPerOp(b)
		})
	}
	figure("reconcile_queue_add_ns", perOp)
}

// Keys from Add to the end of a pass that does nothing.
func BenchmarkQueueThroughput(b *testing.B) {
	var perOp float64
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			b.ReportAllocs()
			const batch = 1000
			var left atomic.Int64
			done := make(chan struct{})
			queue := &reconcile.Queue[int]{
				Workers: workers,
				Reconcile: func(context.Context, int) (reconcile.Result, error) {
					if left.Add(-1) == 0 {
						done <- struct{}{}
					}
					return reconcile.Result{}, nil
				},
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- queue.Start(ctx) }()
			key := 0
			for b.Loop() {
				left.Store(batch)
				for range batch {
					queue.Add(key)
					key++
				}
				<-done
			}
			perOp = nsPerOp(b) / batch
			b.ReportMetric(perOp, "ns/key")
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
		})
	}
	figure("reconcile_queue_pass_ns", perOp)
}

// One trigger, of a loop that is busy and of one that answers it.
func BenchmarkLoopTrigger(b *testing.B) {
	var perOp float64
	b.Run("merged", func(b *testing.B) {
		b.ReportAllocs()
		loop := &reconcile.Loop{}
		for b.Loop() {
			loop.Trigger()
		}
		perOp = nsPerOp(b)
	})
	figure("reconcile_loop_trigger_ns", perOp)

	b.Run("answered", func(b *testing.B) {
		b.ReportAllocs()
		passed := make(chan struct{})
		loop := &reconcile.Loop{
			Interval: time.Hour,
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
				passed <- struct{}{}
				return reconcile.Result{}, nil
			}),
		}
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- loop.Start(ctx) }()
		<-passed
		for b.Loop() {
			loop.Trigger()
			<-passed
		}
		perOp = nsPerOp(b)
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	figure("reconcile_loop_pass_ns", perOp)
}
