package operator

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// asks reports whether the job as the server has it still asks for a run.
func (p *pass) asks(ctx context.Context, f facts) (bool, error) {
	o, err := p.op.client.Resource(resourceOf(jobsPlural)).Namespace(p.job.Namespace).Get(ctx, p.job.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read the job before its run: %w", err)
	}
	var now v1alpha1.AgentJob
	if err := into(o.Object, &now); err != nil {
		return false, err
	}
	if now.UID == p.job.UID && now.DeletionTimestamp == nil && now.Generation == p.job.Generation &&
		now.Annotations[v1alpha1.AnnotationRerun] == f.want.rerun && now.Status.Rerun == p.job.Status.Rerun &&
		equality.Semantic.DeepEqual(now.Status.LastRun, p.job.Status.LastRun) {
		return true, nil
	}
	p.op.jobs.Wrote(&now) // a pass follows that sees it
	return false, nil
}

// create makes the Job of a run, and reports whether it is there.
func (p *pass) create(ctx context.Context, run *unstructured.Unstructured) (bool, error) {
	set, err := apply.NewSet(owner(), []*unstructured.Unstructured{run}, apply.SetOptions{Part: string(p.job.UID), Ignore: p.op.ignore})
	if p.problem.refuses(err) {
		return false, nil
	}
	report, err := p.op.applier.Apply(ctx, set)
	if ctx.Err() != nil {
		return false, err
	}
	err = p.problem.judge(report.Results)
	return err == nil && p.problem.reason == "", err
}

// begin starts the run.
func (p *pass) begin(ctx context.Context, f facts) error {
	same, err := p.asks(ctx, f)
	if err != nil || !same {
		return err
	}
	run := p.plan.run(f.want)
	if made, err := p.create(ctx, run); !made || err != nil {
		return err
	}
	made, err := p.op.live.Get(id(run))
	if err != nil {
		return fmt.Errorf("the Job of the run: %w", err)
	}
	p.due = false
	return p.record(ctx, &v1alpha1.Run{RunHash: f.want.hash, Rerun: f.want.rerun, Job: run.GetName(), UID: string(made.UID)})
}

// messageDue is the message of the condition Finished before a run.
const messageDue = "another run is due"

// extra starts a run beside the schedule for a new value of the annotation rerun, once no other
// run is under way. The Job is one of the CronJob, as of kubectl create job --from, so it counts
// and is kept as the others are. Its name is made of the annotation, so that a repeated creation
// finds the first; the status then has the annotation.
func (p *pass) extra(ctx context.Context, f facts) error {
	asked := f.want.rerun
	p.due = p.due || f.scheduled && p.unseen()
	if !f.scheduled || f.suspended || asked == "" || asked == p.job.Status.Rerun || f.last != nil && f.last.Rerun == asked {
		return nil
	}
	p.due = true
	if !f.ready || p.cron == nil || slices.ContainsFunc(p.runs, underWay) {
		return nil
	}
	if behind, err := p.behindExtra(ctx); behind || err != nil {
		return err // its end is an event
	}
	same, err := p.asks(ctx, f)
	if err != nil || !same {
		return err
	}
	run := p.plan.extra(p.cron, asked)
	if made, err := p.create(ctx, run); !made || err != nil {
		return err
	}
	uid := p.job.UID
	if err := p.op.status.Update(ctx, p.job, func(job *v1alpha1.AgentJob) {
		if job.UID == uid {
			job.Status.Rerun = asked
			kube.SetCondition(&job.Status.Conditions, conditionFinished, metav1.ConditionFalse, string(v1alpha1.Pending), messageDue)
		}
	}); err != nil {
		return fmt.Errorf("record the run beside the schedule: %w", err)
	}
	return nil
}

// unseen reports whether there is a Job that the watch of runs does not show yet.
func (p *pass) unseen() bool {
	for o := range p.op.live.Part(string(p.job.UID)) {
		if o.ID.Kind == "Job" && !slices.ContainsFunc(p.runs, func(run *batchv1.Job) bool { return run.UID == o.UID }) {
			return true
		}
	}
	return false
}

// behindExtra reports whether the last run beside the schedule is under way though no watch shows it.
func (p *pass) behindExtra(ctx context.Context) (bool, error) {
	name := jobName(p.job, want{rerun: p.job.Status.Rerun})
	if p.job.Status.Rerun == "" || slices.ContainsFunc(p.runs, func(run *batchv1.Job) bool { return run.Name == name }) {
		return false, nil
	}
	o, err := p.op.client.Resource(runsResource).Namespace(p.job.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Job %s, which is in no watch: %w", name, err)
	}
	var run batchv1.Job
	if err := into(o.Object, &run); err != nil {
		return false, err
	}
	return underWay(&run), nil
}

// extra returns the Job of a run beside the schedule. Its name does not depend on the config.
func (p *plan) extra(of *batchv1.CronJob, rerun string) *unstructured.Unstructured {
	o := child(p.from.job, "batch/v1", "Job", jobName(p.from.job, want{rerun: rerun}), object{"spec": p.jobSpec()})
	// A dependent that blocks its owner needs a right that a CronJob's Jobs do without.
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob", Name: of.Name, UID: of.UID, Controller: new(true),
	}})
	o.SetAnnotations(map[string]string{
		v1alpha1.AnnotationConfigHash: p.configHash, v1alpha1.AnnotationRerun: rerun, "cronjob.kubernetes.io/instantiate": "manual",
	})
	return o
}
