package operator //nolint:testpackage // what a pass decides on is not exported

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// migrating returns an Application with migrations, of which this release was migrated.
func migrating(done ...string) *v1alpha1.Application {
	app := small()
	app.Spec.Database.Enabled, app.Spec.Database.Migrations.Engine = true, v1alpha1.Knex
	app.Status.Migrations.Done = done
	return app
}

// TestAJobHasEndedOnceItsPodsHave: the condition alone may come while a pod is still being deleted.
func TestAJobHasEndedOnceItsPodsHave(t *testing.T) {
	t.Parallel()
	complete := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}
	for name, c := range map[string]struct {
		status batchv1.JobStatus
		want   batchv1.JobConditionType
	}{
		"complete": {batchv1.JobStatus{Conditions: []batchv1.JobCondition{complete}, Terminating: new(int32)}, batchv1.JobComplete},
		"failed": {batchv1.JobStatus{Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue},
		}}, batchv1.JobFailed},
		"about to fail": {batchv1.JobStatus{Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionFalse},
		}}, ""},
		"active":      {batchv1.JobStatus{Conditions: []batchv1.JobCondition{complete}, Active: 1}, ""},
		"terminating": {batchv1.JobStatus{Conditions: []batchv1.JobCondition{complete}, Terminating: new(int32(1))}, ""},
	} {
		how, ended := endOf(&batchv1.Job{Status: c.status})
		require.Equal(t, c.want, how, name)
		require.Equal(t, c.want != "", ended, name)
	}
}

// TestAPodHasStartedOnceAContainerHas: the phase may be behind, or back at Pending.
func TestAPodHasStartedOnceAContainerHas(t *testing.T) {
	t.Parallel()
	pending := func(c corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{c}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"new":      {corev1.PodStatus{}, false},
		"waits":    {pending(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}), false},
		"runs":     {pending(corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}), true},
		"ended":    {pending(corev1.ContainerStatus{State: ended}), true},
		"ran once": {pending(corev1.ContainerStatus{LastTerminationState: ended}), true},
		"unknown":  {corev1.PodStatus{Phase: corev1.PodUnknown}, true},
	} {
		require.Equal(t, c.want, hasStarted(&corev1.Pod{Status: c.status}), name)
	}
}

// TestAMessageHasNoPassword, also where a person has chosen one that a URL has in another form.
func TestAMessageHasNoPassword(t *testing.T) {
	t.Parallel()
	require.Equal(t, "login (password): postgresql://shop:(password)@db", masked("login a/b@c: postgresql://shop:a%2Fb%40c@db", "a/b@c"))
	require.Equal(t, "(password) is wrong", masked("sesame is wrong", "sesame"))
	require.Equal(t, "no login", masked("no login", ""))
}

// TestAnAppMayHaveADatabaseURLOfItsOwn: Prisma then reads it in place of the schema's.
func TestAnAppMayHaveADatabaseURLOfItsOwn(t *testing.T) {
	t.Parallel()
	w := site(t)
	names := func(own string) (all []string) {
		app := migrating()
		app.Spec.Database.Migrations.Engine, app.Spec.EnvVars = v1alpha1.Prisma, []v1alpha1.EnvVar{{Name: own, Value: "v"}}
		job := w.newPass(w.application(app)).migrationJob(nil)
		containers, _, err := unstructured.NestedSlice(job.Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		env, _ := containers[0].(object)["env"].([]any)
		for _, each := range env {
			all = append(all, fmt.Sprint(each.(object)["name"]))
		}
		return all
	}
	require.NotContains(t, names("DATABASE_URL"), "DATABASE_URL_WITHOUT_SCHEMA")
	require.Contains(t, names("URL"), "DATABASE_URL_WITHOUT_SCHEMA")
}

// TestNoTrafficReachesAPodOfMigrations: neither the Service nor the Deployment selects it.
func TestNoTrafficReachesAPodOfMigrations(t *testing.T) {
	t.Parallel()
	w := site(t)
	p := w.newPass(w.application(migrating()))
	pod, _, err := unstructured.NestedStringMap(p.migrationJob(nil).Object, "spec", "template", "metadata", "labels")
	require.NoError(t, err)
	for _, o := range p.workload(nil) {
		path := map[string][]string{"Service": {"spec", "selector"}, "Deployment": {"spec", "selector", "matchLabels"}}[o.GetKind()]
		if path == nil {
			continue
		}
		selector, found, err := unstructured.NestedStringMap(o.Object, path...)
		require.NoError(t, err)
		require.True(t, found)
		require.False(t, labels.SelectorFromSet(selector).Matches(labels.Set(pod)), o.GetKind())
	}
}

// TestTheStatusRecordsWhichMigrationsHaveRun: the latest are kept, each once, and none of a database
// that is turned off.
func TestTheStatusRecordsWhichMigrationsHaveRun(t *testing.T) {
	t.Parallel()
	w := site(t)
	var many []string
	for n := range maxReleases {
		many = append(many, fmt.Sprint(n))
	}
	app := migrating(many...)
	app.Annotations = map[string]string{v1alpha1.AnnotationMigrate: "1"}
	p := w.newPass(w.application(app))
	release := p.migration.release
	record := func(s v1alpha1.ApplicationStatus) v1alpha1.ApplicationStatus {
		p.fillMigrations(&s)
		return s
	}
	p.migration.ran = true
	s := record(app.Status)
	require.Equal(t, v1alpha1.MigrationsStatus{Done: append(many[1:], release), Image: app.Spec.ImageRef, Asked: digest("1")}, s.Migrations)
	s.Migrations.Done = []string{release, "0"}
	require.Equal(t, []string{"0", release}, record(s).Migrations.Done)
	p.migration.ran, p.migration.failed = false, true
	failed := record(app.Status).Migrations
	require.Equal(t, v1alpha1.MigrationsStatus{Done: many, Failed: release, Asked: digest("1")}, failed)

	app = migrating(release)
	app.Status.Migrations.Failed = "another"
	p = w.newPass(w.application(app))
	again := v1alpha1.MigrationsStatus{Done: []string{release}, Image: app.Spec.ImageRef}
	require.Equal(t, again, record(app.Status).Migrations, "what has failed may be tried again")
	p.held = true
	require.Empty(t, record(app.Status).Migrations.Image, "it is not rolled out")
	app.Spec.Database.Migrations.Engine = ""
	p = w.newPass(w.application(app))
	require.Equal(t, app.Status.Migrations, record(app.Status).Migrations, "the schema is the same")
	app.Status.Migrations.Image = "registry.example.com/shop:0"
	require.Empty(t, record(app.Status).Migrations.Image, "another image may be rolled out meanwhile")
	app.Spec.Database.Enabled = false
	p = w.newPass(w.application(app))
	s = record(s)
	require.Zero(t, s.Migrations, "the next schema has none of them")
	require.Nil(t, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionMigrations))
}

// TestAFirstImageWaitsForItsMigrations: before they are looked at, too.
func TestAFirstImageWaitsForItsMigrations(t *testing.T) {
	t.Parallel()
	w := site(t)
	p := w.newPass(w.application(migrating()))
	for _, part := range p.parts {
		part.outside.Wanted = false
	}
	require.Equal(t, "waits for: migrations", p.waitsFor())
	p.migration.ran = true
	require.Equal(t, "waits for: ", p.waitsFor())
}

// TestMigrationsStartOnlyForWhatTheServerHas: the view of an operator may be behind.
func TestMigrationsStartOnlyForWhatTheServerHas(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.Application){
		"": func(app *v1alpha1.Application) {
			app.Labels, app.Status.Phase = map[string]string{"of": "others"}, v1alpha1.Running
		},
		"made again":    func(app *v1alpha1.Application) { app.UID = "another" },
		"deleted":       func(app *v1alpha1.Application) { app.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) },
		"changed":       func(app *v1alpha1.Application) { app.Generation++ },
		"another asked": func(app *v1alpha1.Application) { app.Annotations = map[string]string{v1alpha1.AnnotationMigrate: "2"} },
		"they have run": func(app *v1alpha1.Application) { app.Status.Migrations.Done = []string{"r"} },
		"they failed":   func(app *v1alpha1.Application) { app.Status.Migrations.Failed = "r" },
	} {
		now := migrating()
		change(now)
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
		require.NoError(t, err)
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("get", appsResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &unstructured.Unstructured{Object: o}, nil
		})
		w := site(t)
		w.client = client
		p := w.newPass(w.application(migrating()))
		may, err := p.mayMigrate(t.Context(), migrations{})
		require.NoError(t, err)
		require.Equal(t, name == "", may, name)
		may, err = p.mayMigrate(t.Context(), migrations{alive: "a-pod"})
		require.NoError(t, err)
		require.False(t, may, "a pod of a Job that was deleted runs")
	}
}
