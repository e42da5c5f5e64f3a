package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const agents, listed = 1000, 200

// burst lets a thousand clients connect at once and get everything, and in turn a thousand downloads of the same bytes,
// several times, each from a server that has just started.
func burst(ctx context.Context, add func(string, float64, string)) error {
	const times = 5
	download := peer{name: "file", connect: connectFile}
	took := map[string][]float64{}
	for range times {
		for _, p := range []peer{ours(), download} {
			s, err := start(ctx, ours(), anywhere, listed)
			if err != nil {
				return err
			}
			began := time.Now()
			f := connect(ctx, p, s.address, agents)
			err = f.wait(ctx, agents*listed)
			took[p.name] = append(took[p.name], time.Since(began).Seconds())
			f.stop()
			s.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	trueup, file := benchfigures.Percentile(took["trueup"], 0.5), benchfigures.Percentile(took["file"], 0.5)
	add("S7_connected_at_once", trueup, "s")
	add("S7_file_at_once", file, "s")
	add("S7_at_once_against_a_file", trueup/file, "x")
	return nil
}

// connectFile gets the same bytes as one file.
func connectFile(ctx context.Context, address string, got func(int)) error {
	body, err := open(ctx, "http://"+address+"/file")
	if err != nil {
		return err
	}
	defer body.Close()                                                //nolint:errcheck // nothing was written
	if err := count(body, []byte(`"padding":`), got); err != io.EOF { //nolint:errorlint // Read's own
		return err
	}
	return nil
}

// restart kills a server that has a thousand agents, and starts it again at once, and after ten seconds. Its log is
// another then, so each agent lists everything. The agents are as programs have them, with their pauses.
func restart(ctx context.Context, add func(string, float64, string)) error {
	s, err := start(ctx, ours(), anywhere, listed)
	if err != nil {
		return err
	}
	defer func() { s.stop() }()
	fleet, end := newReplicas(ctx, s.address)
	defer end()
	if err := fleet.synced(ctx); err != nil {
		return err
	}
	for _, away := range []time.Duration{0, 10 * time.Second} {
		steady, err := s.stats()
		if err != nil {
			return err
		}
		fleet.forget()
		if err := s.process.Process.Kill(); err != nil {
			return err
		}
		address := s.address
		s.stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(away):
		}
		tries := fleet.tries()
		if s, err = start(ctx, ours(), address, listed); err != nil {
			return err
		}
		began := time.Now()
		if err := fleet.synced(ctx); err != nil {
			return err
		}
		name := fmt.Sprintf("S7_restart_%.0fs_", away.Seconds())
		add(name+"all_synced", time.Since(began).Seconds(), "s")
		again, err := s.stats()
		if err != nil {
			return err
		}
		add(name+"memory_peak_against_steady", float64(again.peak)/float64(steady.resident), "x")
		if away > 0 {
			add(name+"tries_while_away", float64(len(tries)), "tries")
		}
		add(name+"most_tries_in_100ms", float64(most(fleet.tries(), 100*time.Millisecond)), "tries")
	}
	return nil
}

// replicas are agents that keep a copy, and the times of their requests.
type replicas struct {
	transport http.RoundTripper

	mu    sync.Mutex
	asked []time.Time
	lists map[int]bool // the agents that have a proven list
	moved chan struct{}
}

func newReplicas(ctx context.Context, address string) (*replicas, func()) {
	ctx, cancel := context.WithCancel(ctx)
	r := &replicas{
		transport: &http.Transport{MaxIdleConnsPerHost: agents}, lists: map[int]bool{}, moved: make(chan struct{}, 1),
	}
	var ended sync.WaitGroup
	for n := range agents {
		replica := &statesync.Replica{
			Source: &statesync.Client{URL: "http://" + address, Transport: r}, Scope: scope,
			Handle:   func(context.Context, statesync.Item) error { return nil },
			OnSynced: func(statesync.Snapshot) { r.proven(n) },
		}
		ended.Go(func() { _ = replica.Start(ctx) }) // nil when ctx ends
	}
	return r, func() {
		cancel()
		ended.Wait()
	}
}

// RoundTrip notes the time of a request.
func (r *replicas) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.asked = append(r.asked, time.Now())
	r.mu.Unlock()
	return r.transport.RoundTrip(request)
}

func (r *replicas) proven(n int) {
	r.mu.Lock()
	r.lists[n] = true
	r.mu.Unlock()
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// forget makes synced wait for another list of each.
func (r *replicas) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = nil
	clear(r.lists)
}

// tries returns the times of the requests since forget.
func (r *replicas) tries() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[:len(r.asked):len(r.asked)]
}

// synced waits until each agent has a proven list.
func (r *replicas) synced(ctx context.Context) error {
	late := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		n := len(r.lists)
		r.mu.Unlock()
		if n == agents {
			return nil
		}
		select {
		case <-r.moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("after 2 minutes %d of %d agents are synced", n, agents)
		}
	}
}

// most returns how many of the times, which ascend, lie within a window at the most.
func most(times []time.Time, window time.Duration) (n int) {
	from := 0
	for to, at := range times {
		for at.Sub(times[from]) > window {
			from++
		}
		n = max(n, to-from+1)
	}
	return n
}
