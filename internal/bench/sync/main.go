// Command sync measures package statesync beside go-control-plane: one server in
// a process of its own, many clients in this one, the same resources and changes
// for both. It prints one line for each figure.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// peer is one of the two servers.
type peer struct {
	name string
	// serve serves n resources at an address until ctx ends, and returns the address that it has, and what
	// changes a resource.
	serve func(ctx context.Context, at string, resources int) (address string, change func(n int) error, err error)
	// connect follows everything until ctx ends, and calls got with how many
	// resources came.
	connect func(ctx context.Context, address string, got func(n int)) error
}

func main() {
	serving := flag.String("serve", "", "serve as this peer (used by the program itself)")
	at := flag.String("at", anywhere, "serve at this address (used by the program itself)")
	resources := flag.Int("resources", 1000, "how many resources to serve")
	clients := flag.Int("clients", 500, "how many clients to bootstrap")
	streams := flag.Int("fanout", 0, "only measure so many streams of go-control-plane while resources change, each one of its own")
	flag.Parse()
	ctx, stop := benchfigures.Interrupted()
	defer stop()
	exit(errors.Join(benchfigures.AtLeast("clients", *clients, 1), benchfigures.AtLeast("fanout", *streams, 0)))
	if *serving != "" {
		exit(child(ctx, *serving, *at, *resources))
		return
	}
	if *streams > 0 {
		exit(fanout(ctx, *streams))
		return
	}
	exit(measure(ctx, *clients))
}

// anywhere is a free port of this machine.
const anywhere = "127.0.0.1:0"

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "sync:", err)
		os.Exit(1)
	}
}

func peers() []peer { return []peer{ours(), controlPlane()} }

// measure measures each peer and prints the figures.
func measure(ctx context.Context, clients int) error {
	book := &benchfigures.Book{Out: os.Stdout}
	value := map[string]float64{}
	add := func(name string, v float64, unit string) {
		value[name] = v
		book.Add(name, v, unit)
	}
	for _, p := range peers() {
		if err := bootstrap(ctx, p, clients, add); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, n := range []int{10, 100, 1000, 4000} {
			if err := deliver(ctx, p, n, add); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	ratio := func(name, of string) { book.Ratio(name, "trueup_"+of, "controlplane_"+of) }
	ratio("S5_cpu_against_peer_at_1000", "cpu_per_delivery_1000")
	ratio("S5_memory_against_peer", "memory_per_client")
	ratio("S5_bootstrap_against_peer", "bootstrap")
	ratio("S6_cpu_per_change_batched_against_peer", "cpu_per_change_batched")
	add("S6_ndjson_cpu_per_change", value["trueup_cpu_per_change_batched"], "us")
	flat := 0.0
	for _, n := range []int{100, 1000, 4000} {
		flat = max(flat, value[fmt.Sprintf("trueup_cpu_per_delivery_%d", n)])
	}
	add("S5_cpu_flat_10_to_4000", flat/value["trueup_cpu_per_delivery_10"], "x")
	if err := queries(ctx, add); err != nil {
		return err
	}
	if err := burst(ctx, add); err != nil {
		return err
	}
	if err := restart(ctx, add); err != nil {
		return err
	}
	table, missed := book.Table(marks())
	fmt.Print("\n" + table)
	return missed
}

// bootstrap connects all clients at once and waits until each has everything.
func bootstrap(ctx context.Context, p peer, clients int, add func(string, float64, string)) error {
	const resources = 1000
	server, err := start(ctx, p, anywhere, resources)
	if err != nil {
		return err
	}
	defer server.stop()
	empty, err := server.stats()
	if err != nil {
		return err
	}
	began := time.Now()
	fleet := connect(ctx, p, server.address, clients)
	defer fleet.stop()
	if err := fleet.wait(ctx, clients*resources); err != nil {
		return err
	}
	add(p.name+"_bootstrap", time.Since(began).Seconds(), "s")
	full, err := server.stats()
	if err != nil {
		return err
	}
	add(p.name+"_cpu_per_change_batched", float64((full.cpu-empty.cpu).Nanoseconds())/1000/float64(clients*resources), "us")
	add(p.name+"_memory_per_client", float64(full.memory-empty.memory)/float64(clients)/1024, "KiB")
	add(p.name+"_memory_peak", float64(full.peak)/1024/1024, "MiB")
	return nil
}

// deliver changes single resources and measures what a delivery costs the
// server.
func deliver(ctx context.Context, p peer, resources int, add func(string, float64, string)) error {
	const clients, changes = 50, 400
	server, err := start(ctx, p, anywhere, resources)
	if err != nil {
		return err
	}
	defer server.stop()
	fleet := connect(ctx, p, server.address, clients)
	defer fleet.stop()
	if err := fleet.wait(ctx, clients*resources); err != nil {
		return err
	}
	before, err := server.stats()
	if err != nil {
		return err
	}
	had := fleet.got.Load()
	for n := range changes {
		if err := server.change(n % resources); err != nil {
			return err
		}
		// One at a time, so that none is merged with the next.
		if err := fleet.wait(ctx, int(had)+clients*(n+1)); err != nil {
			return err
		}
	}
	after, err := server.stats()
	if err != nil {
		return err
	}
	add(
		fmt.Sprintf("%s_cpu_per_delivery_%d", p.name, resources),
		float64((after.cpu-before.cpu).Nanoseconds())/1000/float64(clients*changes),
		"us",
	)
	return nil
}

// server is a peer in a process of its own.
type server struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	address string
}

func start(ctx context.Context, p peer, at string, resources int) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.CommandContext(ctx, self, "-serve", p.name, "-at", at, "-resources", fmt.Sprint(resources))}
	s.process.Stderr = os.Stderr
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if s.in, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	if !s.out.Scan() {
		return nil, errors.Join(errors.New("the server does not start"), s.process.Wait())
	}
	s.address = s.out.Text()
	return s, nil
}

func (s *server) stop() {
	_ = s.in.Close()
	_ = s.process.Wait()
}

func (s *server) ask(command string) (string, error) {
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		return "", err
	}
	if !s.out.Scan() {
		return "", cmp.Or(s.out.Err(), io.ErrUnexpectedEOF)
	}
	return s.out.Text(), nil
}

func (s *server) change(n int) error {
	_, err := s.ask(fmt.Sprintf("change %d", n))
	return err
}

// stats is what the server has used: memory as of now, after a collection, what is resident then, and what was at
// the peak.
type stats struct {
	memory, resident, peak int64
	cpu                    time.Duration
}

func (s *server) stats() (stats, error) {
	text, err := s.ask("stats")
	if err != nil {
		return stats{}, err
	}
	var st stats
	_, err = fmt.Sscan(text, &st.memory, &st.resident, &st.peak, &st.cpu)
	return st, err
}

// fleet is many clients of one server.
type fleet struct {
	counter

	cancel context.CancelFunc
	ended  sync.WaitGroup
	failed chan error
}

func connect(ctx context.Context, p peer, address string, clients int) *fleet {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{cancel: cancel, failed: make(chan error, clients), counter: newCounter()}
	for range clients {
		f.ended.Go(func() {
			if err := p.connect(ctx, address, f.add); err != nil && ctx.Err() == nil {
				f.failed <- err
			}
		})
	}
	return f
}

func (f *fleet) stop() {
	f.cancel()
	f.ended.Wait()
}

// wait returns when the clients together have got that many resources.
func (f *fleet) wait(ctx context.Context, many int) error {
	for f.got.Load() < int64(many) {
		select {
		case <-f.moved:
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return fmt.Errorf("after a minute %d of %d resources", f.got.Load(), many)
		}
	}
	return nil
}
