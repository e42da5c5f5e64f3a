package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// steps is a provider whose errors name the operation and the machine. An answer that no provider
// may give, such as an unknown state, is an error.
type steps struct{ provider cloud.Provider }

var states = []cloud.InstanceState{ //nolint:gochecknoglobals // a table
	cloud.InstancePending, cloud.InstanceRunning, cloud.InstanceStopping, cloud.InstanceStopped,
	cloud.InstanceShuttingDown, cloud.InstanceTerminated, cloud.InstanceUnknown,
}

func step(operation, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, id, err)
}

// sane returns an error if no cloud may say this of a machine.
func sane(i cloud.Instance) error {
	if i.ID == "" {
		return errors.New("a machine without an id")
	}
	if !slices.Contains(states, i.State) {
		return fmt.Errorf("%s has the state %q; a state that cannot be translated is %q", i.ID, i.State, cloud.InstanceUnknown)
	}
	return nil
}

// LaunchInstance implements [cloud.Machines].
func (s steps) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	i, err := s.provider.LaunchInstance(ctx, config)
	if err == nil {
		err = sane(i)
	}
	return i, step("LaunchInstance", config.Token, err)
}

// TerminateInstance implements [cloud.Machines].
func (s steps) TerminateInstance(ctx context.Context, id string) error {
	return step("TerminateInstance", id, s.provider.TerminateInstance(ctx, id))
}

// StartInstance implements [cloud.PowerControl].
func (s steps) StartInstance(ctx context.Context, id string) error {
	return step("StartInstance", id, s.provider.StartInstance(ctx, id))
}

// StopInstance implements [cloud.PowerControl].
func (s steps) StopInstance(ctx context.Context, id string, force bool) error {
	return step("StopInstance", id, s.provider.StopInstance(ctx, id, force))
}

// GetInstanceState implements [cloud.Inventory].
func (s steps) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	state, err := s.provider.GetInstanceState(ctx, id)
	if err == nil {
		err = sane(cloud.Instance{ID: id, State: state})
	}
	return state, step("GetInstanceState", id, err)
}

// GetInstance implements [cloud.Inventory].
func (s steps) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	i, err := s.provider.GetInstance(ctx, id)
	if err == nil {
		err = sane(i)
	}
	if err == nil && i.ID != id {
		err = fmt.Errorf("the answer is of machine %s", i.ID)
	}
	return i, step("GetInstance", id, err)
}

// ListInstances implements [cloud.Inventory].
func (s steps) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	found, err := s.provider.ListInstances(ctx, tags)
	seen := map[string]bool{}
	for _, i := range found {
		if err == nil {
			err = errors.Join(sane(i), carries(i, tags))
		}
		if err == nil && seen[i.ID] {
			err = fmt.Errorf("%s is in the list twice", i.ID)
		}
		seen[i.ID] = true
	}
	return found, step("ListInstances", "", err)
}

// UpdateInstanceTags implements [cloud.Inventory].
func (s steps) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return step("UpdateInstanceTags", id, s.provider.UpdateInstanceTags(ctx, id, tags))
}
