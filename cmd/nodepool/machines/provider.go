package machines

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Provider is a [Virtual] cloud as a program calls it. It implements [cloud.Provider] and
// every batch interface.
type Provider struct {
	cloud *Virtual
	net   http.RoundTripper
	// called is called after each call. It may be nil.
	called func(provider, operation string, took time.Duration, err error)
}

// Provider returns the cloud for a program whose Scenario.Program has received net. called
// is called after each call, if it is set.
func (v *Virtual) Provider(net http.RoundTripper, called func(provider, operation string, took time.Duration, err error)) *Provider {
	return &Provider{v, net, called}
}

// errLost is the error of a call whose answer was lost.
var errLost = errors.New("machines: the answer was lost")

// call lets a call take its turn in the world.
func (p *Provider) call(ctx context.Context, c cloudtest.Call, do func() error) error {
	v, name, began := p.cloud, strings.TrimSpace(fmt.Sprintf("cloud %s %s%s", c.Operation, strings.Join(c.IDs, ","), c.Token)), time.Now()
	var answer error
	err := simtest.Call(ctx, p.net, name, func(w *simtest.World) error {
		dice := w.Dice(name)
		v.Cloud.Transition = time.Second + time.Duration(dice.Int64N(int64(4*time.Second)))
		v.Cloud.ListLag, v.Cloud.Capacity, v.Cloud.Forgets = 0, nil, w.Has(ForgetMachines)
		if w.Faulty() {
			v.Cloud.Transition *= 4
		}
		if w.Faulty() && w.Has(ListLag) {
			v.Cloud.ListLag = time.Duration(dice.Int64N(int64(30 * time.Second)))
		}
		if w.Lasts(EndCapacity) {
			v.Cloud.Capacity = v.full(c)
		}
		lost, throttled := w.Lasts(LoseFromCloud) && dice.IntN(2) == 0, w.Lasts(ThrottleCloud)
		v.Cloud.Fault = func(cloudtest.Call) cloudtest.Fault {
			switch {
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
func (v *Virtual) full(cloudtest.Call) map[cloud.Placement]int {
	places := map[cloud.Placement]int{}
	for _, m := range v.machines {
		if m.Zone == firstZone {
			places[cloud.Placement{InstanceType: m.Type, Zone: m.Zone}] = 0
		}
	}
	return places
}

// firstZone is the zone whose capacity ends.
const firstZone = "home-1a"

// each is for calls that answer for each machine.
func (p *Provider) each(ctx context.Context, operation string, ids []string, do func() map[string]error) map[string]error {
	failed := map[string]error{}
	carried := false
	err := p.call(ctx, cloudtest.Call{Operation: operation, IDs: ids}, func() error {
		carried, failed = true, do()
		return errors.Join(mapped(failed)...)
	})
	if err != nil && (!carried || len(failed) == 0) { // it was not carried out, or the program was killed
		failed = map[string]error{}
		for _, id := range ids {
			failed[id] = err
		}
	}
	return failed
}

func mapped(failed map[string]error) []error {
	var all []error
	for _, err := range failed {
		all = append(all, err)
	}
	return all
}

// LaunchInstance implements [cloud.Machines].
func (p *Provider) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (i cloud.Instance, err error) {
	err = p.call(ctx, cloudtest.Call{Operation: "LaunchInstance", Token: config.Token}, func() (err error) {
		i, err = p.cloud.Cloud.LaunchInstance(ctx, config)
		return err
	})
	return i, err
}

// LaunchInstances implements [cloud.BatchMachines].
func (p *Provider) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) (out []cloud.Instance, err error) {
	err = p.call(ctx, cloudtest.Call{Operation: "LaunchInstance", Token: config.Token}, func() (err error) {
		out, err = p.cloud.Cloud.LaunchInstances(ctx, config, count)
		return err
	})
	return out, err
}

// TerminateInstance implements [cloud.Machines].
func (p *Provider) TerminateInstance(ctx context.Context, id string) error {
	return p.TerminateInstances(ctx, []string{id})[id]
}

// TerminateInstances implements [cloud.BatchMachines].
func (p *Provider) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return p.each(ctx, "TerminateInstance", ids, func() map[string]error { return p.cloud.Cloud.TerminateInstances(ctx, ids) })
}

// StartInstance implements [cloud.PowerControl].
func (p *Provider) StartInstance(ctx context.Context, id string) error {
	return p.StartInstances(ctx, []string{id})[id]
}

// StartInstances implements [cloud.BatchPowerControl].
func (p *Provider) StartInstances(ctx context.Context, ids []string) map[string]error {
	return p.each(ctx, "StartInstance", ids, func() map[string]error { return p.cloud.Cloud.StartInstances(ctx, ids) })
}

// StopInstance implements [cloud.PowerControl].
func (p *Provider) StopInstance(ctx context.Context, id string, force bool) error {
	return p.StopInstances(ctx, []string{id}, force)[id]
}

// StopInstances implements [cloud.BatchPowerControl].
func (p *Provider) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return p.each(ctx, "StopInstance", ids, func() map[string]error { return p.cloud.Cloud.StopInstances(ctx, ids, force) })
}

// GetInstanceState implements [cloud.Inventory].
func (p *Provider) GetInstanceState(ctx context.Context, id string) (state cloud.InstanceState, err error) {
	err = p.call(ctx, cloudtest.Call{Operation: "GetInstanceState", IDs: []string{id}}, func() (err error) {
		state, err = p.cloud.Cloud.GetInstanceState(ctx, id)
		return err
	})
	return state, err
}

// GetInstance implements [cloud.Inventory].
func (p *Provider) GetInstance(ctx context.Context, id string) (i cloud.Instance, err error) {
	err = p.call(ctx, cloudtest.Call{Operation: "GetInstance", IDs: []string{id}}, func() (err error) {
		i, err = p.cloud.Cloud.GetInstance(ctx, id)
		return err
	})
	return i, err
}

// GetInstances implements [cloud.BatchInventory].
func (p *Provider) GetInstances(ctx context.Context, ids []string) (out map[string]cloud.Instance, err error) {
	err = p.call(ctx, cloudtest.Call{Operation: "GetInstance", IDs: ids}, func() (err error) {
		out, err = p.cloud.Cloud.GetInstances(ctx, ids)
		return err
	})
	return out, err
}

// ListInstances implements [cloud.Inventory].
func (p *Provider) ListInstances(ctx context.Context, tags map[string]string) (out []cloud.Instance, err error) {
	err = p.call(ctx, cloudtest.Call{Operation: "ListInstances"}, func() (err error) {
		out, err = p.cloud.Cloud.ListInstances(ctx, tags)
		return err
	})
	return out, err
}

// UpdateInstanceTags implements [cloud.Inventory].
func (p *Provider) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return p.UpdateInstancesTags(ctx, []string{id}, tags)[id]
}

// UpdateInstancesTags implements [cloud.BatchInventory].
func (p *Provider) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return p.each(ctx, "UpdateInstanceTags", ids, func() map[string]error { return p.cloud.Cloud.UpdateInstancesTags(ctx, ids, tags) })
}
