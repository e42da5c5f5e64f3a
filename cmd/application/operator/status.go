package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// The reasons of conditions, beside the reasons of package external.
const (
	reasonReady       = "Reconciled"
	reasonWaiting     = "Waiting"
	reasonNoImage     = "ImageMissing"
	reasonApply       = "ApplyFailed"
	reasonProgressing = "Progressing"
	reasonRemoving    = "Removing"
	reasonDeletion    = "DeletionFailed"
	reasonNoParent    = "ParentNotFound"
	reasonVariables   = "VariablesMissing"
	reasonMigrating   = "Migrating"
	reasonMigration   = "MigrationFailed"
)

// report writes what the pass has found.
func (p *pass) report(ctx context.Context) error { return p.announce(ctx, p.fill) }

// announce writes the status, and an Event if the state has changed.
func (p *pass) announce(ctx context.Context, change func(*v1alpha1.ApplicationStatus)) error {
	before := readyOf(p.subject.app)
	if err := p.subject.write(ctx, change); err != nil {
		return err
	}
	if p.subject.home == nil {
		p.op.metrics.phase(p.subject.app)
	}
	after := readyOf(p.subject.app)
	if before.Reason == after.Reason && before.Status == after.Status {
		return nil
	}
	kind := kube.EventNormal
	steps := []string{reasonProgressing, reasonWaiting, reasonMigrating}
	if after.Status != metav1.ConditionTrue && !slices.Contains(steps, after.Reason) {
		kind = kube.EventWarning
	}
	p.event(kind, after.Reason, after.Message)
	return nil
}

// event records an Event about the object of the pass.
func (p *pass) event(eventType, reason, note string) {
	p.op.events.Record(v1alpha1.GroupVersion().WithKind(p.subject.kind), p.subject.object, eventType, reason, note)
}

// early writes what a part has failed with before it is tried again. A write that fails is
// made up for at the end of the pass.
func (p *pass) early(ctx context.Context, t *part) {
	err := p.subject.write(ctx, func(s *v1alpha1.ApplicationStatus) {
		p.fillPart(s, t)
		if !p.exists(p.deploymentID()) {
			s.Phase = v1alpha1.Pending
		}
		set(s, v1alpha1.ConditionReady, false, external.Reason(t.outside.Err), t.condition+": "+t.outside.Err.Error())
	})
	if err != nil {
		p.op.logger.DebugContext(ctx, "early status not written", slog.Any("error", err))
	}
}

func readyOf(app *v1alpha1.Application) metav1.Condition {
	if c := meta.FindStatusCondition(app.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// fill sets the status to what the pass has found.
func (p *pass) fill(s *v1alpha1.ApplicationStatus) {
	s.External = p.inventory(s)
	if s.URL = ""; p.hostErr == nil {
		s.URL = "https://" + p.host()
	}
	if p.subject.home != nil {
		p.fillHome(s)
	}
	if p.homeErr != nil {
		return
	}
	for _, t := range p.parts {
		p.fillPart(s, t)
	}
	p.fillMigrations(s)
	deployment, ingress := p.fillWorkload(s)
	p.fillReady(s, deployment, ingress)
}

func set(s *v1alpha1.ApplicationStatus, kind string, ok bool, reason, message string) {
	status := metav1.ConditionTrue
	if !ok {
		status = metav1.ConditionFalse
	}
	kube.SetCondition(&s.Conditions, kind, status, reason, message)
}

func (p *pass) fillPart(s *v1alpha1.ApplicationStatus, t *part) {
	was, o := meta.FindStatusCondition(s.Conditions, t.condition), &t.outside
	switch {
	case !o.Wanted && o.Left != nil:
		set(s, t.condition, false, reasonRemoving, "is turned off and not removed yet: "+o.Left.Error())
	case !o.Wanted:
		meta.RemoveStatusCondition(&s.Conditions, t.condition)
	case errors.Is(o.Err, outside.ErrWaits):
		if was == nil {
			set(s, t.condition, false, reasonWaiting, o.Err.Error())
		}
	case o.Err != nil:
		set(s, t.condition, false, external.Reason(o.Err), o.Err.Error())
	case o.Left != nil:
		set(s, t.condition, true, reasonRemoving, "something that is no longer wanted is not removed yet: "+o.Left.Error())
	case o.Checked || was == nil || o.Make == nil, was.Reason == reasonRemoving && was.Status == metav1.ConditionTrue:
		set(s, t.condition, true, reasonReady, t.note)
	}
}

// fillWorkload sets the conditions of the workload, and returns them.
func (p *pass) fillWorkload(s *v1alpha1.ApplicationStatus) (deployment, ingress metav1.Condition) {
	state := func(kind, reason, message string) {
		set(s, kind, reason == reasonReady, reason, message)
	}
	switch {
	case p.subject.app.Spec.ImageRef == "":
		for _, kind := range []string{v1alpha1.ConditionDeployment, v1alpha1.ConditionIngress} {
			state(kind, reasonNoImage, "spec.imageRef: is not set; set it to the image of the app")
		}
	case p.held && p.ready == nil || p.held && p.ready[p.deploymentID()].Status == "":
		if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDeployment) == nil || !p.exists(p.deploymentID()) {
			for _, kind := range []string{v1alpha1.ConditionDeployment, v1alpha1.ConditionIngress} {
				state(kind, reasonWaiting, p.waitsFor())
			}
		}
	default:
		p.fillChildren(state)
	}
	if p.hostErr != nil {
		state(v1alpha1.ConditionIngress, hostReason(p.hostErr), p.hostErr.Error())
	}
	find := func(kind string) metav1.Condition {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	return find(v1alpha1.ConditionDeployment), find(v1alpha1.ConditionIngress)
}

// fillChildren reports how far the children are.
func (p *pass) fillChildren(state func(kind, reason, message string)) {
	for _, c := range []struct {
		condition string
		mine      func(apply.ID) bool
	}{
		{v1alpha1.ConditionIngress, func(id apply.ID) bool { return id.Kind == "Ingress" }},
		{v1alpha1.ConditionDeployment, func(id apply.ID) bool { return id.Kind == "Deployment" }},
	} {
		var waits []string
		seen := false
		for id, r := range p.ready {
			if !c.mine(id) {
				continue
			}
			seen = true
			if r.Status != readiness.Current {
				wait := fmt.Sprintf("%s %s: %s", id.Kind, id.Name, r.Message)
				if id == p.deploymentID() && p.cause.Reason != "" {
					wait += fmt.Sprintf("; %s: %s", p.cause.Reason, p.cause.Message)
				}
				waits = append(waits, wait)
			}
		}
		slices.Sort(waits)
		switch {
		case p.held && !seen: // it stays as it is
		case p.workErr != nil && !p.held:
			state(c.condition, reasonApply, p.workErr.Error())
		case c.condition == v1alpha1.ConditionDeployment && p.cause.Outlook != "" && p.cause.Outlook != readiness.Waiting:
			state(c.condition, string(p.cause.Reason), strings.Join(waits, "; "))
		case len(waits) > 0 || !seen:
			state(c.condition, reasonProgressing, strings.Join(waits, "; "))
		case c.condition == v1alpha1.ConditionDeployment:
			state(c.condition, reasonReady, p.withheldNote())
		default:
			state(c.condition, reasonReady, "")
		}
	}
}

// withheldNote says what a preview runs without.
func (p *pass) withheldNote() string {
	names := p.withheld()
	if len(names) == 0 {
		return ""
	}
	return "runs without " + strings.Join(
		names,
		", ",
	) + ", whose values are in Secrets: set spec.previews.secrets: true on the Application to give them to its previews"
}

func (p *pass) exists(id apply.ID) bool {
	_, err := p.op.live.Get(id)
	return err == nil
}

// waitsFor names the parts that the workload waits for.
func (p *pass) waitsFor() string {
	var names []string
	for _, t := range p.parts {
		if t.outside.Wanted && !p.outside.Usable(&t.outside) {
			names = append(names, t.outside.Name)
		}
	}
	if p.variablesErr != nil {
		names = append(names, p.variablesErr.Error())
	}
	if len(names) == 0 && !p.migrated() {
		names = append(names, "migrations")
	}
	return "waits for: " + strings.Join(names, ", ")
}

// fillReady sums up.
func (p *pass) fillReady(s *v1alpha1.ApplicationStatus, deployment, ingress metav1.Condition) {
	running := deployment.Status == metav1.ConditionTrue && ingress.Status == metav1.ConditionTrue
	refused := false
	var first *metav1.Condition
	for _, t := range p.parts {
		c, o := meta.FindStatusCondition(s.Conditions, t.condition), &t.outside
		if o.Wanted && c != nil && c.Status != metav1.ConditionTrue && first == nil {
			first = c
		}
		failed := o.Wanted && o.Err != nil && !errors.Is(o.Err, outside.ErrWaits)
		refused = refused || failed && external.Reason(o.Err) != external.ReasonUnreachable
	}
	migrations := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionMigrations)
	migrates := migrations != nil && migrations.Status != metav1.ConditionTrue
	switch {
	case migrates && migrations.Reason == reasonMigration:
		s.Phase = v1alpha1.Failed
	case running && !migrates:
		s.Phase = v1alpha1.Running
	case p.cause.Outlook == readiness.Lasting || refused || p.hostErr != nil ||
		deployment.Reason == reasonNoImage || deployment.Reason == reasonApply:
		s.Phase = v1alpha1.Failed
	case p.held && p.migration.reason == "" && !p.exists(p.deploymentID()):
		s.Phase = v1alpha1.Pending
	default:
		s.Phase = v1alpha1.Provisioning
	}
	switch {
	case first != nil:
		set(s, v1alpha1.ConditionReady, false, first.Reason, first.Type+": "+first.Message)
	case p.hostErr != nil:
		set(s, v1alpha1.ConditionReady, false, ingress.Reason, ingress.Type+": "+ingress.Message)
	case p.variablesErr != nil:
		set(s, v1alpha1.ConditionReady, false, reasonVariables, p.variablesErr.Error())
	case migrates:
		set(s, v1alpha1.ConditionReady, false, migrations.Reason, migrations.Type+": "+migrations.Message)
	case !running && deployment.Status != metav1.ConditionTrue:
		set(s, v1alpha1.ConditionReady, false, deployment.Reason, deployment.Message)
	case !running:
		set(s, v1alpha1.ConditionReady, false, ingress.Reason, ingress.Message)
	default:
		set(s, v1alpha1.ConditionReady, true, reasonReady, strings.Join(p.withoutEffect(), "; "))
	}
}
