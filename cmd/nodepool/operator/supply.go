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
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// starting reports whether pods may still count on a machine that was started: it is not
// ready and its time is not over, or it waits for its startup taints to go.
func (s *poolState) starting(v *nodeView, now time.Time) bool {
	if v.status.State != cloud.StateRunning {
		return false
	}
	if v.status.Ready {
		closed := slices.ContainsFunc(v.site.Taints, func(t demand.Taint) bool { return passing(s.pool, t) })
		return closed && now.Before(v.status.LastStarted.Add(startupTimeout+patience))
	}
	return now.Before(v.scaleUpStarted.Add(patience))
}

// settling reports whether a machine became ready so short a while ago that the pods which
// it was started for may not be on it yet.
func (s *poolState) settling(v *nodeView) bool {
	return v.status.State == cloud.StateRunning && v.status.Ready && s.op.now().Before(v.ready.Add(s.startGrace()))
}

// startGrace is how long a machine that was started is given to get its pods, before it
// counts as empty.
func (s *poolState) startGrace() time.Duration { return 2 * s.op.transitionAge }

// site is a machine as the scheduler will see it once it has started.
func (s *poolState) site(v *nodeView) demand.Node {
	site := v.site
	site.Unschedulable = false
	site.Taints = slices.DeleteFunc(slices.Clone(site.Taints), func(t demand.Taint) bool { return passing(s.pool, t) })
	site.Labels = maps.Clone(site.Labels)
	site.Labels[v1alpha1.LabelPool] = v.pool
	site.Pods = cloudkube.Daemons(&site, s.sets...)
	if site.Allocatable.Pods == 0 {
		site.Allocatable = s.capacity(len(site.Pods))
	}
	site.Pods = append(site.Pods, v.bound...)
	return site
}

// passing reports whether a taint disappears by itself once a machine has started: startup
// taints do, and taints that the cluster puts on a Node that is not up. The taints of the
// template stay.
func passing(pool *v1alpha1.NodePool, t demand.Taint) bool {
	taint := corev1.Taint{Key: t.Key, Effect: corev1.TaintEffect(t.Effect)}
	return t.Key == v1alpha1.TaintStandby || hasTaint(startupTaints(pool), taint) || t.Passing() && !hasTaint(templateTaints(pool), taint)
}

// supply is what a pool can add: its standby machines, the best first, and launches.
func (s *poolState) supply(standby []nodeView, now time.Time) demand.Supply {
	supply := demand.Supply{Pool: s.pool.Name, Coming: s.foreseen.Counts.Coming, DefaultRequests: requestsOf(s.pool)}
	supply.MaxLaunches, supply.Limit = s.room(now)
	slices.SortStableFunc(standby, func(a, b nodeView) int {
		return cmp.Or(rank(b)-rank(a), a.status.Since.Compare(b.status.Since))
	})
	for i := range standby {
		site := s.site(&standby[i])
		supply.Standby = append(supply.Standby, &site)
	}
	for _, t := range s.recipe.templates {
		if !s.blocked(cloud.Placement{InstanceType: t.InstanceType, Zone: t.Zone}, now) {
			supply.Templates = append(supply.Templates, demand.NodeTemplate{Name: t.Name, Node: s.fresh(t.Zone)})
		}
	}
	return supply
}

// rank orders standby machines: what attested its warm-up first.
func rank(v nodeView) int {
	switch v.status.Attestation {
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
