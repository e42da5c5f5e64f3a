package kube

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// Unschedulable reports whether the scheduler has tried to place p and found no
// node, and p is still waiting for one.
func Unschedulable(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodPending && p.Status.Phase != "" {
		return false
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// Pod converts p. Where its claims can be attached is not known without [Volumes]: each is a
// line of Unmodelled.
func Pod(p *corev1.Pod) demand.Pod {
	pod := PodWithoutClaims(p)
	for _, c := range Claims(p) {
		pod.Unmodelled = append(pod.Unmodelled, fmt.Sprintf("claim %s: where it can be attached is not known", c.Name))
	}
	return pod
}

// PodWithoutClaims converts p as if it had no claims. Give the result and [Claims] of p to
// [Volumes.Attach].
func PodWithoutClaims(p *corev1.Pod) demand.Pod {
	pod := demand.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Labels: maps.Clone(p.Labels), Requests: requests(p),
		NodeSelector: maps.Clone(p.Spec.NodeSelector),
		HostPorts:    hostPorts(&p.Spec),
		Nominated:    p.Status.NominatedNodeName,
		Terminating:  p.DeletionTimestamp != nil,
		Unmodelled:   unmodelled(&p.Spec),
	}
	if p.Spec.Priority != nil {
		pod.Priority = *p.Spec.Priority
	}
	refused := func(what string, err error) {
		pod.Unmodelled = append(pod.Unmodelled, what+": "+err.Error())
	}
	if a := p.Spec.Affinity; a != nil {
		if a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			pod.NodeAffinity = nodeTerms(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		}
		var err error
		if a.PodAffinity != nil {
			if pod.Affinity, err = podTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
				refused("pod affinity", err)
			}
		}
		if a.PodAntiAffinity != nil {
			if pod.AntiAffinity, err = podTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution); err != nil {
				refused("pod anti-affinity", err)
			}
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		spread, err := spread(c, p.Labels)
		if err != nil {
			refused("topology spread over "+c.TopologyKey, err)
		}
		pod.Spread = append(pod.Spread, spread)
	}
	for _, t := range p.Spec.Tolerations {
		switch t.Operator {
		case "", corev1.TolerationOpEqual, corev1.TolerationOpExists:
			pod.Tolerations = append(pod.Tolerations, toleration(t))
		default:
			// Leaving out a toleration is safe: it could only admit the pod to more
			// nodes.
			refused("toleration of "+t.Key, fmt.Errorf("operator %s is not known", t.Operator))
		}
	}
	return pod
}

func toleration(t corev1.Toleration) demand.Toleration {
	return demand.Toleration{Key: t.Key, Exists: t.Operator == corev1.TolerationOpExists, Value: t.Value, Effect: string(t.Effect)}
}

// requests returns the requests of a pod. A pod with a node may have been resized in
// place, and is computed differently from a pending one.
func requests(p *corev1.Pod) demand.Resources {
	placed := p.Spec.NodeName != ""
	return Resources(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{
		UseStatusResources: placed, InPlacePodLevelResourcesVerticalScalingEnabled: placed,
	}))
}

// Resources converts a list of quantities: CPU to thousandths of a core, others to whole units.
func Resources(list corev1.ResourceList) (r demand.Resources) {
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU:
			r.CPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = value(quantity)
		case corev1.ResourceEphemeralStorage:
			r.EphemeralStorage = value(quantity)
		case corev1.ResourcePods:
			r.Pods = value(quantity)
		default:
			if r.Extended == nil {
				r.Extended = map[string]int64{}
			}
			r.Extended[string(name)] = value(quantity)
		}
	}
	return r
}

func value(q resource.Quantity) int64 { return q.Value() }

func hostPorts(spec *corev1.PodSpec) (all []demand.HostPort) {
	add := func(c *corev1.Container) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				all = append(all, demand.HostPort{IP: port.HostIP, Protocol: string(port.Protocol), Port: port.HostPort})
			}
		}
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	return all
}

// unmodelled returns the parts of spec that affect scheduling and that a [demand.Pod]
// does not have.
func unmodelled(spec *corev1.PodSpec) (all []string) {
	for _, gate := range spec.SchedulingGates {
		all = append(all, fmt.Sprintf("scheduling gate %s: the scheduler does not look at the pod", gate.Name))
	}
	for _, claim := range spec.ResourceClaims {
		all = append(all, fmt.Sprintf("resource claim %s: which nodes have the device is not known", claim.Name))
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		switch {
		case v.AWSElasticBlockStore != nil, v.GCEPersistentDisk != nil, v.AzureDisk != nil, v.Cinder != nil, v.ISCSI != nil, v.RBD != nil:
			all = append(all, fmt.Sprintf("volume %s: where its disk can be attached is not known", v.Name))
		}
	}
	return all
}

func podTerms(terms []corev1.PodAffinityTerm) ([]demand.PodTerm, error) {
	all := make([]demand.PodTerm, 0, len(terms))
	for i := range terms {
		t := &terms[i]
		// The API server has merged matchLabelKeys and mismatchLabelKeys into
		// the selector.
		pods, err := selector(t.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("label selector of term %d: %w", i, err)
		}
		term := demand.PodTerm{TopologyKey: t.TopologyKey, Selector: pods, Namespaces: slices.Clone(t.Namespaces)}
		if term.NamespaceSelector, err = selector(t.NamespaceSelector); err != nil {
			return nil, fmt.Errorf("namespace selector of term %d: %w", i, err)
		}
		all = append(all, term)
	}
	return all, nil
}

func spread(c *corev1.TopologySpreadConstraint, labels map[string]string) (demand.Spread, error) {
	s := demand.Spread{
		TopologyKey: c.TopologyKey, MaxSkew: c.MaxSkew,
		IgnoreNodeAffinity: c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore,
		HonorTaints:        c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
	}
	if c.MinDomains != nil {
		s.MinDomains = *c.MinDomains
	}
	selected := c.LabelSelector
	if selected != nil {
		selected = selected.DeepCopy()
		for _, key := range c.MatchLabelKeys {
			if value, there := labels[key]; there {
				selected.MatchExpressions = append(
					selected.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}},
				)
			}
		}
	}
	var err error
	s.Selector, err = selector(selected)
	return s, err
}
