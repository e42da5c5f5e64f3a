package operator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// starting reports whether pods may still count on a machine that was started: it is not
// ready and its time is not over, or it waits for its startup taints to go.
func (s *poolState) starting(v *nodes.View, now time.Time) bool {
	if v.Status.State != cloud.StateRunning {
		return false
	}
	if v.Status.Ready {
		pool := nodesOf(s.pool)
		return slices.ContainsFunc(v.Site.Taints, pool.Passing) && now.Before(v.Status.LastStarted.Add(nodes.StartupTimeout+patience))
	}
	return now.Before(v.ScaleUpStarted.Add(patience))
}

// settling reports whether a machine became ready so short a while ago that the pods which
// it was started for may not be on it yet.
func (s *poolState) settling(v *nodes.View) bool {
	return v.Status.State == cloud.StateRunning && v.Status.Ready && s.op.now().Before(v.Ready.Add(s.startGrace()))
}

// startGrace is how long a machine that was started is given to get its pods, before it
// counts as empty.
func (s *poolState) startGrace() time.Duration { return 2 * s.op.transitionAge }

// site is a machine as the scheduler will see it once it has started.
func (s *poolState) site(v *nodes.View) demand.Node {
	pool, site := nodesOf(s.pool), v.Site
	site.Unschedulable = false
	site.Taints = slices.DeleteFunc(slices.Clone(site.Taints), pool.Passing)
	site.Labels = maps.Clone(site.Labels)
	site.Labels[v1alpha1.LabelPool] = v.Pool
	site.Pods = cloudkube.Daemons(&site, s.sets...)
	if site.Allocatable.Pods == 0 {
		site.Allocatable = s.capacity(len(site.Pods))
	}
	site.Pods = append(site.Pods, v.Bound...)
	return site
}

// supply is what a pool can add: its standby machines, the best first, and launches.
func (s *poolState) supply(standby []nodes.View, now time.Time) demand.Supply {
	supply := demand.Supply{Pool: s.pool.Name, Coming: s.foreseen.Counts.Coming, DefaultRequests: requestsOf(s.pool)}
	supply.MaxLaunches, supply.Limit = s.room(now)
	slices.SortStableFunc(standby, func(a, b nodes.View) int {
		return cmp.Or(rank(b)-rank(a), a.Status.Since.Compare(b.Status.Since))
	})
	for i := range standby {
		site := s.site(&standby[i])
		supply.Standby = append(supply.Standby, &site)
	}
	for _, t := range s.recipe.templates {
		if !s.kept.IsBlocked(cloud.Placement{InstanceType: t.InstanceType, Zone: t.Zone}, now) {
			supply.Templates = append(supply.Templates, demand.NodeTemplate{Name: t.Name, Node: s.fresh(t.Zone)})
		}
	}
	return supply
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

func requestsOf(p *v1alpha1.NodePool) demand.Resources {
	if len(p.Spec.ScaleUp.DefaultPodResources.Requests) == 0 {
		return demand.Resources{}
	}
	pod := cloudkube.Pod(
		&corev1.Pod{
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: p.Spec.ScaleUp.DefaultPodResources.Requests}}},
			},
		},
	)
	return pod.Requests
}
