package operator

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

// Reasons why a run failed, or does not get on.
const (
	reasonDeadline  = "Deadline"
	reasonOOM       = "OOMKilled"
	reasonImagePull = string(readiness.ImagePull)
	reasonEvicted   = string(readiness.Evicted)
	reasonDeleted   = "Deleted"
	reasonError     = "Error"
	reasonVolume    = "VolumePending"
)

// cause returns why the pod of a run under way does not start, the zero Cause if it may.
func (p *pass) cause() readiness.Cause {
	causes := []readiness.Cause{p.refused}
	for _, run := range p.runs {
		if !underWay(run) {
			continue
		}
		for _, pod := range p.podsOf(run) {
			o := &unstructured.Unstructured{Object: toObject(pod)}
			o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			switch c := readiness.Why(nil, o); c.Reason {
			case readiness.Unschedulable, readiness.Volume, readiness.ImagePull, readiness.ContainerConfig:
				causes = append(causes, c)
			default: // it starts, or its end is the end of the run
			}
		}
	}
	c := readiness.First(causes...)
	if c.Outlook == readiness.Waiting {
		return readiness.Cause{}
	}
	if c.Reason == readiness.Volume {
		c.Reason = reasonVolume
	}
	return c
}

// observe returns a Job and its pods as one run.
func observe(job *batchv1.Job, pods []*corev1.Pod, last *v1alpha1.Run) observedJob {
	seen := observedJob{
		name: job.Name, uid: string(job.UID), deleting: job.DeletionTimestamp != nil, started: job.Status.StartTime,
		run:  want{job.Annotations[v1alpha1.AnnotationRunHash], job.Annotations[v1alpha1.AnnotationRerun]},
		held: slices.Contains(job.Finalizers, v1alpha1.Finalizer),
	}
	if done := condition(job, batchv1.JobComplete); done != nil {
		seen.outcome, seen.finished, seen.exitCode = v1alpha1.RunSucceeded, job.Status.CompletionTime, new(int32)
		if seen.finished == nil {
			seen.finished = &done.LastTransitionTime
		}
		return seen
	}
	code, reason := failure(pods)
	failed := condition(job, batchv1.JobFailed)
	if reason != reasonImagePull && last != nil && last.UID == seen.uid && last.Reason == reasonImagePull && overdue(job, pods, reason) {
		// The deadline ends or deletes the pod that showed it, before the Job counts as
		// failed.
		code, reason = nil, reasonImagePull
	}
	if failed == nil {
		// It runs, or waits for its image.
		if reason == reasonImagePull {
			seen.reason = reason
		}
		return seen
	}
	seen.outcome, seen.finished, seen.exitCode, seen.reason = v1alpha1.RunFailed, &failed.LastTransitionTime, code, reason
	switch {
	case failed.Reason == batchv1.JobReasonDeadlineExceeded && reason != reasonImagePull:
		seen.exitCode, seen.reason = nil, reasonDeadline
	case reason == "":
		seen.reason = reasonError
	}
	return seen
}

// overdue reports whether a deadline ends a Job, or has done so, or its pod was deleted
// before that shows.
func overdue(job *batchv1.Job, pods []*corev1.Pod, reason string) bool {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobFailureTarget} {
		if ends := condition(job, kind); ends != nil {
			return reason == reasonDeadline || ends.Reason == batchv1.JobReasonDeadlineExceeded
		}
	}
	return len(pods) == 0
}

func condition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

func underWay(run *batchv1.Job) bool {
	return condition(run, batchv1.JobComplete) == nil && condition(run, batchv1.JobFailed) == nil
}

// failure returns the exit code of the agent and why its newest pod failed or waits.
func failure(pods []*corev1.Pod) (code *int32, reason string) {
	if len(pods) == 0 {
		return nil, ""
	}
	pod := slices.MaxFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, status := range pod.Status.ContainerStatuses {
		// Others may have put containers of their own beside the agent.
		switch ended, waits := status.State.Terminated, status.State.Waiting; {
		case ended != nil && ended.Reason == reasonOOM && status.Name == container:
			return &ended.ExitCode, reasonOOM
		case ended != nil && status.Name == container:
			code = &ended.ExitCode
			if *code != 0 {
				reason = reasonError
			}
		case waits != nil && reason == "":
			if why, _ := readiness.WaitReason(waits.Reason); why == readiness.ImagePull {
				reason = reasonImagePull
			}
		}
	}
	if pod.Status.Reason == "DeadlineExceeded" && reason != reasonImagePull {
		return nil, reasonDeadline
	}
	disrupted := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
	if pod.Status.Reason == "Evicted" || disrupted {
		return code, reasonEvicted
	}
	return code, reason
}
