package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// batched returns a provider that does many things with one call, or with one call for each
// if the cloud cannot.
func batched(p cloud.Provider) Provider {
	if b, ok := p.(Provider); ok {
		return b
	}
	return single{p}
}

// single is a provider without calls for many machines.
type single struct{ cloud.Provider }

// LaunchInstances implements [cloud.BatchMachines]. Each machine has a token of its own.
func (s single) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) (out []cloud.Instance, _ error) {
	token := config.Token
	for n := range count {
		config.Token = fmt.Sprintf("%s-%d", token, n)
		i, err := s.LaunchInstance(ctx, config)
		if err != nil {
			return out, err
		}
		out = append(out, i)
	}
	return out, nil
}

// each calls do for each machine, and returns the errors by id.
func each(ids []string, do func(id string) error) map[string]error {
	failed := map[string]error{}
	for _, id := range ids {
		if err := do(id); err != nil {
			failed[id] = err
		}
	}
	return failed
}

// TerminateInstances implements [cloud.BatchMachines].
func (s single) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return each(ids, func(id string) error { return s.TerminateInstance(ctx, id) })
}

// StartInstances implements [cloud.BatchPowerControl].
func (s single) StartInstances(ctx context.Context, ids []string) map[string]error {
	return each(ids, func(id string) error { return s.StartInstance(ctx, id) })
}

// StopInstances implements [cloud.BatchPowerControl].
func (s single) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return each(ids, func(id string) error { return s.StopInstance(ctx, id, force) })
}

// GetInstances implements [cloud.BatchInventory].
func (s single) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	found := map[string]cloud.Instance{}
	for _, id := range ids {
		i, err := s.GetInstance(ctx, id)
		switch {
		case errors.Is(err, cloud.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			found[id] = i
		}
	}
	return found, nil
}

// UpdateInstancesTags implements [cloud.BatchInventory].
func (s single) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return each(ids, func(id string) error { return s.UpdateInstanceTags(ctx, id, tags) })
}
