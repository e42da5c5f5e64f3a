package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/buffer"
)

// plans looks at the buffers whenever something has changed.
func (b *buffers) plans(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-timer.C:
		}
		after := replanBuffers
		if errors.Join(b.read(), b.op.viewed(), b.poolsRead()) != nil {
			after = betweenPlans // objects not seen yet would be missing in the plan
		} else {
			b.plan(ctx)
		}
		timer.Reset(after)
		pause := time.NewTimer(betweenPlans)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// read returns an error until each buffer was listed and taken in.
func (b *buffers) read() error {
	if ok, err := b.objects.Synced(); !ok {
		return errors.Join(errors.New("the CapacityBuffers are not seen yet"), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.objects.Keys("") {
		if _, ok := b.asked[key]; !ok {
			return fmt.Errorf("CapacityBuffer %s is not read yet", key)
		}
	}
	return nil
}

// preview decides once, where nothing is written. It returns why the buffers are not known
// in time.
func (b *buffers) preview(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	read := func() error {
		if ok, err := b.definitions.Synced(); !ok {
			return errors.Join(errors.New("whether the cluster has CapacityBuffers is not known yet"), err)
		}
		if b.known() == nil {
			return nil
		}
		return b.read()
	}
	if b.op.until(ctx, read) != nil {
		return read()
	}
	b.plan(ctx)
	return nil
}

// text says what the buffers take, a line for each.
func (b *buffers) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(b.asked), byName) {
		switch ask, o := b.asked[key], b.outcomes[key]; {
		case ask.err != nil:
			fmt.Fprintf(&lines, "buffer %s: %s\n", key, ask.err)
		case ask.Pod != nil:
			lines.WriteString(o.String() + "\n")
		}
	}
	return lines.String()
}

// passed takes in that a pool was looked at.
func (b *buffers) passed(was, is *poolState) {
	b.mu.Lock()
	known := b.pooled[is.pool.UID]
	b.pooled[is.pool.UID] = true
	b.mu.Unlock()
	if !known || was == nil || was.pool.UID != is.pool.UID || was.pool.Generation != is.pool.Generation || was.recipe.hash != is.recipe.hash ||
		len(was.recipe.templates) != len(is.recipe.templates) {
		b.Wake()
	}
}

// cover reports whether it is known what of a pool the buffers take.
func (b *buffers) cover(pool types.UID) bool {
	if b.known() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.served || b.planned[pool]
}

// holdSurplus keeps all standby machines while it is not known which of them the buffers
// take.
func (s *poolState) holdSurplus() {
	if !s.op.buffers.cover(s.pool.UID) {
		s.machines.Spec.SurplusTTL = 0
	}
}

// forget drops the state of a deleted pool.
func (b *buffers) forget(pool types.UID) {
	b.mu.Lock()
	delete(b.pooled, pool)
	b.mu.Unlock()
	b.Wake()
}

// poolsRead returns an error until each pool was looked at: what it has would be missing in
// the plan.
func (b *buffers) poolsRead() error {
	if ok, err := b.op.pools.Synced(); !ok {
		return errors.Join(errors.New("the pools are not seen yet"), err)
	}
	for _, key := range b.op.pools.Keys("") {
		p, err := b.op.pools.Get(key)
		if err != nil {
			continue // deleted
		}
		b.mu.Lock()
		known := b.pooled[p.UID]
		b.mu.Unlock()
		if !known && p.DeletionTimestamp == nil {
			return fmt.Errorf("pool %s is not looked at yet", p.Name)
		}
	}
	return nil
}

// plan decides which standby machines the buffers take.
func (b *buffers) plan(ctx context.Context) {
	b.mu.Lock()
	asked := maps.Clone(b.asked)
	b.mu.Unlock()
	pools := b.op.open()
	in := b.input(asked, pools)
	planned := make(map[types.UID]bool, len(pools))
	for _, s := range pools {
		planned[s.pool.UID] = true
	}
	result := buffer.Plan(in)
	outcomes := make(map[types.NamespacedName]bufferOutcome, len(in.Buffers))
	for _, o := range result.Outcomes {
		outcomes[o.Key] = bufferOutcome{ask: asked[o.Key], Outcome: o}
	}
	var changed []types.NamespacedName
	b.mu.Lock()
	for key, o := range outcomes {
		if was, ok := b.outcomes[key]; !ok || !sameOutcome(was, o) {
			changed = append(changed, key)
		}
	}
	b.outcomes, b.planned = outcomes, planned
	b.mu.Unlock()
	b.keep(result.Standby)
	if ctx.Err() == nil {
		b.objects.Add(changed...)
	}
}

// keep passes on how many standby machines of which pools are kept.
func (b *buffers) keep(standby map[string]map[string]int) {
	b.mu.Lock()
	before := b.standby
	b.standby = standby
	b.mu.Unlock()
	for _, all := range []map[string]map[string]int{before, standby} {
		for pool := range all {
			if !maps.Equal(before[pool], standby[pool]) {
				b.op.pools.Add(poolKey(pool))
			}
		}
	}
}

// standbyOf is how many standby machines of a pool are kept for buffers, by template.
func (b *buffers) standbyOf(pool string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standby[pool]
}

func sameOutcome(a, b bufferOutcome) bool {
	return a.ask.Units == b.ask.Units && a.ask.generation == b.ask.generation && a.String() == b.String()
}

// input is the cluster as the buffers are planned on.
func (b *buffers) input(asked map[types.NamespacedName]bufferAsk, pools map[string]*poolState) buffer.Input {
	in := buffer.Input{}
	for _, key := range slices.SortedFunc(maps.Keys(asked), byName) {
		if ask := asked[key]; ask.Pod != nil && ask.err == nil {
			in.Buffers = append(in.Buffers, ask.Asked)
		}
	}
	if len(in.Buffers) == 0 {
		return in
	}
	now := b.op.now()
	starting := b.op.demand.InFlight()
	ready := map[string]bool{}
	in.Ready = func(machine string) bool { return ready[machine] }
	others := buffer.ByNodes(in.Buffers)
	stock, used := map[string][]nodes.View{}, map[string]int{}
	b.op.cluster.Read(func(c nodes.Snapshot) {
		in.Namespaces = c.Namespaces()
		for v := range c.Nodes() {
			pool := pools[v.Pool]
			owned := pool != nil && pool.machines.Owns(&v)
			if owned {
				used[v.Pool]++
			}
			switch {
			case v.Deleting:
			case owned && v.Status.State == cloud.StateWarmup:
				stock[v.Pool] = append(stock[v.Pool], v)
			case owned && v.Status.State == cloud.StateStandby:
				if pool.good(&v) && !starting[v.Status.ID] {
					ready[v.Status.ID] = true
					stock[v.Pool] = append(stock[v.Pool], v)
				}
			case others && (v.Pool == "" || v.Status.State == cloud.StateRunning):
				site := v.Site
				site.Pods = c.PodsOn(v.Status.Name)
				in.Nodes = append(in.Nodes, &site)
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		s := pools[name]
		// Those on standby before those that warm up.
		slices.SortStableFunc(stock[name], func(x, y nodes.View) int { return cmp.Compare(x.Status.State, y.Status.State) })
		p := buffer.Pool{Supply: s.machines.Supply(stock[name], now)}
		p.MaxLaunches, p.Coming = max(0, int(s.pool.Spec.PoolSize)-used[name]), 0 // those that warm up are stock
		for _, t := range s.recipe.templates {
			p.Every = append(p.Every, s.machines.Launched(t))
		}
		in.Pools = append(in.Pools, p)
	}
	return in
}

// good reports whether a standby machine counts for what the pool keeps.
func (s *poolState) good(v *nodes.View) bool {
	if i, ok := s.kept.Instance(v.Status.ID); ok && s.drifted(i) {
		return false
	}
	return v.Status.Attestation == cloud.AttestedReady || v.Status.Attestation == cloud.AttestedPartly && s.machines.Spec.BestEffortImages
}

func byName(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
