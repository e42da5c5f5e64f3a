package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// growthRun is the process that measures one size: what it does, and what it has counted.
type growthRun struct {
	world  growthWorld
	n      int
	config *rest.Config
	book   benchfigures.Book
	count  growthCount
	// profiles is the beginning of the names of profiles; empty: there are none.
	profiles string
}

// growthChild measures one size in one way in this process, which does nothing else. At is the
// address of our server, or the path of a kubeconfig.
func growthChild(ctx context.Context, way, at string, n int, profiles string) error {
	r := &growthRun{world: newGrowthWorld(strings.HasPrefix(way, "parts")), n: n, book: benchfigures.Book{Out: os.Stdout}, profiles: profiles}
	var err error
	if r.config, err = growthConfig(at); err != nil {
		return err
	}
	r.config.QPS = -1
	r.config.Wrap(r.count.wrap)
	switch way {
	case "set":
		return r.set(ctx)
	case "peak":
		return r.peak(ctx)
	case "parts":
		return r.parts(ctx)
	case "informer":
		return r.informer(ctx)
	case "flux":
		return r.flux(ctx)
	default:
		return fmt.Errorf("growth: is %q, must be set, peak, parts, informer or flux", way)
	}
}

func growthConfig(at string) (*rest.Config, error) {
	if strings.HasPrefix(at, "http://") {
		return &rest.Config{Host: at}, nil
	}
	return clientcmd.BuildConfigFromFlags("", at)
}

// growthCount counts requests: lists and watches, by which a view is kept, and others.
type growthCount struct {
	mu             sync.Mutex
	watches, other int
	deleted        map[string]bool // paths
}

func (c *growthCount) wrap(next http.RoundTripper) http.RoundTripper {
	return growthTrip(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		switch query := r.URL.Query(); {
		case query.Has("watch") || query.Has("limit"):
			c.watches++
		default:
			c.other++
		}
		if r.Method == http.MethodDelete {
			if c.deleted == nil {
				c.deleted = map[string]bool{}
			}
			c.deleted[r.URL.Path] = true
		}
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

type growthTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t growthTrip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// reset returns what was counted and forgets it.
func (c *growthCount) reset() (watches, other int, deleted map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	watches, other, deleted = c.watches, c.other, c.deleted
	c.watches, c.other, c.deleted = 0, 0, nil
	return watches, other, deleted
}

// silent returns an error if a request was sent beside lists and watches.
func (c *growthCount) silent(what string) error {
	if _, other, _ := c.reset(); other > 0 {
		return fmt.Errorf("%s: %d requests, must be none beside lists and watches", what, other)
	}
	return nil
}

// cpuTime is what this process has used, of all its threads: the collector's, too, and what the
// kernel did for it.
func cpuTime() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}

// growthRounds and growthRound are how often something is measured, and for how much CPU time each
// time at least. The last bounds a whole measurement: what takes longer is measured once.
const (
	growthRounds = 7
	growthRound  = 100 * time.Millisecond
	growthMost   = 4 * time.Second
)

// measure adds the CPU time of f as a figure, and profiles it.
func (r *growthRun) measure(figure string, per int, f, rest func() error) error {
	if r.profiles != "" {
		file, err := os.Create(r.profiles + "_" + figure + ".pprof")
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // a profile that is cut off does not open
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	us, err := r.cpu(per, f, rest)
	if err == nil {
		r.book.Add(figure, us, "us")
	}
	return err
}

// cpu returns the CPU time of f for each of per, in microseconds: the median of some rounds. After
// each call of f, rest brings everything back to where it was; it is not measured. Nil: there is
// nothing to do.
func (r *growthRun) cpu(per int, f, rest func() error) (float64, error) {
	return r.cpuOf(per, growthRound, f, rest)
}

// cpuOf is cpu with rounds of at least that much CPU time.
func (r *growthRun) cpuOf(per int, least time.Duration, f, rest func() error) (float64, error) {
	var rounds []float64
	var total time.Duration
	for len(rounds) < growthRounds && total < growthMost {
		runtime.GC()
		var round time.Duration
		calls := 0
		for round < least {
			before, err := cpuTime()
			if err == nil {
				err = f()
			}
			after, failed := cpuTime()
			if err = errors.Join(err, failed); err != nil {
				return 0, err
			}
			round += after - before
			calls++
			if rest != nil {
				if err := rest(); err != nil {
					return 0, err
				}
			}
		}
		total += round
		rounds = append(rounds, benchfigures.Micros(round, per*calls))
	}
	return benchfigures.Percentile(rounds, 0.5), nil
}

// live is a start of a program: a view of the world that is synced.
func (r *growthRun) live(ctx context.Context) (applier *apply.Applier, stop func(), err error) {
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		return nil, nil, err
	}
	mapper, kinds := r.world.mapper()
	live := &apply.Live{Client: client, Mapper: mapper, Owner: r.world.owner(), Kinds: kinds}
	return synced(ctx, live)
}

// unchanged is a pass that must find everything as stated.
func (r *growthRun) unchanged(ctx context.Context, applier *apply.Applier, set *apply.Set) error {
	report, err := applier.Apply(ctx, set)
	if err != nil {
		return err
	}
	if report.Unchanged != set.Len() {
		return fmt.Errorf("%d of %d objects unchanged", report.Unchanged, set.Len())
	}
	return nil
}

// settle passes until everything is as stated: where others deleted, it is made again.
func (r *growthRun) settle(ctx context.Context, applier *apply.Applier, set *apply.Set) error {
	for limit := time.Now().Add(10 * time.Minute); ; {
		report, err := applier.Apply(ctx, set)
		if err == nil && report.Unchanged == set.Len() {
			return nil
		}
		if !pause(ctx, time.Millisecond) || time.Now().After(limit) {
			return fmt.Errorf("%d of %d objects unchanged: %w", report.Unchanged, set.Len(), errors.Join(err, context.Cause(ctx)))
		}
	}
}
