package operator //nolint:testpackage // a pass is given what it has seen

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

// unscheduled is a pod of which the scheduler says something.
func unscheduled(reason, message string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message},
	}}}
}

// starting is a pod whose container waits.
func starting(reason string) *corev1.Pod {
	pod := agentPod(0, waiting(reason))
	pod.Status.Phase = corev1.PodPending
	return pod
}

// said is what a pass says of a job: its phase with its message, Ready, Finished.
func said(p *pass) string {
	phase, message := p.phase(p.job)
	p.conditions(p.job)
	var text strings.Builder
	text.WriteString(strings.TrimSpace(fmt.Sprint(phase, " ", message)))
	for _, kind := range []string{conditionReady, conditionFinished} {
		if c := meta.FindStatusCondition(p.job.Status.Conditions, kind); c != nil {
			fmt.Fprintf(&text, "; %s %s %s", c.Type, c.Status, c.Reason)
		}
	}
	return text.String()
}

// TestTheStatusSaysHowFarARunIs has one run, of the job itself or of its schedule.
func TestTheStatusSaysHowFarARunIs(t *testing.T) {
	t.Parallel()
	const (
		full     = "0/3 nodes are available"
		unbound  = "pod has unbound immediate PersistentVolumeClaims"
		unplaced = "Pending Pod pod-%d: PodScheduled is False, Unschedulable: %s; Ready False %s; Finished False Running"
		stopped  = "Pending Pod pod-0: container agent: %s; Ready False %s; Finished False Running"
		runs     = "Running; Ready True Reconciled; Finished False Running"
	)
	active := &v1alpha1.Run{UID: "u", Started: at(0)}
	ended := func(outcome v1alpha1.Outcome) *v1alpha1.Run {
		return &v1alpha1.Run{UID: "u", Started: at(0), Outcome: outcome, Reason: "Why"}
	}
	code := ended(v1alpha1.RunFailed)
	code.ExitCode = new(int32(3))
	scheduled := func(p *pass) { p.job.Spec.Schedule, p.runs[0].OwnerReferences = "0 0 1 1 *", nil }
	due := func(p *pass) { p.due = true }
	finished := func(p *pass) { p.runs[0].Status = batchJob(batchv1.JobComplete, "").Status }
	broken := func(p *pass) { p.runs[0].Status = batchJob(batchv1.JobFailed, "BackoffLimitExceeded").Status }
	type changes []func(*pass)
	type pods []*corev1.Pod
	for name, c := range map[string]struct {
		last    *v1alpha1.Run
		changes changes
		pods    pods
		want    string
	}{
		"none yet": {want: "Pending the run is about to start; Ready True Reconciled"},
		"it runs":  {last: active, want: runs},
		"no node":  {last: active, pods: pods{unscheduled("Unschedulable", full)}, want: fmt.Sprintf(unplaced, 0, full, "Unschedulable")},
		"a gate":   {last: active, pods: pods{unscheduled("SchedulingGated", "gated")}, want: runs},
		"no volume": {
			last: active, pods: pods{unscheduled("Unschedulable", unbound)},
			want: fmt.Sprintf(unplaced, 0, unbound, "VolumePending"),
		},
		"no image": {last: active, pods: pods{starting("ErrImagePull")}, want: fmt.Sprintf(stopped, "ErrImagePull", "ImagePull")},
		"bad Secret": {
			last: active, pods: pods{starting("CreateContainerError")},
			want: fmt.Sprintf(stopped, "CreateContainerError", "ContainerConfig"),
		},
		"it starts":  {last: active, pods: pods{starting("ContainerCreating")}, want: runs},
		"it crashes": {last: active, pods: pods{starting("CrashLoopBackOff")}, want: runs},
		"the heavier": {
			last: active, pods: pods{starting("ErrImagePull"), unscheduled("Unschedulable", full)},
			want: fmt.Sprintf(unplaced, 1, full, "Unschedulable"),
		},
		"it has ended": {
			last: ended(v1alpha1.RunSucceeded), changes: changes{finished}, pods: pods{starting("ErrImagePull")},
			want: "Succeeded; Ready True Reconciled; Finished True Succeeded",
		},
		"the next is due": {
			last: ended(v1alpha1.RunSucceeded), changes: changes{finished, due},
			want: "Succeeded; Ready True Reconciled; Finished False Pending",
		},
		"it failed": {
			last: code, changes: changes{broken},
			want: "Failed the run failed: Why, exit code 3; Ready False RunFailed; Finished True Failed",
		},
		"it was deleted": {
			last: ended(v1alpha1.RunDeleted), changes: changes{finished},
			want: "Failed the run failed: Why; Ready False RunFailed; Finished True Deleted",
		},
		"it was replaced": {
			last: ended(v1alpha1.RunReplaced), changes: changes{finished},
			want: "Pending the run is about to start; Ready True Reconciled; Finished False Running",
		},
		"scheduled, runs":   {last: code, changes: changes{scheduled}, want: "Scheduled; Ready True Reconciled; Finished False Running"},
		"scheduled, ended":  {changes: changes{scheduled, finished}, want: "Scheduled; Ready True Reconciled; Finished True Succeeded"},
		"scheduled, failed": {changes: changes{scheduled, broken}, want: "Scheduled; Ready False RunFailed; Finished True Failed"},
		"scheduled, no node": {
			changes: changes{scheduled}, pods: pods{unscheduled("Unschedulable", full)},
			want: "Scheduled; Ready False Unschedulable; Finished False Running",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen(t, func(t *testing.T, p *pass) {
				p.job.Status.LastRun = c.last
				for _, change := range c.changes {
					change(p)
				}
				require.Equal(t, c.want, said(p))
			}, c.pods...)
		})
	}
}

// seen runs a test in virtual time, with a pass over a job that has one run, with these pods.
func seen(t *testing.T, test func(t *testing.T, p *pass), pods ...*corev1.Pod) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newOperator(&rest.Config{Host: "http://127.0.0.1:1"}, Operator{Logger: slog.New(slog.DiscardHandler)}, newMetrics())
		require.NoError(t, err)
		p := &pass{op: w, job: &v1alpha1.AgentJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "review", UID: "j"}}}
		run := batchJob("", "")
		run.Namespace = "team"
		run.OwnerReferences = []metav1.OwnerReference{{UID: "j", Controller: new(true)}}
		p.runs = []*batchv1.Job{run}
		var all []runtime.Object
		for i, pod := range pods {
			pod.Namespace, pod.Name = "team", fmt.Sprint("pod-", i)
			pod.Labels = map[string]string{batchv1.JobNameLabel: run.Name, labelManagedBy: manager, v1alpha1.LabelOwner: "j"}
			pod.OwnerReferences = []metav1.OwnerReference{{UID: run.UID, Controller: new(true)}}
			o := &unstructured.Unstructured{Object: toObject(pod)}
			o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			all = append(all, o)
		}
		lists := map[schema.GroupVersionResource]string{w.pods.Kind.Resource: "PodList"}
		w.pods.Client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, all...)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.pods.Start(ctx) }()
		synctest.Wait()
		require.Len(t, p.podsOf(run), len(pods))
		test(t, p)
		cancel()
		require.NoError(t, <-ended)
	})
}
