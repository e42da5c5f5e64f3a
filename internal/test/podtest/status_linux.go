package podtest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func finished(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// status returns what the status of the pod should be.
func (p *pod) status(object *corev1.Pod) corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := *object.Status.DeepCopy()
	s.HostIP, s.HostIPs = p.node.Address(), []corev1.HostIP{{IP: p.node.Address()}}
	s.StartTime = &metav1.Time{Time: p.began.Rfc3339Copy().Time}
	if p.address != "" {
		s.PodIP, s.PodIPs = p.address, []corev1.PodIP{{IP: p.address}}
	}
	s.InitContainerStatuses, s.ContainerStatuses = p.statuses(object.Spec.InitContainers), p.statuses(object.Spec.Containers)
	initialized := !slices.ContainsFunc(s.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return !succeeded(c) })
	for i, c := range s.InitContainerStatuses {
		s.InitContainerStatuses[i].Ready = succeeded(c)
	}
	s.Phase = phaseOf(object.Spec.RestartPolicy, s.InitContainerStatuses, s.ContainerStatuses)
	ready := initialized && !finished(s.Phase) &&
		!slices.ContainsFunc(s.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !c.Ready })
	reason := map[bool]string{true: "", false: "ContainersNotReady"}
	if s.Phase == corev1.PodSucceeded {
		reason[false] = "PodCompleted"
	}
	set(&s, corev1.PodReadyToStartContainers, p.address != "", "")
	set(&s, corev1.PodInitialized, initialized, map[bool]string{true: "", false: "ContainersNotInitialized"}[initialized])
	set(&s, corev1.ContainersReady, ready, reason[ready])
	set(&s, corev1.PodReady, ready, reason[ready])
	return s
}

func (p *pod) statuses(containers []corev1.Container) (all []corev1.ContainerStatus) {
	for _, c := range containers {
		one := *p.containers[c.Name].DeepCopy()
		for _, state := range []corev1.ContainerState{one.State, one.LastTerminationState} {
			for _, t := range []*metav1.Time{startOf(state), endOf(state)} {
				if t != nil {
					*t = t.Rfc3339Copy()
				}
			}
		}
		all = append(all, one)
	}
	return all
}

func startOf(s corev1.ContainerState) *metav1.Time {
	switch {
	case s.Running != nil:
		return &s.Running.StartedAt
	case s.Terminated != nil:
		return &s.Terminated.StartedAt
	}
	return nil
}

func endOf(s corev1.ContainerState) *metav1.Time {
	if s.Terminated != nil {
		return &s.Terminated.FinishedAt
	}
	return nil
}

func succeeded(c corev1.ContainerStatus) bool {
	return c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
}

// phaseOf is the phase of a pod with these containers.
func phaseOf(policy corev1.RestartPolicy, inits, containers []corev1.ContainerStatus) corev1.PodPhase {
	for _, c := range inits {
		switch {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 && policy == corev1.RestartPolicyNever:
			return corev1.PodFailed
		case !succeeded(c):
			return corev1.PodPending
		}
	}
	ended, failed, waiting := 0, false, 0
	for _, c := range containers {
		switch {
		case c.State.Terminated != nil && policy != corev1.RestartPolicyAlways && (succeeded(c) || policy == corev1.RestartPolicyNever):
			ended++
			failed = failed || !succeeded(c)
		case c.State.Waiting != nil && c.RestartCount == 0:
			waiting++
		}
	}
	switch {
	case ended == len(containers) && failed:
		return corev1.PodFailed
	case ended == len(containers):
		return corev1.PodSucceeded
	case waiting > 0:
		return corev1.PodPending
	}
	return corev1.PodRunning
}

// set sets a condition, whose time changes with its status alone.
func set(s *corev1.PodStatus, kind corev1.PodConditionType, is bool, reason string) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind})
		i = len(s.Conditions) - 1
	}
	c := &s.Conditions[i]
	if c.Status != status {
		c.LastTransitionTime = metav1.Now().Rfc3339Copy()
	}
	c.Status, c.Reason = status, reason
}
