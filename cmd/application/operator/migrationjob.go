package operator

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// Labels of the Jobs of migrations and their pods.
const (
	labelComponent      = "app.kubernetes.io/component"
	labelRelease        = v1alpha1.Group + "/release"
	componentMigrations = "migrations"
)

// migrationJob returns the Job that runs the migrations: a pod like the app's, with another command.
// A pod that fails ends it; one that its node gives up is replaced, once it has ended.
func (p *pass) migrationJob(configs []*unstructured.Unstructured) *unstructured.Unstructured {
	container := p.container(componentMigrations, configs)
	container["command"] = words(p.migration.command)
	if spec := &p.subject.app.Spec; spec.Database.Migrations.Engine == v1alpha1.Prisma && len(spec.Database.Migrations.Command) == 0 {
		env, _ := container["env"].([]any)
		container["env"] = append(env, p.prismaURL()...)
	}
	pod := p.pod([]any{container})
	pod["restartPolicy"] = "Never"
	// Without the environment neither the Service nor the Deployment selects the pod.
	own := p.subject.labels()
	delete(own, v1alpha1.LabelEnvironment)
	own[labelComponent] = componentMigrations
	disrupted := object{"action": "Ignore", "onPodConditions": []any{object{"type": "DisruptionTarget", "status": "True"}}}
	o := p.child("batch/v1", "Job", p.migration.job, object{"spec": object{
		"backoffLimit": int64(0), "podReplacementPolicy": "Failed", "podFailurePolicy": object{"rules": []any{disrupted}},
		"template": object{"metadata": object{"labels": own}, "spec": pod},
	}})
	all := o.GetLabels()
	all[labelComponent], all[labelRelease] = componentMigrations, p.migration.release
	o.SetLabels(all)
	return o
}

// prismaURL names the schema as Prisma reads it, unless the app has a DATABASE_URL of its own.
func (p *pass) prismaURL() []any {
	if slices.ContainsFunc(p.subject.app.Spec.EnvVars, func(v v1alpha1.EnvVar) bool { return v.Name == "DATABASE_URL" }) {
		return nil
	}
	const plain = "DATABASE_URL_WITHOUT_SCHEMA"
	return []any{
		object{"name": plain, "valueFrom": object{"secretKeyRef": object{"name": p.subject.names.Secret(), "key": "DATABASE_URL"}}},
		object{"name": "DATABASE_URL", "value": "$(" + plain + ")&schema=" + p.subject.names.DatabaseSchema()},
	}
}

// migrations are the Jobs of an Application's migrations, as they are on the server now.
type migrations struct {
	jobs map[string]*batchv1.Job
	// started has the Jobs, by UID, of which a container runs or has run.
	started map[string]bool
	// alive is a pod that has not ended, empty if there is none.
	alive string
}

// observeMigrations reads the Jobs and their pods from the server: what the view does not show yet
// counts, too.
func (p *pass) observeMigrations(ctx context.Context) (migrations, error) {
	seen := migrations{jobs: map[string]*batchv1.Job{}, started: map[string]bool{}}
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelOwner: string(p.subject.app.UID), labelComponent: componentMigrations})
	options := metav1.ListOptions{LabelSelector: selector.String()}
	in := p.subject.app.Namespace
	jobs, err := p.op.client.Resource(jobsResource).Namespace(in).List(ctx, options)
	if err != nil {
		return seen, fmt.Errorf("jobs of the migrations: %w", err)
	}
	pods, err := p.op.client.Resource(podsResource).Namespace(in).List(ctx, options)
	if err != nil {
		return seen, fmt.Errorf("pods of the migrations: %w", err)
	}
	for i := range jobs.Items {
		job := &batchv1.Job{}
		if err := into(jobs.Items[i].Object, job); err != nil {
			return seen, err
		}
		seen.jobs[job.Name] = job
	}
	for i := range pods.Items {
		pod := &corev1.Pod{}
		if err := into(pods.Items[i].Object, pod); err != nil {
			return seen, err
		}
		if owner := metav1.GetControllerOf(pod); owner != nil && hasStarted(pod) {
			seen.started[string(owner.UID)] = true
		}
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			seen.alive = pod.Name
		}
	}
	return seen, nil
}

// hasStarted reports whether a container of a pod runs, or has run.
func hasStarted(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" ||
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
		})
}
