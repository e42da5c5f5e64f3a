package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// LaunchInstance implements [cloud.Machines].
func (f *Fake) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	out, err := f.LaunchInstances(ctx, config, 1)
	if len(out) == 0 {
		return cloud.Instance{}, err
	}
	return out[0], err
}

// LaunchInstances implements [cloud.BatchMachines].
func (f *Fake) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) ([]cloud.Instance, error) {
	var out []cloud.Instance
	err := f.do(ctx, Call{Operation: "LaunchInstance", Token: config.Token}, func(now time.Time) error {
		var err error
		out, err = f.launch(config, count, now)
		return err
	})
	if err != nil && !errors.Is(err, cloud.ErrNoCapacity) && !errors.Is(err, cloud.ErrQuotaExceeded) {
		out = nil // the answer was lost
	}
	return out, err
}

func (f *Fake) launch(config cloud.LaunchConfig, count int, now time.Time) ([]cloud.Instance, error) {
	for _, missing := range []struct{ name, value string }{{"Token", config.Token}, {"ImageID", config.ImageID}, {"InstanceType", config.InstanceType}} {
		if missing.value == "" {
			return nil, fmt.Errorf("%s is required: %w", missing.name, cloud.ErrRejected)
		}
	}
	if count < 1 {
		return nil, fmt.Errorf("count is %d, must be at least 1: %w", count, cloud.ErrRejected)
	}
	zone, ok := f.Zones[config.SubnetID]
	if !ok {
		if len(f.Zones) > 0 {
			return nil, fmt.Errorf("subnet %q does not exist: %w", config.SubnetID, cloud.ErrRejected)
		}
		zone = "zone-a"
	}
	asked := fmt.Sprintf("%d %+v", count, config)
	if earlier, ok := f.tokens[config.Token]; ok && !f.tokenForgotten(earlier, now) {
		if earlier.config != asked {
			return nil, fmt.Errorf("token %s: %w", config.Token, cloud.ErrTokenReused)
		}
		var out []cloud.Instance
		for _, id := range earlier.ids {
			out = append(out, f.machines[id].at(now))
		}
		return out, nil
	}
	place := cloud.Placement{InstanceType: config.InstanceType, Zone: zone}
	var out []cloud.Instance
	var short error
	for range count {
		if short = f.room(place, true, now); short != nil {
			break
		}
		f.last++
		m := &machine{Instance: cloud.Instance{
			ID: fmt.Sprintf(
				"i-fake-%06d",
				f.last,
			),
			LaunchTime:       now,
			InstanceType:     config.InstanceType,
			SubnetID:         config.SubnetID,
			AvailabilityZone: zone,
			PrivateIP: fmt.Sprintf(
				"10.%d.%d.%d",
				f.last>>16&255,
				f.last>>8&255,
				f.last&255,
			),
			PublicIP: fmt.Sprintf("198.51.%d.%d", f.last>>8&255, f.last&255),
		}}
		m.config, m.tags = config, []tagsAt{{now, maps.Clone(config.Tags)}}
		m.become(now, cloud.InstancePending, f.transition(), cloud.InstanceRunning)
		f.machines[m.ID] = m
		f.order = append(f.order, m.ID)
		out = append(out, m.at(now))
	}
	if len(out) > 0 {
		l := launch{config: asked}
		for _, i := range out {
			l.ids = append(l.ids, i.ID)
		}
		f.tokens[config.Token] = l
	}
	return out, short
}

// tokenForgotten reports whether the cloud has forgotten a token with its machines.
func (f *Fake) tokenForgotten(l launch, now time.Time) bool {
	return f.Forgets && !slices.ContainsFunc(l.ids, func(id string) bool { return !f.forgotten(f.machines[id], now) })
}

// room returns an error if a place is full.
func (f *Fake) room(place cloud.Placement, another bool, now time.Time) error {
	alive, powered := 0, 0
	for _, m := range f.machines {
		s := m.state(now)
		if !s.Ending() {
			alive++
		}
		if s.Powered() && m.InstanceType == place.InstanceType && m.AvailabilityZone == place.Zone {
			powered++
		}
	}
	if another && f.Quota > 0 && alive >= f.Quota {
		return fmt.Errorf("%d machines exist: %w", alive, cloud.ErrQuotaExceeded)
	}
	if limit, ok := f.Capacity[place]; ok && powered >= limit {
		return &cloud.CapacityError{InstanceType: place.InstanceType, Zone: place.Zone}
	}
	return nil
}

// TerminateInstance implements [cloud.Machines].
func (f *Fake) TerminateInstance(ctx context.Context, id string) error {
	return f.one(ctx, "TerminateInstance", id, func(now time.Time) error { return f.terminate(id, now) })
}

// TerminateInstances implements [cloud.BatchMachines].
func (f *Fake) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return f.many(ctx, "TerminateInstance", ids, f.terminate)
}

func (f *Fake) terminate(id string, now time.Time) error {
	m, err := f.known(id, now)
	if err == nil && !m.state(now).Ending() {
		m.become(now, cloud.InstanceShuttingDown, f.transition(), cloud.InstanceTerminated)
	}
	return err
}

// StartInstance implements [cloud.PowerControl].
func (f *Fake) StartInstance(ctx context.Context, id string) error {
	return f.one(ctx, "StartInstance", id, func(now time.Time) error { return f.start(id, now) })
}

// StartInstances implements [cloud.BatchPowerControl].
func (f *Fake) StartInstances(ctx context.Context, ids []string) map[string]error {
	return f.many(ctx, "StartInstance", ids, f.start)
}

func (f *Fake) start(id string, now time.Time) error {
	m, err := f.known(id, now)
	if err != nil || m.state(now).Powered() {
		return err
	}
	if s := m.state(now); s != cloud.InstanceStopped {
		return &cloud.InvalidStateError{ID: id, State: s, Operation: "StartInstance"}
	}
	if err := f.room(cloud.Placement{InstanceType: m.InstanceType, Zone: m.AvailabilityZone}, false, now); err != nil {
		return err
	}
	m.become(now, cloud.InstancePending, f.transition(), cloud.InstanceRunning)
	return nil
}

// StopInstance implements [cloud.PowerControl].
func (f *Fake) StopInstance(ctx context.Context, id string, force bool) error {
	return f.one(ctx, "StopInstance", id, func(now time.Time) error { return f.stop(id, "StopInstance", now) })
}

// StopInstances implements [cloud.BatchPowerControl].
func (f *Fake) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return f.many(ctx, "StopInstance", ids, func(id string, now time.Time) error { return f.stop(id, "StopInstance", now) })
}

func (f *Fake) stop(id, operation string, now time.Time) error {
	m, err := f.known(id, now)
	if err != nil {
		return err
	}
	switch s := m.state(now); s {
	case cloud.InstanceStopping, cloud.InstanceStopped:
		return nil
	case cloud.InstanceRunning:
		m.become(now, cloud.InstanceStopping, f.transition(), cloud.InstanceStopped)
		return nil
	default:
		return &cloud.InvalidStateError{ID: id, State: s, Operation: operation}
	}
}

// GetInstanceState implements [cloud.Inventory].
func (f *Fake) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	var out cloud.InstanceState
	err := f.one(ctx, "GetInstanceState", id, func(now time.Time) error {
		m, err := f.known(id, now)
		if err == nil {
			out = m.state(now)
		}
		return err
	})
	return out, err
}

// GetInstance implements [cloud.Inventory].
func (f *Fake) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	var out cloud.Instance
	err := f.one(ctx, "GetInstance", id, func(now time.Time) error {
		m, err := f.known(id, now)
		if err == nil {
			out = m.at(now)
			out.Tags = maps.Clone(out.Tags)
		}
		return err
	})
	return out, err
}

// GetInstances implements [cloud.BatchInventory].
func (f *Fake) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	out := make(map[string]cloud.Instance, len(ids))
	err := f.do(ctx, Call{Operation: "GetInstance", IDs: ids}, func(now time.Time) error {
		for _, id := range ids {
			if m, err := f.known(id, now); err == nil {
				i := m.at(now)
				i.Tags = maps.Clone(i.Tags)
				out[id] = i
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ListInstances implements [cloud.Inventory].
func (f *Fake) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	var out []cloud.Instance
	err := f.do(ctx, Call{Operation: "ListInstances"}, func(now time.Time) error {
		out = nil
		seen := now.Add(-f.ListLag)
		for _, id := range f.order {
			m := f.machines[id]
			if f.forgotten(m, seen) || m.state(seen) == "" {
				continue
			}
			if i := m.at(seen); matches(i.Tags, tags) {
				i.Tags = maps.Clone(i.Tags)
				out = append(out, i)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UpdateInstanceTags implements [cloud.Inventory].
func (f *Fake) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return f.one(ctx, "UpdateInstanceTags", id, func(now time.Time) error { return f.tag(id, tags, now) })
}

// UpdateInstancesTags implements [cloud.BatchInventory].
func (f *Fake) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return f.many(ctx, "UpdateInstanceTags", ids, func(id string, now time.Time) error { return f.tag(id, tags, now) })
}

func (f *Fake) tag(id string, tags map[string]string, now time.Time) error {
	m, err := f.known(id, now)
	if err != nil {
		return err
	}
	merged := maps.Clone(m.tags[len(m.tags)-1].tags)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, tags)
	m.tags = append(m.tags, tagsAt{now, merged})
	return nil
}

func (f *Fake) one(ctx context.Context, operation, id string, do func(now time.Time) error) error {
	return f.do(ctx, Call{Operation: operation, IDs: []string{id}}, do)
}

// many carries out one call for many machines; each has its own error.
func (f *Fake) many(ctx context.Context, operation string, ids []string, do func(id string, now time.Time) error) map[string]error {
	failed := map[string]error{}
	err := f.do(ctx, Call{Operation: operation, IDs: ids}, func(now time.Time) error {
		for _, id := range ids {
			if err := do(id, now); err != nil {
				failed[id] = err
			} else {
				delete(failed, id)
			}
		}
		return nil
	})
	if err != nil {
		for _, id := range ids {
			failed[id] = err
		}
	}
	return failed
}

func matches(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
