package cloud

import (
	"context"
	"sync"
	"time"
)

// A Poller lists the machines of a whole cluster periodically, and serves each of its
// pools from that list: any number of pools costs the cloud one list a period. It must
// not be copied after its first use, and is safe for concurrent use.
type Poller struct {
	// Inventory is the inventory to list. Required.
	Inventory Inventory

	// Tags select the machines of the cluster; see [Scope.ClusterTags]. Required.
	Tags map[string]string

	mu sync.Mutex
	// turn is held by the caller that lists.
	turn      sync.Mutex
	instances []Instance
	listed    time.Time
}

// List returns the machines of the scope from a list that was requested at most maxAge
// ago, and the time of the request. Callers that need a newer one share a call. After
// an error it returns no machines, even if there is an older list.
func (p *Poller) List(ctx context.Context, scope Scope, maxAge time.Duration) (instances []Instance, listed time.Time, err error) {
	wanted := time.Now().Add(-maxAge)
	all, listed := p.last()
	if listed.IsZero() || listed.Before(wanted) {
		if all, listed, err = p.refresh(ctx, wanted); err != nil {
			return nil, time.Time{}, err
		}
	}
	for _, i := range all {
		if scope.Owns(i) {
			instances = append(instances, i)
		}
	}
	return instances, listed, nil
}

func (p *Poller) last() ([]Instance, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.instances, p.listed
}

// refresh lists, unless another caller has done so in the meantime.
func (p *Poller) refresh(ctx context.Context, wanted time.Time) ([]Instance, time.Time, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if all, listed := p.last(); !listed.IsZero() && !listed.Before(wanted) {
		return all, listed, nil
	}
	now := time.Now()
	all, err := p.Inventory.ListInstances(ctx, p.Tags)
	if err != nil {
		return nil, time.Time{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances, p.listed = all, now
	return all, now, nil
}
