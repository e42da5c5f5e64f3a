package operator //nolint:testpackage // observe is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

// batchJob returns a Job that was started at minute 0 and has a condition since minute 5.
func batchJob(kind batchv1.JobConditionType, reason string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "review-a", UID: "u", Annotations: map[string]string{
		v1alpha1.AnnotationRunHash: "a", v1alpha1.AnnotationRerun: "2",
	}}}
	job.Status.StartTime = at(0)
	if kind != "" {
		job.Status.Conditions = []batchv1.JobCondition{
			{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse, LastTransitionTime: *at(0)},
			{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: *at(5)},
		}
	}
	return job
}

// agentPod returns a pod that was made at that minute, with the container in a state.
func agentPod(minute int, state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(minute)},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", State: state}}},
	}
}

func exited(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func withReason(pod *corev1.Pod, reason string) *corev1.Pod {
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, reason
	return pod
}

func disrupted(pod *corev1.Pod, status corev1.ConditionStatus) *corev1.Pod {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: status, Reason: "PreemptionByScheduler"}}
	return pod
}

func withSidecar(pod *corev1.Pod, state corev1.ContainerState) *corev1.Pod {
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "proxy", State: state})
	return pod
}

func TestTheOutcomeOfARun(t *testing.T) {
	t.Parallel()
	const deadline, backoff = batchv1.JobReasonDeadlineExceeded, batchv1.JobReasonBackoffLimitExceeded
	running := batchJob("", "")
	failed := func(reason string) *batchv1.Job { return batchJob(batchv1.JobFailed, reason) }
	ending := batchJob(batchv1.JobFailureTarget, deadline)
	pull := &v1alpha1.Run{UID: "u", Reason: reasonImagePull}
	other := &v1alpha1.Run{UID: "earlier", Reason: reasonImagePull}
	pods := func(all ...*corev1.Pod) []*corev1.Pod { return all }
	for name, c := range map[string]struct {
		job     *batchv1.Job
		pods    []*corev1.Pod
		last    *v1alpha1.Run
		outcome v1alpha1.Outcome
		code    *int32
		reason  string
	}{
		"no pod yet":                     {job: running},
		"it runs":                        {job: running, pods: pods(agentPod(0, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}))},
		"it starts":                      {job: running, pods: pods(agentPod(0, waiting("ContainerCreating")))},
		"its pod has ended, it has not":  {job: running, pods: pods(agentPod(0, exited(3, "Error")))},
		"success":                        {job: batchJob(batchv1.JobComplete, "CompletionsReached"), pods: pods(agentPod(0, exited(0, "Completed"))), outcome: v1alpha1.RunSucceeded, code: new(int32)},
		"success, the pod is gone":       {job: batchJob(batchv1.JobComplete, ""), outcome: v1alpha1.RunSucceeded, code: new(int32)},
		"exit code":                      {job: failed(backoff), pods: pods(agentPod(0, exited(3, "Error"))), outcome: v1alpha1.RunFailed, code: new(int32(3)), reason: reasonError},
		"out of memory":                  {job: failed(backoff), pods: pods(agentPod(0, exited(137, "OOMKilled"))), outcome: v1alpha1.RunFailed, code: new(int32(137)), reason: reasonOOM},
		"deadline of the Job":            {job: failed(deadline), outcome: v1alpha1.RunFailed, reason: reasonDeadline},
		"deadline, the pod is killed":    {job: failed(deadline), pods: pods(agentPod(0, exited(143, "Error"))), outcome: v1alpha1.RunFailed, reason: reasonDeadline},
		"deadline of the pod":            {job: failed(backoff), pods: pods(withReason(agentPod(0, exited(137, "Error")), "DeadlineExceeded")), outcome: v1alpha1.RunFailed, reason: reasonDeadline},
		"it waits for its image":         {job: running, pods: pods(agentPod(0, waiting("ImagePullBackOff"))), reason: reasonImagePull},
		"a bad image name":               {job: running, pods: pods(agentPod(0, waiting("InvalidImageName"))), reason: reasonImagePull},
		"the image has come":             {job: running, last: pull, pods: pods(agentPod(0, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}))},
		"no image, pod there":            {job: failed(deadline), pods: pods(agentPod(0, waiting("ErrImagePull"))), outcome: v1alpha1.RunFailed, reason: reasonImagePull},
		"no image, pod deleted":          {job: failed(deadline), last: pull, outcome: v1alpha1.RunFailed, reason: reasonImagePull},
		"no image, pod deleted before":   {job: ending, last: pull, reason: reasonImagePull},
		"no image, pod ended before":     {job: ending, last: pull, pods: pods(agentPod(0, exited(137, "ContainerStatusUnknown"))), reason: reasonImagePull},
		"no image, no pod, still waits":  {job: running, last: pull, reason: reasonImagePull},
		"no image, deadline of the pod":  {job: failed(backoff), last: pull, pods: pods(withReason(agentPod(0, exited(137, "ContainerStatusUnknown")), "DeadlineExceeded")), outcome: v1alpha1.RunFailed, reason: reasonImagePull},
		"no image, pod with a deadline":  {job: failed(backoff), pods: pods(withReason(agentPod(0, waiting("ImagePullBackOff")), "DeadlineExceeded")), outcome: v1alpha1.RunFailed, reason: reasonImagePull},
		"the run before had no image":    {job: failed(deadline), last: other, outcome: v1alpha1.RunFailed, reason: reasonDeadline},
		"evicted by the node":            {job: failed(backoff), pods: pods(withReason(agentPod(0, corev1.ContainerState{}), "Evicted")), outcome: v1alpha1.RunFailed, reason: reasonEvicted},
		"evicted for another":            {job: failed(backoff), pods: pods(disrupted(agentPod(0, exited(137, "Error")), corev1.ConditionTrue)), outcome: v1alpha1.RunFailed, code: new(int32(137)), reason: reasonEvicted},
		"not evicted":                    {job: failed(backoff), pods: pods(disrupted(agentPod(0, exited(3, "Error")), corev1.ConditionFalse)), outcome: v1alpha1.RunFailed, code: new(int32(3)), reason: reasonError},
		"out of memory while evicted":    {job: failed(backoff), pods: pods(withReason(agentPod(0, exited(137, "OOMKilled")), "Evicted")), outcome: v1alpha1.RunFailed, code: new(int32(137)), reason: reasonOOM},
		"the pod is gone":                {job: failed(backoff), outcome: v1alpha1.RunFailed, reason: reasonError},
		"the pod says nothing":           {job: failed(backoff), pods: pods(&corev1.Pod{}), outcome: v1alpha1.RunFailed, reason: reasonError},
		"the newest of three":            {job: failed(backoff), pods: pods(agentPod(1, exited(1, "Error")), agentPod(3, exited(3, "Error")), agentPod(2, exited(137, "OOMKilled"))), outcome: v1alpha1.RunFailed, code: new(int32(3)), reason: reasonError},
		"the newest waits":               {job: running, pods: pods(agentPod(2, waiting("ImagePullBackOff")), agentPod(1, exited(1, "Error"))), reason: reasonImagePull},
		"an injected container ends ill": {job: failed(backoff), pods: pods(withSidecar(agentPod(0, exited(3, "Error")), exited(143, "Error"))), outcome: v1alpha1.RunFailed, code: new(int32(3)), reason: reasonError},
		"an injected container, no code": {job: failed(backoff), pods: pods(withSidecar(agentPod(0, exited(0, "Completed")), exited(1, "Error"))), outcome: v1alpha1.RunFailed, code: new(int32), reason: reasonError},
		"an injected image is missing":   {job: running, pods: pods(withSidecar(agentPod(0, waiting("ContainerCreating")), waiting("ErrImagePull"))), reason: reasonImagePull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := observe(c.job, c.pods, c.last)
			require.Equal(t, want{"a", "2"}, seen.run)
			require.Equal(t, at(0), seen.started)
			require.Equal(t, c.outcome, seen.outcome)
			require.Equal(t, c.code, seen.exitCode)
			require.Equal(t, c.reason, seen.reason)
			if c.outcome == "" {
				require.Nil(t, seen.finished)
			} else {
				require.Equal(t, at(5), seen.finished)
			}
		})
	}
}

func TestACompleteJobEndsAtItsCompletionTime(t *testing.T) {
	t.Parallel()
	job := batchJob(batchv1.JobComplete, "")
	job.Status.CompletionTime = at(4)
	job.DeletionTimestamp = new(metav1.NewTime(start.Add(time.Hour)))
	seen := observe(job, nil, nil)
	require.Equal(t, at(4), seen.finished)
	require.True(t, seen.deleting)
	require.Equal(t, "u", seen.uid)
}

// TestWhatIsMadeIsObservedAsWhatWasWanted reads back the Job that a plan renders: the
// same run, held until its outcome is recorded.
func TestWhatIsMadeIsObservedAsWhatWasWanted(t *testing.T) {
	t.Parallel()
	for name, build := range goldenJobs() {
		job, m := build()
		p := planned(t, job, m)
		var made batchv1.Job
		require.NoError(t, into(p.run(p.want()).Object, &made))
		seen := observe(&made, nil, nil)
		require.Equal(t, p.want(), seen.run, name)
		require.Equal(t, jobName(job, p.want()), seen.name)
		require.True(t, seen.held, name)
		made.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
		require.False(t, observe(&made, nil, nil).held, name)
	}
}
