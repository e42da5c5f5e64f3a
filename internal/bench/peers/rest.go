package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

const sweeps = 51

// rest measures what passes over unchanged objects cost.
func (b *bench) rest(ctx context.Context) error {
	if err := b.restTrueup(ctx); err != nil {
		return fmt.Errorf("trueup: %w", err)
	}
	if err := b.restPeers(ctx); err != nil {
		return err
	}
	for _, peer := range []string{"flux_4", "flux_1", "plain_8", "plain_1", "CreateOrUpdate", carefulPeer} {
		b.book.Ratio(peer+"_takes.sweep_ratio", peer+".sweep_us_per_object", "trueup.sweep_us_per_object")
	}
	return nil
}

// mix makes a namespace and its objects.
func (b *bench) mix(ctx context.Context, namespace string, n int) ([]*unstructured.Unstructured, error) {
	if err := b.others.Namespace(ctx, namespace); err != nil {
		return nil, err
	}
	return benchobjects.Mix{Namespace: namespace, Count: n}.Objects(), nil
}

func (b *bench) restTrueup(ctx context.Context) error {
	objects, err := b.mix(ctx, "trueup", b.objects)
	if err != nil {
		return err
	}
	t, err := startTrueup(ctx, b.side("trueup"), nil)
	if err != nil {
		return err
	}
	defer t.stop()
	start := time.Now()
	set, err := apply.NewSet(owner(), objects, apply.SetOptions{})
	if err != nil {
		return err
	}
	b.book.Add("trueup.new_set_us_per_object", benchfigures.Micros(time.Since(start), b.objects), "us")
	start = time.Now()
	if _, err := t.Apply(ctx, set); err != nil {
		return err
	}
	b.book.Add("trueup.create_all_seconds", time.Since(start).Seconds(), "s")
	b.book.Add("trueup.create_requests_per_object", t.perObject(b.objects), "requests")
	if err := b.others.Share(ctx, objects); err != nil {
		return err
	}
	pause(ctx, 2*time.Second)                 // until the watch has told
	if err := t.sweep(ctx, set); err != nil { // warm-up
		return err
	}
	t.net.Reset()
	var times, allocations []float64
	for range sweeps {
		took, allocated, err := benchfigures.Measured(func() error { return t.sweep(ctx, set) })
		if err != nil {
			return err
		}
		times, allocations = append(times, benchfigures.Micros(took, b.objects)), append(allocations, allocated)
	}
	requests, lists := t.requests()
	b.book.Add("trueup.sweep_requests", float64(requests), "requests")
	b.book.Add("trueup.sweep_requests_per_object", float64(requests)/float64(sweeps*b.objects), "requests") // of the plot, as the peers'
	b.book.Add("trueup.sweep_lists_and_watches", float64(lists), "requests")
	b.book.Add("trueup.sweep_us_per_object", benchfigures.Percentile(times, 0.5), "us")
	b.book.Add("trueup.sweep_allocations", benchfigures.Percentile(allocations, 0.5), "allocations")
	few, err := b.sweepAllocations(ctx, t, objects[:10])
	if err != nil {
		return err
	}
	// A pass has a few of its own, however many objects there are.
	more := max(0, benchfigures.Percentile(allocations, 0.5)-few)
	b.book.Add("trueup.sweep_allocations_per_object", more/float64(b.objects-10), "allocations")
	return b.restart(ctx, set)
}

// sweepAllocations returns those of a sweep over some of the objects.
func (b *bench) sweepAllocations(ctx context.Context, t *trueup, objects []*unstructured.Unstructured) (float64, error) {
	set, err := apply.NewSet(owner(), objects, apply.SetOptions{})
	if err != nil {
		return 0, err
	}
	var all []float64
	for range sweeps {
		_, allocations, err := benchfigures.Measured(func() error { return t.sweep(ctx, set) })
		if err != nil {
			return 0, err
		}
		all = append(all, allocations)
	}
	return benchfigures.Percentile(all, 0.5), nil
}

// restart measures the first pass of a program that was restarted.
func (b *bench) restart(ctx context.Context, set *apply.Set) error {
	var first, listing []float64
	requests, lists := 0, 0
	for range b.rounds {
		t, err := startTrueup(ctx, b.side("trueup"), nil)
		if err != nil {
			return err
		}
		took, _, err := benchfigures.Measured(func() error { return t.sweep(ctx, set) })
		t.stop()
		if err != nil {
			return fmt.Errorf("after a restart: %w", err)
		}
		first, listing = append(first, benchfigures.Micros(took, set.Len())), append(listing, benchfigures.Micros(t.synced, set.Len()))
		r, l := t.requests()
		requests, lists = requests+r, lists+l
	}
	b.book.Add("trueup.restart_requests", float64(requests), "requests")
	b.book.Add("trueup.restart_lists_and_watches", float64(lists)/float64(b.rounds), "requests")
	b.book.Add("trueup.restart_first_pass_us_per_object", benchfigures.Percentile(first, 0.5), "us")
	b.book.Add("trueup.restart_lists_us_per_object", benchfigures.Percentile(listing, 0.5), "us")
	b.book.Add("trueup.restart_with_lists_us_per_object", benchfigures.Percentile(first, 0.5)+benchfigures.Percentile(listing, 0.5), "us")
	return nil
}

// restPeers measures all peers in turns, each on objects of its own.
func (b *bench) restPeers(ctx context.Context) error {
	peers, stop, err := b.startPeers(ctx)
	defer stop()
	if err != nil {
		return err
	}
	passes := make([]pass, len(peers))
	for i, peer := range peers {
		objects, err := b.mix(ctx, "rest-"+namespaced(peer.own().name), b.peers)
		if err != nil {
			return err
		}
		if passes[i], err = peer.prepare(objects); err != nil {
			return err
		}
		if err := passes[i](ctx); err != nil {
			return fmt.Errorf("%s: %w", peer.own().name, err)
		}
		b.book.Add(peer.own().name+".create_requests_per_object", peer.own().perObject(b.peers), "requests")
		if err := b.others.Share(ctx, objects); err != nil {
			return err
		}
		if err := passes[i](ctx); err != nil { // warm-up
			return fmt.Errorf("%s: %w", peer.own().name, err)
		}
	}
	times, requests, allocations := map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
	for round := range b.rounds {
		for turn := range peers {
			i := (round + turn) % len(peers)
			pause(ctx, 200*time.Millisecond) // caches see what was written
			peers[i].own().net.Reset()
			took, allocated, err := benchfigures.Measured(func() error { return passes[i](ctx) })
			if err != nil {
				return fmt.Errorf("%s: %w", peers[i].own().name, err)
			}
			times[i] = append(times[i], benchfigures.Micros(took, b.peers))
			requests[i] = append(requests[i], peers[i].own().perObject(b.peers))
			allocations[i] = append(allocations[i], allocated/float64(b.peers))
		}
	}
	for i, peer := range peers {
		name := peer.own().name
		b.book.Add(name+".sweep_requests_per_object", benchfigures.Percentile(requests[i], 0.5), "requests")
		b.book.Add(name+".sweep_us_per_object", benchfigures.Percentile(times[i], 0.5), "us")
		b.book.Add(name+".sweep_allocations_per_object", benchfigures.Percentile(allocations[i], 0.5), "allocations")
	}
	return nil
}
