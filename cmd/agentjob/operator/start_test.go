package operator //nolint:testpackage // when a run starts is decided within

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// rerunning is a job of version 5 that asks for the run "a".
func rerunning() *v1alpha1.AgentJob {
	job := &v1alpha1.AgentJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "review", UID: "j", Generation: 3, ResourceVersion: "5",
		Annotations: map[string]string{v1alpha1.AnnotationRerun: "a"},
	}}
	job.Status.LastRun = &v1alpha1.Run{UID: "u", Outcome: v1alpha1.RunSucceeded}
	return job
}

// having is an operator on a server that has this job, and the requests that it gets.
func having(t *testing.T, job *v1alpha1.AgentJob) (*operator, *fake.FakeDynamicClient) {
	t.Helper()
	w, err := newOperator(&rest.Config{Host: "http://127.0.0.1:1"}, Operator{Logger: slog.New(slog.DiscardHandler)}, newMetrics())
	require.NoError(t, err)
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("get", jobsPlural, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{Object: toObject(job)}, nil
	})
	w.client = client
	return w, client
}

// TestARunStartsOnlyForWhatTheServerHas: a cache may be behind.
func TestARunStartsOnlyForWhatTheServerHas(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.AgentJob){
		"":                     func(job *v1alpha1.AgentJob) { job.ResourceVersion, job.Labels = "9", map[string]string{"of": "others"} },
		"made again":           func(job *v1alpha1.AgentJob) { job.UID = "k" },
		"deleted":              func(job *v1alpha1.AgentJob) { job.DeletionTimestamp = at(1) },
		"changed":              func(job *v1alpha1.AgentJob) { job.Generation++ },
		"another asked":        func(job *v1alpha1.AgentJob) { job.Annotations[v1alpha1.AnnotationRerun] = "b" },
		"started beside":       func(job *v1alpha1.AgentJob) { job.Status.Rerun = "a" },
		"started":              func(job *v1alpha1.AgentJob) { job.Status.LastRun.UID = "v" },
		"the first is started": func(job *v1alpha1.AgentJob) { job.Status.LastRun = nil },
	} {
		now := rerunning()
		change(now)
		w, _ := having(t, now)
		same, err := (&pass{op: w, job: rerunning()}).asks(t.Context(), facts{want: want{rerun: "a"}})
		require.NoError(t, err)
		require.Equal(t, name == "", same, name)
	}
}

// TestAPassThatWasBehindIsFollowedByOneThatIsNot: events of what it has seen start none.
func TestAPassThatWasBehindIsFollowedByOneThatIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := rerunning()
		now.Generation, now.ResourceVersion = 4, "9"
		w, _ := having(t, now)
		var generations []int64
		w.jobs.Referenced, w.jobs.References, w.jobs.ReferencesOf = nil, nil, nil
		w.jobs.Reconcile = func(ctx context.Context, _ types.NamespacedName, job *v1alpha1.AgentJob) (reconcile.Result, error) {
			generations = append(generations, job.Generation)
			_, err := (&pass{op: w, job: job}).asks(ctx, facts{want: want{rerun: "a"}})
			return reconcile.Result{}, err
		}
		object := func(job *v1alpha1.AgentJob) *unstructured.Unstructured {
			o := &unstructured.Unstructured{Object: toObject(job)}
			o.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("AgentJob"))
			return o
		}
		behind := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{w.jobs.Kind.Resource: "AgentJobList"}, object(rerunning()))
		w.jobs.Client = behind
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.jobs.Start(ctx) }()
		synctest.Wait()
		w.jobs.Add(kube.KeyOf(now))
		synctest.Wait()
		require.Equal(t, []int64{3}, generations)
		require.NoError(t, behind.Tracker().Update(w.jobs.Kind.Resource, object(now), now.Namespace))
		synctest.Wait()
		require.Equal(t, []int64{3, 4}, generations)
		cancel()
		require.NoError(t, <-ended)
	})
}

// TestARunBesideTheScheduleIsDueOnce sends a request only if one is due.
func TestARunBesideTheScheduleIsDueOnce(t *testing.T) {
	t.Parallel()
	active := []*batchv1.Job{batchJob("", "")}
	for name, change := range map[string]func(*pass, *facts){
		"":                      func(*pass, *facts) {},
		"after another":         func(p *pass, _ *facts) { p.runs = []*batchv1.Job{batchJob(batchv1.JobFailed, "")} },
		"without a schedule":    func(_ *pass, f *facts) { f.scheduled = false },
		"suspended":             func(_ *pass, f *facts) { f.suspended = true },
		"not ready":             func(_ *pass, f *facts) { f.ready = false },
		"without a CronJob":     func(p *pass, _ *facts) { p.cron = nil },
		"not asked for":         func(_ *pass, f *facts) { f.want.rerun = "" },
		"started":               func(p *pass, _ *facts) { p.job.Status.Rerun = "a" },
		"started unscheduled":   func(_ *pass, f *facts) { f.last = &v1alpha1.Run{Rerun: "a"} },
		"while another runs":    func(p *pass, _ *facts) { p.runs = active },
		"asked for another run": func(_ *pass, f *facts) { f.last = &v1alpha1.Run{Rerun: "b"} },
	} {
		now := rerunning()
		now.Generation++ // it is not started in the end
		w, client := having(t, now)
		p := &pass{op: w, job: rerunning(), cron: &batchv1.CronJob{}}
		f := facts{want: want{"hash", "a"}, scheduled: true, ready: true}
		change(p, &f)
		require.NoError(t, p.extra(t.Context(), f), name)
		requests := 0
		if name == "" || name == "after another" || name == "asked for another run" {
			requests = 1
		}
		require.Len(t, client.Actions(), requests, name)
	}
}

// TestARunBesideTheScheduleWaitsForOneThatNoWatchShows: the watch of Jobs may be behind.
func TestARunBesideTheScheduleWaitsForOneThatNoWatchShows(t *testing.T) {
	t.Parallel()
	for kind, asks := range map[batchv1.JobConditionType]bool{"": false, batchv1.JobComplete: true} {
		now := rerunning()
		now.Generation++ // it is not started in the end
		w, client := having(t, now)
		client.PrependReactor("get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &unstructured.Unstructured{Object: toObject(batchJob(kind, ""))}, nil
		})
		p := &pass{op: w, job: rerunning(), cron: &batchv1.CronJob{}}
		p.job.Status.Rerun = "before"
		require.NoError(t, p.extra(t.Context(), facts{want: want{"hash", "a"}, scheduled: true, ready: true}))
		var asked []string
		for _, a := range client.Actions() {
			asked = append(asked, a.GetResource().Resource)
		}
		require.Equal(t, asks, len(asked) == 2, asked)
		require.Equal(t, "jobs", asked[0])
	}
}

// TestARunBesideTheScheduleIsOneOfItsCronJob: it counts, and is kept, as the others are.
func TestARunBesideTheScheduleIsOneOfItsCronJob(t *testing.T) {
	t.Parallel()
	job, m := everything()
	p := planned(t, job, m)
	run := p.extra(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: job.Name, UID: "c"}}, "a")
	require.Equal(t, jobName(job, want{rerun: "a"}), run.GetName())
	require.Equal(t, []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: job.Name, UID: "c", Controller: new(true),
	}}, run.GetOwnerReferences())
	require.Equal(t, map[string]string{
		v1alpha1.AnnotationConfigHash: p.configHash, v1alpha1.AnnotationRerun: "a", "cronjob.kubernetes.io/instantiate": "manual",
	}, run.GetAnnotations())
	require.Equal(t, p.jobSpec(), run.Object["spec"])
	require.Empty(t, run.GetFinalizers(), "its outcome is not recorded")
	job.Spec.Prompt = "another"
	require.Equal(t, run.GetName(), planned(t, job, m).extra(&batchv1.CronJob{}, "a").GetName(), "a repeated creation finds the first")
}
