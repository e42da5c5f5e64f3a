package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// counter counts what came, and tells when more did.
type counter struct {
	got   *atomic.Int64
	moved chan struct{}
}

func newCounter() counter { return counter{new(atomic.Int64), make(chan struct{}, 1)} }

func (c counter) add(n int) {
	c.got.Add(int64(n))
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// child serves as one peer, and does what the lines of its input say.
func child(ctx context.Context, name, at string, resources int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, p := range peers() {
		if p.name != name {
			continue
		}
		address, change, err := p.serve(ctx, at, resources)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(os.Stdout, address)
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			command, argument, _ := strings.Cut(lines.Text(), " ")
			switch command {
			case "change":
				n, err := strconv.Atoi(argument)
				if err != nil {
					return err
				}
				if err := change(n); err != nil {
					return err
				}
				_, _ = fmt.Fprintln(os.Stdout, "ok")
			case "stats":
				text, err := used()
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintln(os.Stdout, text)
			}
		}
		return lines.Err()
	}
	return fmt.Errorf("no peer %q", name)
}

// used returns the memory in use, what is resident at rest and was at the peak, and the processor time. At rest
// is after the collector has given back to the system what is free.
func used() (string, error) {
	runtime.GC()
	debug.FreeOSMemory()
	after, err := benchfigures.MemoryOf(os.Getpid())
	if err != nil {
		return "", err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return "", fmt.Errorf("getrusage: %w", err)
	}
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return fmt.Sprint(memory.HeapInuse+memory.StackInuse, " ", int64(after.Resident), " ", int64(after.Peak), " ", int64(cpu)), nil
}

// value is the n-th version of a resource, a kilobyte of JSON.
func value(resource, version int) string {
	head := fmt.Sprintf(`{"resource":%d,"version":%d,"padding":"`, resource, version)
	return head + strings.Repeat("x", 1022-len(head)) + `"}`
}
