package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Preview says what an Operator would do now, and does nothing.
type Preview struct {
	// Operator is the one that would work. Its Lease and its addresses are not used.
	Operator Operator
	// Pool is the one pool that is shown. Empty: all.
	Pool string
	// Prices are what an hour of a running machine costs, by type.
	Prices map[string]float64
}

// previewLimit bounds how long everything may take to be read.
const previewLimit = time.Minute

// Write writes the plan of each pool with its reasons, what pods fit nowhere, what
// CapacityBuffers take, and what an hour costs before and after.
func (p *Preview) Write(ctx context.Context, out io.Writer) error {
	if p.Operator.Namespace == "" {
		p.Operator.Alone = true
	}
	if err := p.Operator.validate(); err != nil {
		return err
	}
	o, err := newOperator(kubeaccess.As("stratos-plan", p.Operator.Kubernetes), p.Operator, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	o.dry, o.buffers.Dry, o.demand.OnUnplaced = true, true, nil
	ctx, cancel := context.WithTimeout(ctx, previewLimit)
	defer cancel()
	done := make(chan error, 1)
	watching, stop := context.WithCancel(ctx)
	go func() {
		group := reconcile.Group{Members: append(o.watches(), reconcile.Member{Name: "pools", Starter: &o.pools})}
		done <- group.Start(watching)
	}()
	err = p.write(ctx, o, out)
	stop()
	return errors.Join(err, <-done)
}

func (p *Preview) write(ctx context.Context, o *operator, out io.Writer) error {
	if err := o.until(ctx, o.seen); err != nil {
		return fmt.Errorf("read the cluster: %w", errors.Join(err, o.seen()))
	}
	// Who may not read claims or budgets gets a plan, too, which says what is missing.
	claims, cancel := context.WithTimeout(ctx, 5*time.Second)
	_ = o.storageSeen(claims)
	_ = o.budgetsSeen(claims)
	cancel()
	pools, err := o.pools.List("")
	if err != nil {
		return err
	}
	if p.Pool != "" && !slices.ContainsFunc(pools, func(o *v1alpha1.NodePool) bool { return o.Name == p.Pool }) {
		return fmt.Errorf("NodePool %q does not exist; there are %s", p.Pool, names(pools))
	}
	var failed error // the cloud of a pool, which does not hold back the others
	passes, seen := map[string]*poolPass{}, map[string]cloud.Observed{}
	for _, pool := range pools {
		pass := o.newPass(pool)
		passes[pool.Name] = pass
		seen[pool.Name] = pass.look(ctx)
		if pass.state.machines.Executor == nil {
			failed = errors.Join(failed, pass.listErr)
		}
		pass.state.machines.Plan = pass.state.machines.Spec.Plan(seen[pool.Name], cloud.Want{}, o.now())
		pass.publish()
	}
	if err := p.unpriced(passes, seen); err != nil {
		return errors.Join(failed, err)
	}
	result := o.demand.Decide()
	waiting, cancel := context.WithTimeout(ctx, 10*time.Second)
	taken, unread := o.buffers.Preview(waiting)
	cancel()
	var b strings.Builder
	for _, pool := range pools {
		if p.Pool != "" && pool.Name != p.Pool {
			continue
		}
		want := cloud.Want{}
		if i := slices.IndexFunc(result.Pools, func(d demand.PoolDemand) bool { return d.Pool == pool.Name }); i >= 0 {
			want = result.Pools[i].Want()
		}
		pass := passes[pool.Name]
		want.Standby, _ = o.buffers.Standby(&pass.state.machines)
		o.holdSurplus(pass.state)
		fmt.Fprintf(&b, "pool %s\n", pool.Name)
		if pass.problem.reason != "" {
			fmt.Fprintf(&b, "%s: %s\n", pass.problem.reason, pass.problem.message)
		}
		if pass.leftAlone() {
			b.WriteString("it is left alone: no machine is launched, started, stopped or terminated, and none is counted for pods and buffers\n")
		}
		if pass.state.machines.Executor != nil {
			plan := pass.state.machines.Spec.Plan(seen[pool.Name], want, o.now())
			b.WriteString(plan.String())
			for _, m := range plan.Machines {
				b.WriteString("machine " + m.String() + "\n")
			}
			b.WriteString(explain(&pass.state.machines, o.demand.Consolidate(&pass.state.machines)))
			p.cost(&b, seen[pool.Name].Instances, plan)
		}
		b.WriteByte('\n')
	}
	for _, u := range result.Unplaced {
		fmt.Fprintf(&b, "pod %s/%s fits nowhere:", u.Pod.Namespace, u.Pod.Name)
		for _, r := range u.Reasons {
			fmt.Fprintf(&b, " pool %s %s;", r.Pool, r.Message)
		}
		b.WriteByte('\n')
	}
	for _, u := range result.Unmodelled {
		fmt.Fprintf(&b, "pod %s/%s starts nothing: %s\n", u.Namespace, u.Name, strings.Join(u.Unmodelled, "; "))
	}
	b.WriteString(taken)
	if unread != nil {
		fmt.Fprintf(&b, "the CapacityBuffers are not known, no surplus is terminated: %v\n", unread)
	}
	_, err = io.WriteString(out, b.String())
	return errors.Join(failed, err)
}

func names(pools []*v1alpha1.NodePool) string {
	if len(pools) == 0 {
		return "none"
	}
	all := make([]string, 0, len(pools))
	for _, o := range pools {
		all = append(all, o.Name)
	}
	return strings.Join(all, ", ")
}

// unpriced returns an error for each price of a type that no pool launches and no machine has. There is none
// while the type of a pool is not known.
func (p *Preview) unpriced(passes map[string]*poolPass, seen map[string]cloud.Observed) error {
	used := map[string]bool{}
	for name, pass := range passes {
		if pass.state.machines.InstanceType == "" {
			return nil
		}
		used[pass.state.machines.InstanceType] = true
		for _, i := range seen[name].Instances {
			used[i.InstanceType] = true
		}
	}
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(p.Prices)) {
		if !used[kind] {
			errs = append(errs, fmt.Errorf(
				"--price: the type %s is of no pool, must be one of %s", kind, strings.Join(slices.Sorted(maps.Keys(used)), ", "),
			))
		}
	}
	return errors.Join(errs...)
}

// cost says what an hour of the running machines costs, and of those that run after the
// plan.
func (p *Preview) cost(b *strings.Builder, instances []cloud.Instance, plan cloud.Plan) {
	running, unknown := map[string]int{}, map[string]bool{}
	for _, i := range instances {
		if i.State.Powered() {
			running[i.InstanceType]++
		}
	}
	sum := func(prefix string) {
		total, machines := 0.0, 0
		for kind, n := range running {
			price, ok := p.Prices[kind]
			if !ok && n > 0 {
				unknown[kind] = true
			}
			machines += n
			total += price * float64(n)
		}
		fmt.Fprintf(b, "%s: %d machines run", prefix, machines)
		if len(p.Prices) > 0 {
			fmt.Fprintf(b, ", %.4f an hour", total)
		}
		b.WriteByte('\n')
	}
	sum("now")
	for _, a := range plan.Actions {
		kind := a.Placement.InstanceType
		switch a.Verb {
		case cloud.Launch:
			running[kind] += a.Count
		case cloud.Start:
			running[kind]++
		case cloud.Stop, cloud.ForceStop:
			running[kind]--
		case cloud.Terminate:
			if a.Seen.Powered() {
				running[kind]--
			}
		default:
		}
	}
	sum("after the plan")
	for kind := range unknown {
		if len(p.Prices) > 0 {
			fmt.Fprintf(b, "the price of %s is not known: --price %s=PRICE\n", kind, kind)
		}
	}
}
