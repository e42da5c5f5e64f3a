package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	kit "github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// pass is one reconciliation of one AgentJob. It reads caches only, so a pass of a job at
// rest sends no request. Its steps run in the order observe, converge, report: what a later
// pass needs is in the status of the AgentJob, not in the process.
type pass struct {
	op *operator

	job       *v1alpha1.AgentJob
	plan      *plan            // nil while the references are broken
	cron      *batchv1.CronJob // as it is, nil: none
	runs      []*batchv1.Job   // of the job itself and of its CronJob
	baseReady bool             // all that a run needs is there
	problem   problem          // what only a change of an object cures
	transient error            // errors that may resolve by themselves
	due       bool             // a run is about to start
	before    metav1.Condition // Ready as the pass found it
	refused   readiness.Cause  // why a run has no pod
	again     time.Duration    // until the next pass without an event; 0: [atRest]
}

// reconcile does one pass for one job.
func (w *operator) reconcile(ctx context.Context, key types.NamespacedName, job *v1alpha1.AgentJob) (reconcile.Result, error) {
	if job == nil {
		w.metrics.forget(key)
		return reconcile.Result{}, nil // everything went before the finalizer
	}
	alive, result, err := w.finalize.Finalize(ctx, job, func(ctx context.Context) (bool, error) { return w.teardown(ctx, job) })
	if !alive || err != nil {
		return result, err
	}
	p := &pass{op: w, job: job, before: readyOf(job)}
	if err := p.observe(key); err != nil {
		return reconcile.Result{}, err
	}
	err = p.converge(ctx)
	if ctx.Err() != nil {
		return reconcile.Result{}, err // a pass that was cut short has not seen all
	}
	p.transient = err
	if err := errors.Join(err, p.report(ctx)); err != nil {
		return reconcile.Result{}, err
	}
	w.logger.DebugContext(
		ctx,
		"pass",
		slog.String("job", key.String()),
		slog.String("phase", string(job.Status.Phase)),
		slog.String("reason", readyOf(job).Reason),
	)
	return reconcile.Result{RequeueAfter: p.requeue()}, nil
}

// observe reads what runs.
func (p *pass) observe(key types.NamespacedName) error {
	var failed []error
	for _, name := range p.op.runs.Users(kube.Reference{Resource: resourceOf(jobsPlural), Namespace: key.Namespace, Name: key.Name}) {
		run, err := p.op.runs.Get(name)
		if err == nil && run.Labels[v1alpha1.LabelOwner] == string(p.job.UID) {
			p.runs = append(p.runs, run)
		} else if err != nil && !errors.Is(err, kube.ErrAbsent) {
			failed = append(failed, err)
		}
	}
	cron, err := p.op.crons.Get(key)
	switch {
	case err == nil && cron.Labels[v1alpha1.LabelOwner] == string(p.job.UID):
		p.cron = cron
	case err != nil && !errors.Is(err, kube.ErrAbsent):
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// converge does the steps in their order. The error is a transient one.
func (p *pass) converge(ctx context.Context) error {
	r, err := resolve(p.job, cached{ctx, p.op})
	if err == nil {
		p.plan, err = newPlan(r)
	}
	if p.problem.take(err) {
		p.transient = p.hold(ctx)
		return errors.Join(p.transient, p.run(ctx))
	}
	if err != nil {
		return err
	}
	p.transient = p.children(ctx)
	p.baseReady = p.transient == nil && p.problem.reason == ""
	return errors.Join(p.transient, p.run(ctx))
}

// hold lets the CronJob start no more runs while something is missing.
func (p *pass) hold(ctx context.Context) error {
	if p.cron == nil || p.cron.Spec.Suspend != nil && *p.cron.Spec.Suspend {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"suspend":true}}`, p.cron.UID)
	o, err := p.op.client.Resource(cronsResource).Namespace(p.job.Namespace).
		Patch(ctx, p.cron.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		p.op.crons.Wrote(o)
	}
	return err
}

// children applies all children but the Job of a run, and deletes the ones no longer wanted.
func (p *pass) children(ctx context.Context) error {
	objects := p.plan.base()
	scheduled := p.job.Spec.Schedule != ""
	denied, err := p.denied()
	if err != nil {
		return err
	}
	if denied != nil {
		p.problem = *denied
		objects = slices.DeleteFunc(objects, isRights)
	}
	if scheduled {
		objects = append(objects, p.plan.cron(p.job.Spec.Suspend || p.problem.reason != ""))
	}
	set, err := apply.NewSet(owner(), objects, apply.SetOptions{Part: string(p.job.UID), Ignore: p.op.ignore})
	if p.problem.refuses(err) {
		return nil
	}
	report, err := p.op.applier.Apply(ctx, set)
	kit.RecordOverrides(report, p.event)
	if ctx.Err() != nil {
		return err
	}
	transient := p.problem.judge(report.Results)
	_, pruneErr := p.op.applier.Prune(ctx, set, apply.PruneOptions{Complete: true, Keep: p.keeps})
	if p.problem.reason != "" {
		return errors.Join(transient, pruneErr, p.hold(ctx))
	}
	if transient == nil && p.job.Spec.Persist {
		if err := p.op.claims.grow(ctx, p.job); !p.problem.take(err) {
			transient = err
		}
	}
	return errors.Join(transient, pruneErr)
}

func isRights(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "rbac.authorization.k8s.io"
}

// keeps protects what a run uses that is under way, and the Jobs, which go by decision.
func (p *pass) keeps(o apply.Observed) bool {
	switch o.ID.Kind {
	case "Job":
		return true
	case "ConfigMap":
		return slices.ContainsFunc(p.runs, func(run *batchv1.Job) bool {
			return underWay(run) && o.ID.Name == configName(p.job.Name, run.Annotations[v1alpha1.AnnotationConfigHash])
		})
	case "PersistentVolumeClaim", "ServiceAccount", "NetworkPolicy":
		return slices.ContainsFunc(p.runs, underWay)
	default:
		return false
	}
}

// run decides about the run, records first, and then does it.
func (p *pass) run(ctx context.Context) error {
	f := facts{
		ready: p.baseReady, scheduled: p.job.Spec.Schedule != "", suspended: p.job.Spec.Suspend,
		onChange: p.job.Spec.OnChange, last: p.job.Status.LastRun, now: p.op.now(), keep: p.op.limits.keep,
	}
	if p.plan != nil {
		f.want = p.plan.want()
	}
	for _, run := range p.runs {
		if controller := metav1.GetControllerOf(run); controller == nil || controller.UID != p.job.UID {
			continue // of the CronJob
		}
		f.jobs = append(f.jobs, observe(run, p.podsOf(run), f.last))
	}
	if behind, err := p.behind(ctx); behind || err != nil {
		p.again = 5 * time.Second // an event comes before that
		return err
	}
	d := decide(f)
	p.again, p.due = d.after, f.due(d.last)
	if err := p.record(ctx, d.last); err != nil {
		return err
	}
	if err := errors.Join(p.release(ctx, d.release), p.remove(ctx, d.remove)); err != nil {
		return err
	}
	if d.start {
		return p.begin(ctx, f)
	}
	return errors.Join(p.refusals(ctx), p.extra(ctx, f))
}

// behind reports whether the Job of the last run exists though no watch shows it: the watch
// of Jobs is behind the watch of AgentJobs, or another program removed labels from the Job,
// which it puts back. That a run was deleted needs proof.
func (p *pass) behind(ctx context.Context) (bool, error) {
	last := p.job.Status.LastRun
	if last == nil || last.Outcome != "" || slices.ContainsFunc(p.runs, func(run *batchv1.Job) bool { return string(run.UID) == last.UID }) {
		return false, nil
	}
	o, err := p.op.client.Resource(runsResource).Namespace(p.job.Namespace).Get(ctx, last.Job, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Job %s, which is in no watch: %w", last.Job, err)
	}
	if string(o.GetUID()) != last.UID {
		return false, nil
	}
	return true, p.relabel(ctx, o)
}

// relabel gives a Job of this job the labels that it lacks.
func (p *pass) relabel(ctx context.Context, run *unstructured.Unstructured) error {
	stated, has := labels(p.job), run.GetLabels()
	maps.DeleteFunc(stated, func(key string, value any) bool { return has[key] == value })
	if len(stated) == 0 {
		return nil
	}
	patch, err := json.Marshal(object{"metadata": object{"uid": run.GetUID(), "labels": stated}})
	if err != nil {
		return err
	}
	_, err = p.op.client.Resource(runsResource).Namespace(run.GetNamespace()).
		Patch(ctx, run.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("label Job %s again: %w", run.GetName(), err)
	}
	return nil
}

func (p *pass) podsOf(run *batchv1.Job) (pods []*corev1.Pod) {
	for _, key := range p.op.pods.Users(kube.Reference{Resource: runsResource, Namespace: run.Namespace, Name: run.Name}) {
		if pod, err := p.op.pods.Get(key); err == nil && metav1.IsControlledBy(pod, run) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// record writes the last run to the status, if it is another, with the phase and the conditions
// of it: a reader never sees a run with the outcome of the one before.
func (p *pass) record(ctx context.Context, last *v1alpha1.Run) error {
	if equality.Semantic.DeepEqual(last, p.job.Status.LastRun) {
		return nil
	}
	uid, before := p.job.UID, p.job.Status.LastRun
	if err := p.op.status.Update(ctx, p.job, func(job *v1alpha1.AgentJob) {
		if job.UID == uid {
			job.Status.LastRun = last
			p.fill(job)
		}
	}); err != nil {
		return fmt.Errorf("record the run: %w", err)
	}
	if !equality.Semantic.DeepEqual(last, p.job.Status.LastRun) {
		return errors.New("record the run: the job has changed meanwhile")
	}
	p.op.metrics.recorded(before, last)
	return nil
}

// release takes the finalizer from Jobs whose outcome is recorded.
func (p *pass) release(ctx context.Context, names []string) error {
	var failed []error
	for _, run := range p.runs {
		if !slices.Contains(names, run.Name) {
			continue
		}
		failed = append(failed, p.op.release(ctx, run))
	}
	return errors.Join(failed...)
}

// release takes our finalizer, and no other, from a Job.
func (w *operator) release(ctx context.Context, run *batchv1.Job) error {
	f := kube.Finalizer{Client: w.client, Resource: runsResource, Name: v1alpha1.Finalizer}
	if err := f.Remove(ctx, run.DeepCopy()); err != nil {
		return fmt.Errorf("release Job %s: %w", run.Name, err)
	}
	return nil
}

// remove deletes Jobs with their pods: a Job exists until its pods are deleted.
func (p *pass) remove(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	ids := make([]apply.ID, len(names))
	for i, name := range names {
		ids[i] = apply.ID{Group: "batch", Kind: "Job", Namespace: p.job.Namespace, Name: name}
	}
	_, err := p.op.applier.Delete(ctx, ids, apply.DeleteOptions{Propagation: metav1.DeletePropagationForeground})
	return err
}

// requeue returns when to look again without an event. No watch shows when a name that is
// taken is free, nor when the API server has seen a ceiling that was raised; package apply
// asks for it ever more seldom.
func (p *pass) requeue() time.Duration {
	again := min(cmp.Or(p.again, atRest), atRest)
	if p.problem.reason == reasonTaken || p.problem.reason == reasonDenied {
		again = min(again, 30*time.Second)
	}
	return again
}

// teardown deletes the children of a job. It is over when no child exists any more,
// rights above all.
func (w *operator) teardown(ctx context.Context, job *v1alpha1.AgentJob) (gone bool, err error) {
	p := &pass{op: w, job: job}
	if err := p.observe(kube.KeyOf(job)); err != nil {
		return false, err
	}
	left, err := w.applier.DeletePart(ctx, string(job.UID), apply.DeleteOptions{})
	var failed []error
	for _, run := range p.runs {
		failed = append(failed, w.release(ctx, run))
	}
	if err := errors.Join(append(failed, err)...); err != nil {
		return false, errors.Join(err, p.stuck(ctx, err))
	}
	if left.Remaining > 0 || len(left.Results) > 0 {
		return false, nil
	}
	w.claims.forget(job.UID)
	return true, nil
}
