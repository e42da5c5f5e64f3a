package operator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// virtualProvider is a [virtualCloud] as a program calls it. It implements [cloud.Provider] and
// every batch interface.
type virtualProvider struct {
	cloud *virtualCloud
	net   http.RoundTripper
	// called is called after each call. It may be nil.
	called operator.Called
}

// Provider returns the cloud for a program whose Scenario.Program has received net. called
// is called after each call, if it is set.
func (v *virtualCloud) Provider(net http.RoundTripper, called operator.Called) *virtualProvider {
	return &virtualProvider{v, net, called}
}

// call lets a call take its turn in the world.
func (p *virtualProvider) call(ctx context.Context, c cloudtest.Call, do func() error) error {
	v, name, began := p.cloud, strings.TrimSpace(fmt.Sprintf("cloud %s %s%s", c.Operation, strings.Join(c.IDs, ","), c.Token)), time.Now()
	if v.Hangs == c.Operation {
		<-ctx.Done()
		return ctx.Err()
	}
	var answer error
	err := simtest.Call(ctx, p.net, name, func(w *simtest.World) error {
		dice := w.Dice(name)
		v.Cloud.Transition = time.Second + time.Duration(dice.Int64N(int64(4*time.Second)))
		v.Cloud.ListLag, v.Cloud.Capacity, v.Cloud.Forgets = 0, nil, w.Has(forgetMachines)
		if w.Faulty() {
			v.Cloud.Transition *= 4
		}
		if w.Faulty() && w.Has(listLag) {
			v.Cloud.ListLag = time.Duration(dice.Int64N(int64(30 * time.Second)))
		}
		if w.Lasts(endCapacity) {
			v.Cloud.Capacity = v.full()
		}
		lost, throttled := w.Lasts(loseFromCloud) && dice.IntN(2) == 0, w.Lasts(throttleCloud)
		v.Cloud.Fault = func(cloudtest.Call) cloudtest.Fault {
			switch {
			case v.Away != nil:
				return cloudtest.Fault{Err: v.Away}
			case throttled:
				return cloudtest.Fault{Err: &cloud.RateLimitError{RetryAfter: 5 * time.Second}}
			case lost:
				return cloudtest.Fault{Err: errLost, Lost: dice.IntN(2) == 0}
			}
			return cloudtest.Fault{}
		}
		if v.OnCall != nil && !throttled {
			v.OnCall(w, c)
		}
		answer = do()
		v.after(w)
		return answer
	})
	if p.called != nil {
		p.called("virtual", c.Operation, time.Since(began), err)
	}
	return err
}

// full is no room for a machine more in the first zone.
func (v *virtualCloud) full() map[cloud.Placement]int {
	places := map[cloud.Placement]int{}
	for _, m := range v.machines {
		if m.is.Zone == firstZone {
			places[cloud.Placement{InstanceType: m.is.Type, Zone: m.is.Zone}] = 0
		}
	}
	return places
}

// firstZone is the zone whose capacity ends.
const firstZone = "home-1a"

// each is for calls that answer for each machine.
func (p *virtualProvider) each(ctx context.Context, operation string, ids []string, do func() map[string]error) map[string]error {
	failed := map[string]error{}
	carried := false
	err := p.call(ctx, cloudtest.Call{Operation: operation, IDs: ids}, func() error {
		carried, failed = true, do()
		return errors.Join(slices.Collect(maps.Values(failed))...)
	})
	if err != nil && (!carried || len(failed) == 0) { // it was not carried out, or the program was killed
		failed = map[string]error{}
		for _, id := range ids {
			failed[id] = err
		}
	}
	return failed
}

// answered is call for one that has an answer.
func answered[T any](ctx context.Context, p *virtualProvider, c cloudtest.Call, do func() (T, error)) (answer T, err error) {
	err = p.call(ctx, c, func() (err error) {
		answer, err = do()
		return err
	})
	return answer, err
}

// LaunchInstance implements [cloud.Machines].
func (p *virtualProvider) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	return answered(ctx, p, cloudtest.Call{Operation: "LaunchInstance", Token: config.Token}, func() (cloud.Instance, error) {
		return p.cloud.Cloud.LaunchInstance(ctx, config)
	})
}

// LaunchInstances implements [cloud.BatchMachines].
func (p *virtualProvider) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) ([]cloud.Instance, error) {
	return answered(ctx, p, cloudtest.Call{Operation: "LaunchInstance", Token: config.Token}, func() ([]cloud.Instance, error) {
		return p.cloud.Cloud.LaunchInstances(ctx, config, count)
	})
}

// TerminateInstance implements [cloud.Machines].
func (p *virtualProvider) TerminateInstance(ctx context.Context, id string) error {
	return p.TerminateInstances(ctx, []string{id})[id]
}

// TerminateInstances implements [cloud.BatchMachines].
func (p *virtualProvider) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return p.each(ctx, "TerminateInstance", ids, func() map[string]error { return p.cloud.Cloud.TerminateInstances(ctx, ids) })
}

// StartInstance implements [cloud.PowerControl].
func (p *virtualProvider) StartInstance(ctx context.Context, id string) error {
	return p.StartInstances(ctx, []string{id})[id]
}

// StartInstances implements [cloud.BatchPowerControl].
func (p *virtualProvider) StartInstances(ctx context.Context, ids []string) map[string]error {
	return p.each(ctx, "StartInstance", ids, func() map[string]error { return p.cloud.Cloud.StartInstances(ctx, ids) })
}

// StopInstance implements [cloud.PowerControl].
func (p *virtualProvider) StopInstance(ctx context.Context, id string, force bool) error {
	return p.StopInstances(ctx, []string{id}, force)[id]
}

// StopInstances implements [cloud.BatchPowerControl].
func (p *virtualProvider) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return p.each(ctx, "StopInstance", ids, func() map[string]error { return p.cloud.Cloud.StopInstances(ctx, ids, force) })
}

// GetInstanceState implements [cloud.Inventory].
func (p *virtualProvider) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	return answered(ctx, p, cloudtest.Call{Operation: "GetInstanceState", IDs: []string{id}}, func() (cloud.InstanceState, error) {
		return p.cloud.Cloud.GetInstanceState(ctx, id)
	})
}

// GetInstance implements [cloud.Inventory].
func (p *virtualProvider) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	return answered(ctx, p, cloudtest.Call{Operation: "GetInstance", IDs: []string{id}}, func() (cloud.Instance, error) {
		return p.cloud.Cloud.GetInstance(ctx, id)
	})
}

// GetInstances implements [cloud.BatchInventory].
func (p *virtualProvider) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	return answered(ctx, p, cloudtest.Call{Operation: "GetInstance", IDs: ids}, func() (map[string]cloud.Instance, error) {
		return p.cloud.Cloud.GetInstances(ctx, ids)
	})
}

// ListInstances implements [cloud.Inventory].
func (p *virtualProvider) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	return answered(ctx, p, cloudtest.Call{Operation: "ListInstances"}, func() ([]cloud.Instance, error) {
		return p.cloud.Cloud.ListInstances(ctx, tags)
	})
}

// UpdateInstanceTags implements [cloud.Inventory].
func (p *virtualProvider) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return p.UpdateInstancesTags(ctx, []string{id}, tags)[id]
}

// UpdateInstancesTags implements [cloud.BatchInventory].
func (p *virtualProvider) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return p.each(ctx, "UpdateInstanceTags", ids, func() map[string]error { return p.cloud.Cloud.UpdateInstancesTags(ctx, ids, tags) })
}
