package replay

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/capacity"
)

// Settings are what a trace is replayed against.
type Settings struct {
	// Pool is the pool. Its Scope and Templates are not used.
	Pool cloud.Pool
	// DefaultRequests are what a pod without requests is taken to need. Zero: a machine of
	// its own.
	DefaultRequests demand.Resources
	// Interval is the time between two passes if nothing happens. Default 30s.
	Interval time.Duration
	// InstanceType decides what a machine has room for, unless Capacity does. Of an unknown
	// type a machine takes one pod, whatever that needs.
	InstanceType string
	// Capacity is what pods may use of a machine. Its Pods is 0 if InstanceType decides.
	Capacity demand.Resources
	// Boot is the time from a start to a ready Node. Default 20s.
	Boot time.Duration
	// Warmup is the time from a launch to a machine on standby. Default 3m.
	Warmup time.Duration
	// Stop is the time that a machine takes to stop. Default 30s.
	Stop time.Duration
	// Price is what an hour of a running machine costs, PriceStopped an hour of a stopped
	// one: its volume. Both are 0 if costs are of no interest.
	Price, PriceStopped float64
}

// startTimeout is the default of [cloud.Pool.StartTimeout], warmupTimeout that of
// WarmupTimeout.
const (
	startTimeout  = 10 * time.Minute
	warmupTimeout = 10 * time.Minute
)

// Validate returns an error for each field that no trace can be replayed against, joined.
func (s Settings) Validate() error {
	s = s.withDefaults()
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := s.Pool.Validate(); err != nil {
		errs = append(errs, err)
	}
	if s.Pool.Size < 1 {
		wrong("pool size: is %d, must be at least 1", s.Pool.Size)
	}
	for _, d := range []struct {
		name       string
		value, max time.Duration
	}{
		{"interval", s.Interval, time.Hour},
		{"boot", s.Boot, cmp.Or(s.Pool.StartTimeout, startTimeout) - 1},
		{"warmup", s.Warmup, cmp.Or(s.Pool.WarmupTimeout, warmupTimeout) - 1},
		{"stop", s.Stop, time.Hour},
	} {
		if d.value < time.Second || d.value > d.max {
			wrong(
				"%s: is %s, must be at least 1s and at most %s: a machine that takes longer is given up",
				d.name,
				d.value,
				d.max.Truncate(time.Second),
			)
		}
	}
	if d := s.Pool.MaxRuntime; d > 0 && d < 2*s.Boot {
		wrong("maximum runtime: is %s, must be at least twice the boot (%s): pods would hardly run", d, s.Boot)
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"price", s.Price}, {"price of a stopped machine", s.PriceStopped}} {
		if !(p.value >= 0 && p.value <= 1e6) {
			wrong("%s: is %v, must be from 0 to 1000000", p.name, p.value)
		}
	}
	return errors.Join(errs...)
}

// withDefaults returns the settings with every default in place.
func (s Settings) withDefaults() Settings {
	s.Interval = cmp.Or(s.Interval, 30*time.Second)
	s.Boot = cmp.Or(s.Boot, 20*time.Second)
	s.Warmup = cmp.Or(s.Warmup, 3*time.Minute)
	s.Stop = cmp.Or(s.Stop, 30*time.Second)
	if s.Capacity.Pods == 0 {
		s.Capacity = capacity.Of(s.InstanceType, 0, nil)
	}
	s.Pool.Scope = cloud.Scope{Domain: "stratos.sh", Cluster: "replay", Pool: poolName, PoolUID: "replay"}
	s.Pool.Templates = []cloud.Template{{Name: templateName, InstanceType: s.InstanceType, Zone: "zone"}}
	return s
}

const (
	poolName     = "pool"
	templateName = "template"
)

// Replay replays the pods, which are in the order of their arrival, against the settings.
func (s Settings) Replay(pods []Pod) (Result, error) {
	if err := s.Validate(); err != nil {
		return Result{}, err
	}
	sim, err := newSimulation(s.withDefaults(), pods)
	if err != nil {
		return Result{}, err
	}
	return sim.run()
}

// Sweep replays the pods once for each number of standby machines.
func (s Settings) Sweep(pods []Pod, standby []int) ([]Result, error) {
	var all []Result
	for _, n := range standby {
		s.Pool.MinStandby = n
		r, err := s.Replay(pods)
		if err != nil {
			return nil, fmt.Errorf("minStandby %d: %w", n, err)
		}
		all = append(all, r)
	}
	return all, nil
}
