package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// growthPruned is one object of how many is pruned.
const growthPruned = 1000

// set measures one set of all objects.
func (r *growthRun) set(ctx context.Context) error {
	applier, stop, set, err := r.setMemory(ctx)
	if err != nil {
		return err
	}
	if err := r.sweep(ctx, applier, set); err != nil {
		return err
	}
	if err := r.setPrune(ctx, applier, set); err != nil {
		return err
	}
	stop()
	return r.restart(ctx, set)
}

// setMemory measures what the desired state and the view take, and returns a set with a view that
// has seen it unchanged. Few objects are held several times, so that there is something to measure.
func (r *growthRun) setMemory(ctx context.Context) (*apply.Applier, func(), *apply.Set, error) {
	copies := max(1, 20_000/r.n)
	warm, err := r.world.set(10, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	first, stop, err := r.live(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := r.settle(ctx, first, warm); err != nil {
		return nil, nil, nil, err
	}
	stop()
	base := settled()
	sets, appliers, stops := make([]*apply.Set, copies), make([]*apply.Applier, copies), make([]func(), copies)
	for i := range sets {
		if sets[i], err = r.world.set(r.n, nil); err != nil {
			return nil, nil, nil, err
		}
	}
	stated := settled()
	for i := range sets {
		if appliers[i], stops[i], err = r.live(ctx); err != nil {
			return nil, nil, nil, err
		}
		if err := r.settle(ctx, appliers[i], sets[i]); err != nil {
			return nil, nil, nil, err
		}
	}
	seen := settled()
	r.held(base, stated, seen, copies*r.n)
	for i := range sets[1:] {
		stops[1+i]()
	}
	return appliers[0], stops[0], sets[0], nil
}

// peak measures how much memory a program has at the most that states all objects and passes over them once, without
// a collection that is asked for: what a limit must hold.
func (r *growthRun) peak(ctx context.Context) error {
	before, err := benchfigures.MemoryOf(os.Getpid())
	if err != nil {
		return err
	}
	set, err := r.world.set(r.n, nil)
	if err != nil {
		return err
	}
	applier, stop, err := r.live(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := r.settle(ctx, applier, set); err != nil {
		return err
	}
	after, err := benchfigures.MemoryOf(os.Getpid())
	if err != nil {
		return err
	}
	runtime.KeepAlive(set)
	r.book.Add("memory_peak_bytes", (after.Peak-before.Resident)/float64(r.n), "bytes")
	return nil
}

// held adds the figures of memory for each object: of the desired state and the view, and of the
// view alone.
func (r *growthRun) held(base, stated, seen footprint, objects int) {
	r.book.Add("memory_bytes", (seen.resident-base.resident)/float64(objects), "bytes")
	r.book.Add("memory_view_bytes", (seen.resident-stated.resident)/float64(objects), "bytes")
	r.book.Add("memory_heap_bytes", (seen.heap-base.heap)/float64(objects), "bytes")
}

// sweep measures a pass at rest.
func (r *growthRun) sweep(ctx context.Context, applier *apply.Applier, set *apply.Set) error {
	r.count.reset()
	pass := func() error { return r.unchanged(ctx, applier, set) }
	if err := r.measure("sweep_us", r.n, pass, nil); err != nil {
		return err
	}
	if r.n <= growthCold {
		cold, err := r.cold(pass, r.n)
		if err != nil {
			return err
		}
		r.book.Add("sweep_cold_us", cold, "us")
	}
	return r.count.silent("passes at rest")
}

// growthCold is up to how many objects fit into the caches of a processor.
const growthCold = 1000

// cold measures f after the caches of the processor were filled with something else, as they are
// when there are more objects than fit into them.
func (r *growthRun) cold(f func() error, per int) (float64, error) {
	other := make([]byte, 64<<20)
	evict := func() error {
		for i := 0; i < len(other); i += 64 {
			other[i]++
		}
		return nil
	}
	if err := evict(); err != nil {
		return 0, err
	}
	us, err := r.cpuOf(per, 20*time.Millisecond, f, evict)
	runtime.KeepAlive(other)
	return us, err
}

// setPrune measures the prune of some of all objects, which are then made again.
func (r *growthRun) setPrune(ctx context.Context, applier *apply.Applier, set *apply.Set) error {
	leave := func(i int) bool { return i%growthPruned == growthPruned/2 }
	fewer, err := r.world.set(r.n, leave)
	if err != nil {
		return err
	}
	gone := set.Len() - fewer.Len()
	r.count.reset()
	prune := func() error {
		// A guard of its own, with the default limits: it has seen no deletion within the hour.
		report, err := applier.Prune(ctx, fewer, apply.PruneOptions{Complete: true, Guard: &apply.Guard{}})
		if err != nil || len(report.Results) != gone {
			return fmt.Errorf("%d of %d objects pruned: %w", len(report.Results), gone, err)
		}
		return nil
	}
	again := func() error {
		if err := r.deleted(leave, gone); err != nil {
			return err
		}
		err := r.settle(ctx, applier, set)
		r.count.reset()
		return err
	}
	if err := r.measure("prune_us", r.n, prune, again); err != nil {
		return err
	}
	nothing := func() error {
		report, err := applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
		if err == nil && len(report.Results) > 0 {
			err = fmt.Errorf("%d objects pruned, must be none", len(report.Results))
		}
		return err
	}
	if err := r.measure("prune_nothing_us", r.n, nothing, nil); err != nil {
		return err
	}
	return r.count.silent("prunes of nothing")
}

// deleted returns an error unless exactly the objects were deleted that leave selects, so many, with
// no other request.
func (r *growthRun) deleted(leave func(int) bool, gone int) error {
	_, other, deleted := r.count.reset()
	for i := range r.n {
		if leave(i) && !deleted[r.world.path(i)] {
			return fmt.Errorf("%s was not deleted", r.world.name(i))
		}
	}
	if other != gone || len(deleted) != gone {
		return fmt.Errorf("%d requests delete %d objects; must be one each for %d", other, len(deleted), gone)
	}
	return nil
}

// restart measures the first pass of a new view, with its lists.
func (r *growthRun) restart(ctx context.Context, set *apply.Set) error {
	var watches []int
	var stop func()
	first := func() error {
		var applier *apply.Applier
		var err error
		if applier, stop, err = r.live(ctx); err != nil {
			return err
		}
		return r.unchanged(ctx, applier, set)
	}
	end := func() error {
		stop()
		stop = nil // it has the view, which would be garbage otherwise
		lists, other, _ := r.count.reset()
		watches = append(watches, lists)
		if other > 0 {
			return fmt.Errorf("after a restart: %d requests, must be none beside lists and watches", other)
		}
		runtime.GC()
		return nil
	}
	r.count.reset()
	begun := time.Now()
	if err := r.measure("restart_us", r.n, first, end); err != nil {
		return err
	}
	r.book.Add("restart_wall_seconds", time.Since(begun).Seconds()/float64(len(watches)), "s")
	r.book.Add("restart_lists_and_watches", float64(watches[0]), "requests")
	return nil
}
