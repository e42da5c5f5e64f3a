package pools

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// A Pool is a pool as its last pass has seen it. Once [ScaleUp] has it, it must not change: the
// next pass makes another one. Only Memory is shared by all of them.
type Pool struct {
	// Spec is the pool as it is planned. Required.
	Spec cloud.Pool
	// Nodes is what the Nodes of the pool have. Its Name and UID identify the pool. Required.
	Nodes nodes.Pool
	// Memory is what the process knows of the pool from one pass to the next. Required.
	Memory *cloud.SharedMemory
	// Executor starts the machines of the pool. It may be nil while the pool has none.
	Executor *cloud.Executor
	// Plan is the last plan: it bounds what pods may have launched.
	Plan cloud.Plan
	// Closed is the reason why no machine of the pool is started or launched, and no buffer
	// counts on one. Events of pods have it. Default empty: the pool is open.
	Closed string
	// Barred is a reason beyond Plan why no machine is launched. Default empty: there is none.
	Barred string
	// Weight decides which pool is used first: the one with the higher weight.
	Weight int32
	// DefaultRequests are the assumed requests of a pod that states none. If they are zero, such
	// a pod gets a machine of its own.
	DefaultRequests demand.Resources
	// DaemonSets are the DaemonSets of the cluster: their pods take some of each machine.
	DaemonSets []*appsv1.DaemonSet
	// Machine returns the Node of a machine that is launched from a template, with its labels and
	// taints, without pods. It is required if Spec has templates.
	Machine func(template cloud.Template) demand.Node
	// InstanceType is the type of a machine whose Node has no label with it. It may be empty.
	InstanceType string
	// Allocatable is what a Node of the pool reports, for machines that have not reported it;
	// zero while no Node has. Then Capacity, if it is set, returns what the pods of a machine may
	// use on which as many pods of DaemonSets run.
	Allocatable demand.Resources
	Capacity    func(daemons int) demand.Resources
	// Drifted, if set, reports whether a machine was made from another template than the present
	// ones.
	Drifted func(cloud.Instance) bool
	// Shorten, if set, returns the text of a hold as pods report it. What an error has that is
	// another each time, such as the ID of a request, would be a new reason each time.
	Shorten func(text string) string
	// OnStart, if set, is called after machines were started for pods, or were not, with what
	// became of each. The error joins theirs. It may be called from several goroutines at once.
	OnStart func(ctx context.Context, results []cloud.Result, err error)
}

// Owns reports whether a Node is of the pool.
func (p *Pool) Owns(v *nodes.View) bool { return v.Owned(p.Nodes.Name, p.Nodes.UID) }

// Joining reports whether a machine of the pool may be about to join: one that never had a Node. A pass
// adopts the Node, which names no pool yet.
func (p *Pool) Joining() bool {
	instances, _ := p.Memory.List()
	return slices.ContainsFunc(instances, func(i cloud.Instance) bool { return i.Tags[p.Spec.Scope.Key("node")] == "" })
}

// Supply returns what the pool can add: standby machines, the best first, and launches.
func (p *Pool) Supply(standby []nodes.View, now time.Time) demand.Supply {
	supply := demand.Supply{Pool: p.Nodes.Name, Weight: p.Weight, DefaultRequests: p.DefaultRequests}
	if p.Closed != "" {
		supply.Limit = p.Closed
		return supply
	}
	supply.Coming = p.Plan.Counts.Coming
	if supply.Limit = p.Barred; p.Barred == "" {
		supply.MaxLaunches, supply.Limit = p.Memory.Room(p.Plan, p.Spec, now)
	}
	if p.Shorten != nil {
		supply.Limit = p.Shorten(supply.Limit)
	}
	slices.SortStableFunc(standby, func(a, b nodes.View) int {
		return cmp.Or(rank(b)-rank(a), a.Status.Since.Compare(b.Status.Since))
	})
	for i := range standby {
		node := p.started(&standby[i])
		supply.Standby = append(supply.Standby, &node)
	}
	for _, t := range p.Spec.Templates {
		if !p.Memory.IsBlocked(cloud.Placement{InstanceType: t.InstanceType, Zone: t.Zone}, now) {
			supply.Templates = append(supply.Templates, p.Launched(t))
		}
	}
	return supply
}

// Launched returns a machine that is launched from a template, as the scheduler will see it.
func (p *Pool) Launched(t cloud.Template) demand.NodeTemplate {
	node := p.Machine(t)
	node.Pods = kube.Daemons(&node, p.DaemonSets...)
	node.Allocatable = p.allocatable(len(node.Pods))
	return demand.NodeTemplate{Name: t.Name, Node: node}
}

// started returns a machine as the scheduler will see it once it has started.
func (p *Pool) started(v *nodes.View) demand.Node {
	node := v.Site
	node.Unschedulable = false
	node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), p.Nodes.Passing)
	node.Labels = maps.Clone(node.Labels)
	node.Labels[p.Nodes.Domain.PoolLabel()] = v.Pool
	node.Pods = kube.Daemons(&node, p.DaemonSets...)
	if node.Allocatable.Pods == 0 {
		node.Allocatable = p.allocatable(len(node.Pods))
	}
	node.Pods = append(node.Pods, v.Bound...)
	return node
}

// allocatable returns what pods may use of a machine that has not reported it.
func (p *Pool) allocatable(daemons int) demand.Resources {
	switch {
	case p.Allocatable.Pods > 0:
		return p.Allocatable
	case p.Capacity == nil:
		return demand.Resources{}
	}
	return p.Capacity(daemons)
}

// blocked reports whether the cloud had no capacity for a standby machine a short while ago.
func (p *Pool) blocked(v *nodes.View, now time.Time) bool {
	instanceType := cmp.Or(v.Site.Labels[corev1.LabelInstanceTypeStable], p.InstanceType)
	return p.Memory.IsBlocked(cloud.Placement{InstanceType: instanceType, Zone: v.Zone}, now)
}

// rank orders standby machines: what attested its warm-up first.
func rank(v nodes.View) int {
	switch v.Status.Attestation {
	case cloud.AttestedReady:
		return 2
	case cloud.AttestedPartly:
		return 1
	default:
		return 0
	}
}
