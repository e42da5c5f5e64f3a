package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
)

// Region is one region of a cloud.
type Region struct {
	// Provider makes machines, many with one call if it can. Required.
	Provider cloud.Provider
	// Resolver turns classes into ids. Required.
	Resolver Resolver
}

// Resolver turns the parts of a class into ids; [aws.Resolver] is one.
type Resolver interface {
	Image(ctx context.Context, class aws.Class) (id, name string, err error)
	Subnets(ctx context.Context, class aws.Class) ([]aws.Subnet, error)
	SecurityGroups(ctx context.Context, class aws.Class) ([]string, error)
	Profiles
}

// Profiles are instance profiles, which may be made for a role.
type Profiles interface {
	InstanceProfile(ctx context.Context, class aws.Class) (string, error)
	DeleteInstanceProfile(ctx context.Context, class aws.Class) error
}

// clouds are the regions that machines are in. Each is opened once, so that its limits on
// requests hold for all pools.
type clouds struct {
	open func(ctx context.Context, region string) (Region, error)
	// homeRegion is the region of classes that name none.
	homeRegion string
	tags       map[string]string

	mu      sync.Mutex
	regions map[string]*region
}

// region is an opened Region with one list of machines for all pools: a pool that looks
// shortly after another gets the same list.
type region struct {
	provider cloud.BatchProvider
	Resolver Resolver
	poller   *cloud.Poller
}

func (c *clouds) home() string { return c.homeRegion }

func (c *clouds) region(ctx context.Context, name string) (*region, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.regions[name]; r != nil {
		return r, nil
	}
	opened, err := c.open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("region %s: %w", name, err)
	}
	r := &region{cloud.Batched(opened.Provider, 0), opened.Resolver, &cloud.Poller{Inventory: opened.Provider, Tags: c.tags}}
	if c.regions == nil {
		c.regions = map[string]*region{}
	}
	c.regions[name] = r
	return r, nil
}

// list returns the machines of a pool in a region, from a list that is at most age old, and
// when that was begun.
func (c *clouds) list(ctx context.Context, name string, scope cloud.Scope, age time.Duration) ([]cloud.Instance, time.Time, error) {
	r, err := c.region(ctx, name)
	if err != nil {
		return nil, time.Time{}, err
	}
	return r.poller.List(ctx, scope, age)
}

// provider returns one provider of all the regions, which launches into the home region.
// of says which region a machine is in.
func (c *clouds) provider(ctx context.Context, names []string, home string, of func(id string) string) (cloud.BatchProvider, error) {
	s := several{home: home, of: of, regions: map[string]cloud.BatchProvider{}}
	for _, name := range names {
		r, err := c.region(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(names) == 1 {
			return r.provider, nil
		}
		s.regions[name] = r.provider
	}
	return s, nil
}

// several is a provider for machines in several regions: the machines of a pool whose class
// has changed its region.
type several struct {
	home    string
	of      func(id string) string
	regions map[string]cloud.BatchProvider
}

// in returns the provider of a region.
func (s several) in(region string) (cloud.BatchProvider, error) {
	if p := s.regions[region]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("region %q is not one of the pool: %w", region, cloud.ErrRejected)
}

// LaunchInstance implements [cloud.Machines].
func (s several) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	p, err := s.in(s.home)
	if err != nil {
		return cloud.Instance{}, err
	}
	return p.LaunchInstance(ctx, config)
}

// LaunchInstances implements [cloud.BatchMachines].
func (s several) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) ([]cloud.Instance, error) {
	p, err := s.in(s.home)
	if err != nil {
		return nil, err
	}
	return p.LaunchInstances(ctx, config, count)
}

// each calls do for the machines of each region, and joins what it returns.
func (s several) each(ids []string, do func(p cloud.BatchProvider, ids []string) map[string]error) map[string]error {
	failed, groups := map[string]error{}, map[string][]string{}
	for _, id := range ids {
		groups[s.of(id)] = append(groups[s.of(id)], id)
	}
	for _, region := range slices.Sorted(maps.Keys(groups)) {
		p, err := s.in(region)
		if err == nil {
			maps.Copy(failed, do(p, groups[region]))
			continue
		}
		for _, id := range groups[region] {
			failed[id] = err
		}
	}
	return failed
}

// TerminateInstance implements [cloud.Machines].
func (s several) TerminateInstance(ctx context.Context, id string) error {
	return s.TerminateInstances(ctx, []string{id})[id]
}

// TerminateInstances implements [cloud.BatchMachines].
func (s several) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return s.each(ids, func(p cloud.BatchProvider, ids []string) map[string]error { return p.TerminateInstances(ctx, ids) })
}

// StartInstance implements [cloud.PowerControl].
func (s several) StartInstance(ctx context.Context, id string) error {
	return s.StartInstances(ctx, []string{id})[id]
}

// StartInstances implements [cloud.BatchPowerControl].
func (s several) StartInstances(ctx context.Context, ids []string) map[string]error {
	return s.each(ids, func(p cloud.BatchProvider, ids []string) map[string]error { return p.StartInstances(ctx, ids) })
}

// StopInstance implements [cloud.PowerControl].
func (s several) StopInstance(ctx context.Context, id string, force bool) error {
	return s.StopInstances(ctx, []string{id}, force)[id]
}

// StopInstances implements [cloud.BatchPowerControl].
func (s several) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return s.each(ids, func(p cloud.BatchProvider, ids []string) map[string]error { return p.StopInstances(ctx, ids, force) })
}

// GetInstanceState implements [cloud.Inventory].
func (s several) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	i, err := s.GetInstance(ctx, id)
	return i.State, err
}

// GetInstance implements [cloud.Inventory].
func (s several) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	p, err := s.in(s.of(id))
	if err != nil {
		return cloud.Instance{}, err
	}
	return p.GetInstance(ctx, id)
}

// GetInstances implements [cloud.BatchInventory].
func (s several) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	all := map[string]cloud.Instance{}
	failed := s.each(ids, func(p cloud.BatchProvider, ids []string) map[string]error {
		found, err := p.GetInstances(ctx, ids)
		maps.Copy(all, found)
		if err == nil {
			return nil
		}
		return map[string]error{ids[0]: err}
	})
	for _, err := range failed {
		return nil, err
	}
	return all, nil
}

// ListInstances implements [cloud.Inventory].
func (s several) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	var all []cloud.Instance
	for _, name := range slices.Sorted(maps.Keys(s.regions)) {
		found, err := s.regions[name].ListInstances(ctx, tags)
		if err != nil {
			return nil, fmt.Errorf("region %s: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// UpdateInstanceTags implements [cloud.Inventory].
func (s several) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return s.UpdateInstancesTags(ctx, []string{id}, tags)[id]
}

// UpdateInstancesTags implements [cloud.BatchInventory].
func (s several) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return s.each(ids, func(p cloud.BatchProvider, ids []string) map[string]error {
		return p.UpdateInstancesTags(ctx, ids, tags)
	})
}
