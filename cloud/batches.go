package cloud

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-9e1ffd66/trueup/internal/parallel"
)

// BatchProvider is a [Provider] with every batch interface.
type BatchProvider interface {
	Provider
	BatchMachines
	BatchPowerControl
	BatchInventory
}

// Batched returns p with every batch interface: for those that it lacks it makes a call for each
// machine, some at a time, limit at most; less than 1 means 16. A launch of several machines is
// one after the other, each with a token of its own, derived from the token of the launch.
func Batched(p Provider, limit int) BatchProvider {
	if all, ok := p.(BatchProvider); ok {
		return all
	}
	if limit < 1 {
		limit = 16
	}
	s := singles{p, limit}
	b := batches{p, s, s, s}
	if own, ok := p.(BatchMachines); ok {
		b.BatchMachines = own
	}
	if own, ok := p.(BatchPowerControl); ok {
		b.BatchPowerControl = own
	}
	if own, ok := p.(BatchInventory); ok {
		b.BatchInventory = own
	}
	return b
}

type batches struct {
	Provider
	BatchMachines
	BatchPowerControl
	BatchInventory
}

// singles makes a call for each machine.
type singles struct {
	provider Provider
	limit    int
}

// each calls do for each machine, and returns the errors by id.
func (s singles) each(ids []string, do func(id string) error) map[string]error {
	errs, failed := make([]error, len(ids)), map[string]error{}
	parallel.Each(len(ids), s.limit, func(i int) { errs[i] = do(ids[i]) })
	for i, err := range errs {
		if err != nil {
			failed[ids[i]] = err
		}
	}
	return failed
}

// LaunchInstances implements [BatchMachines].
func (s singles) LaunchInstances(ctx context.Context, config LaunchConfig, count int) ([]Instance, error) {
	token := config.Token
	var out []Instance
	for n := range count {
		config.Token = fmt.Sprintf("%s-%d", token, n)
		i, err := s.provider.LaunchInstance(ctx, config)
		if err != nil {
			return out, err
		}
		out = append(out, i)
	}
	return out, nil
}

// TerminateInstances implements [BatchMachines].
func (s singles) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return s.each(ids, func(id string) error { return s.provider.TerminateInstance(ctx, id) })
}

// StartInstances implements [BatchPowerControl].
func (s singles) StartInstances(ctx context.Context, ids []string) map[string]error {
	return s.each(ids, func(id string) error { return s.provider.StartInstance(ctx, id) })
}

// StopInstances implements [BatchPowerControl].
func (s singles) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return s.each(ids, func(id string) error { return s.provider.StopInstance(ctx, id, force) })
}

// GetInstances implements [BatchInventory]. After an error the machines that were read are
// returned with it.
func (s singles) GetInstances(ctx context.Context, ids []string) (map[string]Instance, error) {
	var mu sync.Mutex
	found := make(map[string]Instance, len(ids))
	failed := s.each(ids, func(id string) error {
		i, err := s.provider.GetInstance(ctx, id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			found[i.ID] = i
		}
		return err
	})
	errs := make([]error, 0, len(failed))
	for _, err := range failed {
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}

// UpdateInstancesTags implements [BatchInventory].
func (s singles) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return s.each(ids, func(id string) error { return s.provider.UpdateInstanceTags(ctx, id, tags) })
}
