package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// asked counts what a log is asked.
type asked struct {
	statesync.Log

	reads atomic.Int64
}

// Read is that of the log.
func (a *asked) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	a.reads.Add(1)
	return a.Log.Read(ctx, scope, after, limit)
}

// queries counts how often a log is read for the same changes, for one stream
// and for a thousand.
func queries(ctx context.Context, add func(string, float64, string)) error {
	const changes = 50
	reads := map[int]float64{}
	for _, streams := range []int{1, 1000} {
		n, err := readsFor(ctx, streams, changes)
		if err != nil {
			return err
		}
		reads[streams] = float64(n)
		add(fmt.Sprintf("S4_reads_per_change_%d_streams", streams), reads[streams]/changes, "reads")
	}
	add("S4_reads_1000_against_1", reads[1000]/reads[1], "x")
	return nil
}

func readsFor(ctx context.Context, streams, changes int) (int64, error) {
	log := &statesync.Memory{}
	if err := log.AddScope(scope); err != nil {
		return 0, err
	}
	counted := &asked{Log: log}
	server := &statesync.Server{Log: counted}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { _ = server.Start(ctx) }) // nil when ctx ends
	got := newCounter()
	for range streams {
		parts.Go(func() {
			// It ends with ctx.
			_ = server.Watch(ctx, statesync.Watch{Scope: scope}, func(f statesync.Frame) error {
				if f.Type == statesync.FrameSynced {
					got.add(1)
				}
				got.add(len(f.Items))
				return nil
			})
		})
	}
	f := fleet{counter: got}
	if err := f.wait(ctx, streams); err != nil {
		return 0, err
	}
	before := counted.reads.Load()
	for n := range changes {
		if err := log.Commit(
			statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: "1"}, Value: []byte(value(1, n))},
		); err != nil {
			return 0, err
		}
		if err := f.wait(ctx, streams*(n+2)); err != nil {
			return 0, err
		}
	}
	return counted.reads.Load() - before, nil
}
