package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimeservice "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

const (
	fanoutRate   = 200 // changes a second
	fanoutLength = time.Minute
	fanoutRest   = 20 * time.Second
)

// arrivals has when each version was sent, and when its client had it or a later one of the same resource.
type arrivals struct {
	mu             sync.Mutex
	resources      int // the versions up to it are the first of each
	sent, received []time.Time
	of             []int // the resource of each change
	next           []int // of each resource, the first change that may not have come
	left           int
	all            chan struct{}
}

// came notes that the client of a resource has a version.
func (a *arrivals) came(name, version int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := a.next[name]; n < version-a.resources; n++ {
		if a.of[n] == name && a.received[n].IsZero() {
			a.received[n] = now
			a.left--
		}
	}
	a.next[name] = max(a.next[name], version-a.resources)
	if a.left == 0 {
		close(a.all)
		a.left = -1
	}
}

// fanout has so many clients follow go-control-plane, each one resource of its own over a connection of
// its own, and changes resources by chance: the work that "make bench-controlplane" gives the control
// plane, without its database, its sign-in and its audit log.
func fanout(ctx context.Context, clients int) error {
	book := &benchfigures.Book{Out: os.Stdout}
	server, err := start(ctx, controlPlane(), anywhere, clients)
	if err != nil {
		return err
	}
	defer server.stop()
	many := fanoutRate * int(fanoutLength/time.Second)
	a := &arrivals{
		resources: clients, sent: make([]time.Time, many), received: make([]time.Time, many),
		of: make([]int, many), next: make([]int, clients), left: many, all: make(chan struct{}),
	}
	before, err := server.stats()
	if err != nil {
		return err
	}
	follow, cancel := context.WithCancel(ctx)
	defer cancel()
	failed, synced := make(chan error, clients), newCounter()
	for name := range clients {
		go func() {
			first := sync.OnceFunc(func() { synced.add(1) })
			err := subscribe(follow, server.address, fmt.Sprint(name), func(r *discovery.DeltaDiscoveryResponse) {
				for _, version := range versions(r) {
					a.came(name, version)
				}
				first()
			})
			if err != nil && follow.Err() == nil {
				failed <- err
			}
		}()
	}
	all := &fleet{counter: synced, failed: failed, cancel: cancel}
	if err := all.wait(ctx, clients); err != nil {
		return err
	}
	after, err := server.stats()
	if err != nil {
		return err
	}
	select {
	case <-time.After(fanoutRest):
	case <-ctx.Done():
		return ctx.Err()
	}
	rested, err := server.stats()
	if err != nil {
		return err
	}
	if err := a.write(ctx, server, failed); err != nil {
		return err
	}
	used, err := server.stats()
	if err != nil {
		return err
	}
	a.report(book, used.cpu-rested.cpu)
	book.Add("fanout_go_control_plane_kib_per_stream", float64(after.resident-before.resident)/1024/float64(clients), "KiB")
	rest := float64((rested.cpu - after.cpu).Microseconds()) / fanoutRest.Seconds() / float64(clients)
	book.Add("fanout_go_control_plane_rest_cpu_us_per_stream_second", rest, "us")
	return nil
}

// versions returns the versions of the resources of an answer.
func versions(r *discovery.DeltaDiscoveryResponse) (all []int) {
	for _, resource := range r.GetResources() {
		var layer runtimeservice.Runtime
		if resource.GetResource().UnmarshalTo(&layer) != nil {
			continue
		}
		_, text, _ := strings.Cut(layer.GetLayer().GetFields()["value"].GetStringValue(), `"version":`)
		version := 0
		if _, err := fmt.Sscan(strings.SplitN(text, ",", 2)[0], &version); err == nil {
			all = append(all, version)
		}
	}
	return all
}

// write changes resources at the rate, and waits until each change has come.
func (a *arrivals) write(ctx context.Context, server *server, failed <-chan error) error {
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a choice
	tick := time.NewTicker(time.Second / fanoutRate)
	defer tick.Stop()
	for n := range a.sent {
		<-tick.C
		name := random.IntN(a.resources)
		a.mu.Lock()
		a.of[n], a.sent[n] = name, time.Now()
		a.mu.Unlock()
		if err := server.change(name); err != nil {
			return err
		}
	}
	select {
	case <-a.all:
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute): // what has not come is reported as lost
	}
	return nil
}

func (a *arrivals) report(book *benchfigures.Book, cpu time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lags []float64
	lost := 0
	for n := range a.sent {
		if a.received[n].IsZero() {
			lost++
			continue
		}
		lags = append(lags, float64(a.received[n].Sub(a.sent[n]))/1e6)
	}
	const name = "fanout_go_control_plane"
	book.Add(name+"_streams", float64(a.resources), "streams")
	book.Add(name+"_lost", float64(lost), "changes")
	book.Add(name+"_lag_p50_ms", benchfigures.Percentile(lags, 0.5), "ms")
	book.Add(name+"_lag_p99_ms", benchfigures.Percentile(lags, 0.99), "ms")
	book.Add(name+"_cpu_us_per_change", float64(cpu.Microseconds())/float64(len(a.sent)), "us")
}
