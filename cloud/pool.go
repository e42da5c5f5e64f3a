//trueup:pure

package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// A Pool is the desired state of a pool of machines. Its zero value is a pool of
// no machines. It is a value: the same Pool may be used by any number of
// goroutines.
type Pool struct {
	// Scope identifies the machines of the pool. Required.
	Scope Scope

	// Size is how many machines the pool may have, whatever their state.
	Size int

	// MinStandby is how many stopped machines are kept ready. At most Size.
	MinStandby int

	// Templates are the ways to launch a machine, best first. Without one nothing is
	// launched.
	Templates []Template

	// WarmupTimeout is the time from launch to the first stop. Default 10m.
	WarmupTimeout time.Duration

	// TerminateLate terminates a machine that is over WarmupTimeout. Without it
	// the machine is stopped by force, and kept as a last-choice standby machine if it
	// ever joined the cluster.
	TerminateLate bool

	// ControllerStop makes the pool stop a machine that is ready. Without it
	// machines stop themselves at the end of their warm-up.
	ControllerStop bool

	// BestEffortImages lets a machine count as standby that could not pull
	// every image.
	BestEffortImages bool

	// KeepEmpty turns off scale-down: an empty machine keeps running.
	KeepEmpty bool

	// EmptyTTL is how long a machine stays empty before it is stopped. Default
	// 5m.
	EmptyTTL time.Duration

	// DrainTimeout bounds a drain. Default 5m. A drain that has not ended by
	// then is given up, and tried again 10m later, if the machine was on its way
	// to standby.
	DrainTimeout time.Duration

	// MaxRuntime is how long a machine may run before it is drained and stopped. 0 means
	// for ever.
	MaxRuntime time.Duration

	// ConsolidateAfter is for how long the pods of a machine must have been there, and have
	// fitted on other Nodes, as [Want].Vacate says, before it is drained and stopped. 0 means
	// never. None is while the Node of another running machine of the pool is not ready, and for
	// 10m after a drain that was given up.
	ConsolidateAfter time.Duration

	// Disruptions is how many machines may be on their way to standby at a time because of
	// MaxRuntime and ConsolidateAfter. Default 1. Less than 0 means that no drain
	// begins now; drains that have begun go on.
	Disruptions int

	// SurplusTTL is how long standby machines above MinStandby are kept. 0 means
	// for ever.
	SurplusTTL time.Duration

	// StopTimeout is how long a stop may take before the power is cut; after
	// three times that the machine is terminated. Default 5m.
	StopTimeout time.Duration

	// StartTimeout is how long a started machine may take to become ready before
	// it is terminated. Default 10m; 2m for a machine that never attested its
	// warm-up, or this value if it is less.
	StartTimeout time.Duration

	// UnreadyTimeout is how long the Node of a running machine that was ready
	// may be not ready before the machine is drained and terminated. Default
	// 15m. At most Budget of the running machines are drained for that in an hour: if
	// many lose readiness together, the machines are rarely the cause. A machine whose
	// Node is ready again before it is terminated keeps running.
	UnreadyTimeout time.Duration

	// Budget is how many machines may be missing from a list at once, as a
	// share of the pool. Above it the list is not trusted; see [Hold]. It is
	// also the share of the running machines that may be drained in an hour
	// because they lost readiness. Default 0.1, and never less than one machine.
	Budget float64

	// Deleting drains and terminates every machine of the pool.
	Deleting bool
}

// A Template is one way to launch a machine: a type in a zone.
type Template struct {
	// Name identifies the template in plans and intents, such as a subnet id.
	// Required.
	Name string
	// InstanceType and Zone are what a [CapacityError] names.
	InstanceType, Zone string
	// Hash identifies the LaunchConfig. A recorded launch is repeated only while
	// it is the same.
	Hash string
}

// Times and limits that the caller cannot choose.
const (
	unattestedTimeout = 2 * time.Minute
	capacityBlock     = 5 * time.Minute  // of a type in a zone
	tokenLifetime     = time.Hour        // a cloud remembers a launch token for at least that long
	drainRetry        = 10 * time.Minute // from a drain that was given up to the next one
	budgetWindow      = time.Hour        // in which each budget may be spent once
	failuresInRow     = 3                // of warm-ups, before launches back off
	minLaunchBackoff  = time.Minute
	maxLaunchBackoff  = 30 * time.Minute
)

// Validate returns an error for each invalid field, joined.
func (p Pool) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("cloud: Pool."+format, args...)) }
	if err := p.Scope.Validate(); err != nil {
		errs = append(errs, err)
	}
	if p.Size < 0 {
		wrong("Size: is %d, must be at least 0", p.Size)
	}
	if p.MinStandby < 0 || p.MinStandby > p.Size {
		wrong("MinStandby: is %d, must be from 0 to Size (%d)", p.MinStandby, p.Size)
	}
	if p.Budget < 0 || p.Budget > 1 {
		wrong("Budget: is %v, must be from 0 to 1", p.Budget)
	}
	names := map[string]bool{}
	for i, t := range p.Templates {
		if t.Name == "" {
			wrong("Templates[%d].Name: is required", i)
		} else if names[t.Name] {
			wrong("Templates[%d].Name: is %q, must be unique", i, t.Name)
		}
		names[t.Name] = true
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"WarmupTimeout", p.WarmupTimeout},
		{"EmptyTTL", p.EmptyTTL},
		{"DrainTimeout", p.DrainTimeout},
		{"MaxRuntime", p.MaxRuntime},
		{"ConsolidateAfter", p.ConsolidateAfter},
		{"SurplusTTL", p.SurplusTTL},
		{"StopTimeout", p.StopTimeout},
		{"StartTimeout", p.StartTimeout},
		{"UnreadyTimeout", p.UnreadyTimeout},
	} {
		if d.value < 0 {
			wrong("%s: is %s, must not be negative", d.name, d.value)
		}
	}
	return errors.Join(errs...)
}

// absenceAge is how far apart two complete lists must be that both lack a machine, before it
// counts as deleted.
const absenceAge = time.Minute

// withDefaults returns the pool with every default in place.
func (p Pool) withDefaults() Pool {
	p.WarmupTimeout = cmp.Or(p.WarmupTimeout, 10*time.Minute)
	p.EmptyTTL = cmp.Or(p.EmptyTTL, 5*time.Minute)
	p.DrainTimeout = cmp.Or(p.DrainTimeout, 5*time.Minute)
	p.StopTimeout = cmp.Or(p.StopTimeout, 5*time.Minute)
	p.StartTimeout = cmp.Or(p.StartTimeout, 10*time.Minute)
	p.UnreadyTimeout = cmp.Or(p.UnreadyTimeout, 15*time.Minute)
	p.Budget = cmp.Or(p.Budget, 0.1)
	p.Disruptions = cmp.Or(p.Disruptions, 1)
	return p
}

// budget is how many of the machines may, at once, be missing, be forgotten, or be
// drained because they lost readiness.
func (p Pool) budget(machines int) int { return max(1, int(p.Budget*float64(machines))) }

func (p Pool) template(name string) (Template, bool) {
	for _, t := range p.Templates {
		if t.Name == name {
			return t, true
		}
	}
	return Template{}, false
}
