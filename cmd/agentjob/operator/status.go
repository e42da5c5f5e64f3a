package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// The conditions and their reasons.
const (
	conditionReady    = "Ready"
	conditionResolved = "Resolved"
	conditionAccess   = "AccessReady"
	conditionFinished = "Finished"

	reasonReconciled = "Reconciled"
	reasonResolve    = "ResolveFailed"
	reasonInvalid    = "InvalidSpec"
	reasonTaken      = "NameTaken"
	reasonDenied     = "AccessDenied"
	reasonRunFailed  = "RunFailed"
	reasonTransient  = "ApplyFailed"
)

// problem is what keeps a job from running, and does not go by itself. The zero value is
// none.
type problem struct{ reason, message string }

// take notes an error that only a change cures, and reports whether it is one.
func (p *problem) take(err error) bool {
	if broken, ok := errors.AsType[*brokenError](err); ok {
		*p = problem{reasonResolve, broken.Error()}
		return true
	}
	if errors.Is(err, errInvalid) {
		*p = problem{reasonInvalid, err.Error()}
		return true
	}
	return false
}

// refuses notes an error of a set, which only a change cures, and reports whether there
// is one.
func (p *problem) refuses(err error) bool {
	if err != nil {
		*p = problem{reasonInvalid, err.Error()}
	}
	return err != nil
}

// judge splits the results of an apply into the problem and the error, which joins the errors
// that may resolve by themselves.
func (p *problem) judge(results []apply.Result) error {
	var transient, blocked []error
	for _, r := range results {
		var found problem
		switch reason := apply.CauseOf(r.Err).Reason; {
		case r.Err == nil:
			continue
		case reason == apply.ReasonBlocked:
			blocked = append(blocked, fmt.Errorf("%s: %w", r.ID, r.Err))
			continue
		case reason == apply.ReasonNotOurs:
			found = problem{reasonTaken, fmt.Sprintf("%s exists and is not of this job", r.ID)}
		case reason == apply.ReasonClaimed:
			found = problem{reasonTaken, fmt.Sprintf("%s exists and is of another job", r.ID)}
		case reason == apply.ReasonForbidden && strings.Contains(r.ID.Kind, "Role"):
			found = problem{reasonDenied, fmt.Sprintf("%s: %v", r.ID, r.Err)}
		case reason == apply.ReasonInvalid:
			found = problem{reasonInvalid, fmt.Sprintf("%s: %v", r.ID, r.Err)}
		default:
			transient = append(transient, fmt.Errorf("%s: %w", r.ID, r.Err))
			continue
		}
		if p.reason == "" {
			*p = found
		}
	}
	if p.reason == "" && len(transient) == 0 {
		return errors.Join(blocked...)
	}
	return errors.Join(transient...)
}

// report writes the status, and an Event if the state has changed.
func (p *pass) report(ctx context.Context) error {
	if err := p.op.status.Update(ctx, p.job, p.fill); err != nil {
		return err
	}
	p.op.metrics.observed(p.job)
	after := readyOf(p.job)
	if p.before.Reason == after.Reason && p.before.Status == after.Status {
		return nil
	}
	kind := kube.EventNormal
	if after.Status != metav1.ConditionTrue {
		kind = kube.EventWarning
	}
	p.event(kind, after.Reason, after.Message)
	return nil
}

// event records an Event about the AgentJob.
func (p *pass) event(eventType, reason, note string) {
	p.op.events.Record(v1alpha1.GroupVersion().WithKind("AgentJob"), p.job, eventType, reason, note)
}

func readyOf(job *v1alpha1.AgentJob) metav1.Condition {
	if c := meta.FindStatusCondition(job.Status.Conditions, conditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// fill sets the status to what the pass has found.
func (p *pass) fill(job *v1alpha1.AgentJob) {
	s := &job.Status
	if p.plan != nil {
		s.ConfigHash, s.TemplateHash = p.plan.configHash, p.plan.templateHash
		s.Owned = p.owned()
	}
	run := s.LastRun
	if job.Spec.Schedule != "" {
		p.fillSchedule(s)
	} else {
		s.LastSuccessfulTime, s.MissedStarts = nil, 0
		if run != nil {
			s.LastRunTime, s.LastCompletionTime = run.Started, run.Finished
		}
	}
	s.Phase, s.Message = p.phase(job)
	p.conditions(job)
}

// phase returns the state in a word and a sentence.
func (p *pass) phase(job *v1alpha1.AgentJob) (v1alpha1.Phase, string) {
	run := job.Status.LastRun
	active := run != nil && run.Outcome == ""
	switch {
	case p.problem.reason == reasonTaken || p.problem.reason == reasonInvalid:
		return v1alpha1.Failed, p.problem.message
	case p.problem.reason != "":
		return v1alpha1.Pending, p.problem.message
	case p.transient != nil && !active && (run == nil || run.Outcome == v1alpha1.RunReplaced):
		return v1alpha1.Pending, p.transient.Error()
	case active && p.cause().Reason != "":
		return v1alpha1.Pending, p.cause().Message
	case active && run.Started != nil:
		return v1alpha1.Running, ""
	case active:
		return v1alpha1.Pending, "the Job is started"
	case job.Spec.Suspend:
		return v1alpha1.Suspended, ""
	case job.Spec.Schedule != "":
		return v1alpha1.Scheduled, ""
	case run == nil || run.Outcome == v1alpha1.RunReplaced:
		return v1alpha1.Pending, "the run is about to start"
	case run.Outcome == v1alpha1.RunSucceeded:
		return v1alpha1.Succeeded, ""
	default:
		return v1alpha1.Failed, outcomeOf(run)
	}
}

func outcomeOf(run *v1alpha1.Run) string {
	text := "the run failed: " + run.Reason
	if run.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *run.ExitCode)
	}
	return text
}

func (p *pass) conditions(job *v1alpha1.AgentJob) {
	set := func(kind string, ok bool, reason, message string) {
		status := metav1.ConditionTrue
		if !ok {
			status = metav1.ConditionFalse
		}
		kube.SetCondition(&job.Status.Conditions, kind, status, reason, message)
	}
	if p.problem.reason == reasonResolve {
		set(conditionResolved, false, reasonResolve, p.problem.message)
	} else {
		set(conditionResolved, true, "Resolved", "")
	}
	switch {
	case p.plan == nil:
	case p.plan.from.access == nil:
		meta.RemoveStatusCondition(&job.Status.Conditions, conditionAccess)
	case p.problem.reason == reasonDenied:
		set(conditionAccess, false, reasonDenied, p.problem.message)
	default:
		set(conditionAccess, true, "Granted", "")
	}
	run := job.Status.LastRun
	switch {
	case p.problem.reason != "":
		set(conditionReady, false, p.problem.reason, p.problem.message)
	case p.transient != nil:
		set(conditionReady, false, reasonTransient, p.transient.Error())
	case p.cause().Reason != "":
		set(conditionReady, false, string(p.cause().Reason), p.cause().Message)
	case job.Spec.Schedule == "" && run != nil && (run.Outcome == v1alpha1.RunFailed || run.Outcome == v1alpha1.RunDeleted):
		set(conditionReady, false, reasonRunFailed, outcomeOf(run))
	case job.Spec.Schedule != "" && p.lastFailed() != "":
		set(conditionReady, false, reasonRunFailed, p.lastFailed())
	default:
		set(conditionReady, true, reasonReconciled, "")
	}
	switch last := p.lastRun(job); {
	case last == nil:
		meta.RemoveStatusCondition(&job.Status.Conditions, conditionFinished)
	case p.due:
		set(conditionFinished, false, string(v1alpha1.Pending), messageDue)
	case last.Outcome == "", last.Outcome == v1alpha1.RunReplaced:
		set(conditionFinished, false, string(v1alpha1.Running), "")
	case last.Outcome == v1alpha1.RunSucceeded:
		set(conditionFinished, true, string(last.Outcome), "")
	default:
		set(conditionFinished, true, string(last.Outcome), outcomeOf(last))
	}
}

// lastRun returns the run that started last, nil if there was none.
func (p *pass) lastRun(job *v1alpha1.AgentJob) *v1alpha1.Run {
	if job.Spec.Schedule == "" {
		return job.Status.LastRun
	}
	run := p.newest()
	if run == nil {
		return nil
	}
	seen := observe(run, p.podsOf(run), nil)
	return seen.toRun()
}

// owned names the children that are there.
func (p *pass) owned() []v1alpha1.OwnedObject {
	found := []v1alpha1.OwnedObject{}
	for o := range p.op.live.Part(string(p.job.UID)) {
		if o.Deleting || o.ID.Kind == "Job" && o.Controller != p.job.UID {
			continue
		}
		found = append(found, v1alpha1.OwnedObject{Kind: o.ID.Kind, Name: o.ID.Name})
	}
	slices.SortFunc(found, func(a, b v1alpha1.OwnedObject) int { return strings.Compare(a.Kind+" "+a.Name, b.Kind+" "+b.Name) })
	return found
}

// newest returns the run of the CronJob that started last.
func (p *pass) newest() (newest *batchv1.Job) {
	for _, run := range p.runs {
		if metav1.IsControlledBy(run, p.job) {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&run.CreationTimestamp) {
			newest = run
		}
	}
	return newest
}

// lastFailed explains how the newest run of the schedule failed, "" if it did not.
func (p *pass) lastFailed() string {
	run := p.newest()
	if run == nil {
		return ""
	}
	seen := observe(run, p.podsOf(run), nil)
	if seen.outcome != v1alpha1.RunFailed {
		return ""
	}
	return outcomeOf(seen.toRun())
}

func (p *pass) fillSchedule(s *v1alpha1.AgentJobStatus) {
	if p.cron != nil {
		if at := p.cron.Status.LastScheduleTime; at != nil {
			s.LastRunTime = at
		}
		s.LastSuccessfulTime = p.cron.Status.LastSuccessfulTime
		s.MissedStarts = p.missed()
	}
	if run := p.newest(); run != nil {
		if run.Status.StartTime != nil {
			s.LastRunTime = run.Status.StartTime
		}
		if seen := observe(run, nil, nil); seen.finished != nil {
			s.LastCompletionTime = seen.finished
		}
	}
}

// missed counts the times of the schedule that no run was started for, up to 100.
func (p *pass) missed() (n int32) {
	if p.job.Spec.Suspend || p.cron.Spec.Suspend != nil && *p.cron.Spec.Suspend {
		return 0
	}
	zone, err := time.LoadLocation(p.job.Spec.Timezone)
	schedule, parseErr := cron.ParseStandard(p.job.Spec.Schedule)
	if err != nil || parseErr != nil {
		return 0
	}
	from := p.cron.CreationTimestamp.Time
	if p.cron.Status.LastScheduleTime != nil {
		from = p.cron.Status.LastScheduleTime.Time
	}
	// The controller of CronJobs may be a little late.
	const late = time.Minute
	for at := schedule.Next(from.In(zone)); at.Before(p.op.now().Add(-late)) && n < 100; at = schedule.Next(at) {
		n++
	}
	return n
}

// stuck notes why a deleted job is still there.
func (p *pass) stuck(ctx context.Context, why error) error {
	return p.op.status.Update(ctx, p.job, func(job *v1alpha1.AgentJob) {
		job.Status.Message = "deletion: " + why.Error()
		kube.SetCondition(&job.Status.Conditions, conditionReady, metav1.ConditionFalse, "DeletionFailed", why.Error())
	})
}
