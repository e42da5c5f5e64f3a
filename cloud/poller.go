package cloud

import (
	"context"
	"errors"
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

	mu        sync.Mutex // never held during a call
	listing   *listing   // the list under way; nil if there is none
	instances []Instance
	listed    time.Time
}

// listing is a list that callers wait for.
type listing struct {
	ended chan struct{} // closed at its end
	err   error         // of all who wait, set before
}

// listLimit bounds a list: every pool waits for it.
const listLimit = 2 * time.Minute

// List returns the machines of the scope from a list that was requested at most maxAge
// ago, and the time of the request. Callers that need a newer one share a call and its error. After
// an error it returns no machines, even if there is an older list. A list that takes longer than
// two minutes is given up.
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

// refresh lists, unless another caller has done so in the meantime. It waits for another
// caller's list until ctx ends.
func (p *Poller) refresh(ctx context.Context, wanted time.Time) ([]Instance, time.Time, error) {
	for {
		p.mu.Lock()
		if !p.listed.IsZero() && !p.listed.Before(wanted) {
			defer p.mu.Unlock()
			return p.instances, p.listed, nil
		}
		if p.listing == nil {
			p.listing = &listing{ended: make(chan struct{})}
			p.mu.Unlock()
			break
		}
		under := p.listing
		p.mu.Unlock()
		select {
		case <-under.ended:
			if under.err != nil {
				return nil, time.Time{}, under.err
			}
		case <-ctx.Done():
			return nil, time.Time{}, ctx.Err()
		}
	}
	var all []Instance
	now, err := time.Now(), errNoList // unless it returns
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case err == nil:
			p.instances, p.listed = all, now
		case ctx.Err() == nil: // else it says nothing to the others
			p.listing.err = err
		}
		close(p.listing.ended)
		p.listing = nil
	}()
	limited, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	if all, err = p.Inventory.ListInstances(limited, p.Tags); err != nil {
		return nil, time.Time{}, err
	}
	return all, now, nil
}

// errNoList is what those get who wait for a list that panics.
var errNoList = errors.New("cloud: the list of machines has panicked")
