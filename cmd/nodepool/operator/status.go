package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func timeNow(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// report writes the status of the pool, if it has changed, and its gauges.
func (p *poolPass) report(ctx context.Context) error {
	known := p.listErr == nil && p.state.machines.Executor != nil
	if known {
		p.state.op.metrics.pool(
			p.state.name(),
			p.state.machines.Spec,
			p.state.machines.Plan.Counts,
			p.pass.Views,
			p.state.op.want(p.state),
			func(v *nodes.View) bool { return p.state.op.demand.Starting(&p.state.machines, v) },
		)
	}
	before := p.state.pool.Status
	wasDegraded := meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionDegraded)
	conditions := p.conditions()
	assignments := p.state.op.assignments(p.state.pool.Name)
	now := timeNow(p.state.op.now())
	err := p.state.op.status.Update(ctx, p.state.pool, func(o *v1alpha1.NodePool) {
		was := copyOf(o).Status
		s := &o.Status
		if known {
			c := p.state.machines.Plan.Counts
			s.Warmup, s.Standby = int32(c.Warmup), int32(c.Standby) //nolint:gosec // at most some thousands
			s.Running, s.Total = int32(c.Running), int32(c.Total)   //nolint:gosec // the same
			s.Regions = p.keptRegions(s.Regions)
			s.Machines = withoutNodes(p.state.machines.Plan)
		}
		s.PodAssignments, s.Repairs = assignments, p.repairs(s.Repairs)
		for _, c := range conditions {
			meta.SetStatusCondition(&s.Conditions, c)
		}
		// The time says when something was new: a pool at rest is not written.
		if !sameStatus(&was, s) || o.Status.ObservedGeneration != o.Generation {
			s.LastReconcileTime = &now
		}
	})
	if err != nil {
		return err
	}
	degraded := meta.FindStatusCondition(conditions, v1alpha1.ConditionDegraded)
	if degraded.Status == metav1.ConditionTrue && !wasDegraded {
		reason := degraded.Reason
		p.state.op.events.pool(p.state.pool, kube.EventWarning, reason, degraded.Message)
	}
	return nil
}

func sameStatus(a, b *v1alpha1.NodePoolStatus) bool {
	return a.Warmup == b.Warmup && a.Standby == b.Standby && a.Running == b.Running && a.Total == b.Total &&
		slices.Equal(a.Regions, b.Regions) && slices.EqualFunc(a.Machines, b.Machines, sameMachine) &&
		sameRepairs(a.Repairs, b.Repairs) && slices.Equal(a.PodAssignments, b.PodAssignments) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
		})
}

// mostMachines is how many machines the status has at most.
const mostMachines = 50

// withoutNodes are the machines of a plan that have no Node, by id.
func withoutNodes(plan cloud.Plan) (all []v1alpha1.Machine) {
	for _, m := range plan.Machines {
		if m.Joined || m.Instance == cloud.InstanceTerminated || len(all) == mostMachines {
			continue
		}
		machine := v1alpha1.Machine{
			ID: m.ID, State: string(m.State), CloudState: string(m.Instance), Zone: m.Zone, Node: m.Node, Reason: m.Reason,
		}
		if !m.LaunchTime.IsZero() {
			at := timeNow(m.LaunchTime)
			machine.LaunchTime = &at
		}
		all = append(all, machine)
	}
	return all
}

func sameMachine(a, b v1alpha1.Machine) bool {
	sameTime := a.LaunchTime.Equal(b.LaunchTime)
	a.LaunchTime, b.LaunchTime = nil, nil
	return sameTime && a == b
}

// repairs returns what the status records of drains for lost readiness, which a process that
// takes over counts on.
func (p *poolPass) repairs(recorded *v1alpha1.Repairs) *v1alpha1.Repairs {
	memory := p.state.machines.Plan.Memory
	switch {
	case p.state.machines.Executor == nil:
		return recorded
	case memory.Repairs == 0:
		return nil
	default:
		return &v1alpha1.Repairs{
			Since: metav1.NewTime(memory.Repaired.Truncate(time.Second)),
			Count: int32(memory.Repairs),
		} //nolint:gosec // a budget
	}
}

func sameRepairs(a, b *v1alpha1.Repairs) bool {
	return a == b || a != nil && b != nil && a.Count == b.Count && a.Since.Equal(&b.Since)
}

// recorded reports whether a status says where the machines are that are launched now.
func (p *poolPass) recorded(s *v1alpha1.NodePoolStatus) bool {
	return slices.Contains(s.Regions, p.state.region) && s.ClusterName == p.state.machines.Spec.Scope.Cluster
}

// recordRegion writes the region of the class to the status, and the name of the cluster.
func (p *poolPass) recordRegion(ctx context.Context) error {
	err := p.state.op.status.Update(ctx, p.state.pool, func(o *v1alpha1.NodePool) {
		o.Status.ClusterName = p.state.machines.Spec.Scope.Cluster
		if !slices.Contains(o.Status.Regions, p.state.region) {
			o.Status.Regions = append(slices.Clone(o.Status.Regions), p.state.region)
		}
	})
	if err != nil {
		return err
	}
	if !p.recorded(&p.state.pool.Status) {
		return errors.New("the pool has changed meanwhile")
	}
	p.state.kept.journal.Open(p.state.pool)
	return nil
}

// keptRegions leaves out a region that the class names no more and that has no machine of
// the pool. All are kept while a Node is in a zone of which the region is not known.
func (p *poolPass) keptRegions(regions []string) []string {
	counts := p.state.machines.Plan.Counts
	if p.state.region == "" || len(p.state.pool.Status.Launches) > 0 || counts.Launching > 0 || counts.Missing > 0 {
		return regions
	}
	instances, _ := p.state.kept.List()
	used := map[string]bool{p.state.region: true}
	for _, i := range instances {
		if i.State != cloud.InstanceTerminated {
			used[p.state.kept.region(i.ID)] = true
		}
	}
	for _, v := range p.pass.Views {
		region := regionOf(v.Zone, regions)
		if region == "" {
			return regions
		}
		used[region] = true
	}
	return slices.DeleteFunc(slices.Clone(regions), func(region string) bool { return !used[region] })
}

// conditions returns the conditions of the pool after the pass.
func (p *poolPass) conditions() []metav1.Condition {
	degraded := condition(v1alpha1.ConditionDegraded, false, "AsExpected", "nothing holds the pool back")
	if reason, message := p.trouble(); reason != "" {
		degraded = condition(v1alpha1.ConditionDegraded, true, reason, message)
	}
	standby := fmt.Sprintf(
		"%d standby machines are ready, at least %d are wanted", p.state.machines.Plan.Counts.Ready, p.state.machines.Spec.MinStandby,
	)
	ready := condition(v1alpha1.ConditionReady, true, "PoolReady", standby)
	switch {
	case degraded.Status == metav1.ConditionTrue:
		ready = condition(v1alpha1.ConditionReady, false, "Degraded", degraded.Message)
	case p.state.machines.Plan.Counts.Ready < p.state.machines.Spec.MinStandby:
		ready = condition(v1alpha1.ConditionReady, false, "InsufficientStandby", standby)
	}
	prePull := condition(
		v1alpha1.ConditionImagePrePullSupported,
		true,
		"Supported",
		cmp.Or(p.state.recipe.warning, "machines pull images before their first stop"),
	)
	if p.state.recipe.class != nil && p.state.recipe.class.Spec.BootstrapTemplate == v1alpha1.Bottlerocket {
		prePull = condition(v1alpha1.ConditionImagePrePullSupported, false, "NotSupported", "Bottlerocket runs no script")
	}
	conditions := []metav1.Condition{
		degraded,
		ready,
		prePull,
		p.progress(
			v1alpha1.ConditionScaleUpInProgress,
			"machines are starting for pods",
			func(v *nodes.View) bool { return p.state.op.demand.Starting(&p.state.machines, v) },
		),
		p.progress(
			v1alpha1.ConditionScaleDownInProgress,
			"machines are emptied or stopped",
			func(v *nodes.View) bool { return v.Status.State == cloud.StateTerminating },
		),
	}
	switch {
	case p.leftAlone():
		unknown := condition(v1alpha1.ConditionFull, false, p.problem.reason, p.problem.message)
		unknown.Status = metav1.ConditionUnknown
		conditions = append(conditions, unknown)
	case p.listErr == nil && p.state.machines.Executor != nil: // else it is not known, and stays as it was
		conditions = append(conditions, p.full())
	}
	return conditions
}

// full is whether every machine that the pool may have is in use, or cannot be started.
func (p *poolPass) full() metav1.Condition {
	if full := p.state.machines.Plan.Full(p.state.machines.Spec); full != "" {
		return condition(
			v1alpha1.ConditionFull, true, string(cloud.HoldPoolFull), full+": pods that need one more wait, or go to another pool",
		)
	}
	if barred := p.state.machines.Barred; barred != "" && p.state.machines.Plan.Counts.Startable == 0 {
		return condition(v1alpha1.ConditionFull, false, p.problem.reason, "no machine is on standby, and none is launched: "+barred)
	}
	return condition(v1alpha1.ConditionFull, false, "RoomLeft", "a machine can be started or launched")
}

// trouble is what holds the pool back; no reason: nothing does.
func (p *poolPass) trouble() (reason, message string) {
	switch {
	case p.listErr != nil && !p.leftAlone():
		return "CloudProviderError", p.listErr.Error()
	case p.problem.reason != "":
		return p.problem.reason, p.problem.message
	}
	for _, b := range p.state.machines.Plan.Holds {
		if b.Kind != cloud.HoldLaunchUnproven && b.Kind != cloud.HoldPoolFull {
			return string(b.Kind), b.Message
		}
	}
	return "", ""
}

func condition(kind string, holds bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: short(message)}
}

// progress is a condition that is true while any Node is on its way.
func (p *poolPass) progress(kind, message string, underWay func(*nodes.View) bool) metav1.Condition {
	for i := range p.pass.Views {
		if v, ok := p.state.op.cluster.Node(p.pass.Views[i].Status.Name); ok && underWay(&v) {
			return condition(kind, true, "InProgress", message)
		}
	}
	return condition(kind, false, "AtRest", "none")
}

// short returns a message on one line, as long as it may be in a condition, and the same
// each time that the same happens: a status with another would be written with each attempt.
func short(message string) string {
	message = aws.Steady(strings.ReplaceAll(message, "\n", "; "))
	const most = 1024
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most-3], "") + "..."
	}
	return message
}

// assignments are the pods that machines of a pool were started for.
func (o *operator) assignments(pool string) []v1alpha1.PodAssignment {
	var out []v1alpha1.PodAssignment
	for _, a := range o.demand.Assignments(pool) {
		out = append(out, v1alpha1.PodAssignment{
			PodName: a.Pod.Name, PodNamespace: a.Pod.Namespace, PodUID: a.Pod.UID, NodeName: a.Node, AssignedAt: timeNow(a.At),
		})
	}
	return out
}
