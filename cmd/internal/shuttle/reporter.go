package shuttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// reporter tells Starbase where each service stands: after a pass in which that
// changed, and from time to time.
type reporter struct {
	client   *client
	instance string
	changed  func()

	mu     sync.Mutex
	report *starbase.StatusReport
}

// Reconcile implements reconcile.Reconciler: one report.
func (r *reporter) Reconcile(ctx context.Context) (reconcile.Result, error) {
	r.mu.Lock()
	report := r.report
	r.mu.Unlock()
	if report == nil {
		return reconcile.Result{}, nil
	}
	for services := range slices.Chunk(report.Services, starbase.MaxStatusServices) {
		part := *report
		part.Services = services
		if err := r.client.report(ctx, &part); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// update takes the outcome of a pass.
func (r *reporter) update(current *accepted, report apply.Report, held map[labelled]int) {
	if current.state.Basic() {
		return // that server has no ear for it
	}
	next := &starbase.StatusReport{
		Epoch: current.state.Epoch, Generation: current.state.Generation, InstanceID: r.instance,
		Services: statuses(current, report, held),
	}
	r.mu.Lock()
	same := r.report != nil && r.report.Epoch == next.Epoch && r.report.Generation == next.Generation &&
		slices.Equal(r.report.Services, next.Services)
	if !same {
		r.report = next
	}
	r.mu.Unlock()
	if !same {
		r.changed()
	}
}

func statuses(current *accepted, report apply.Report, held map[labelled]int) []starbase.ServiceStatus {
	results := make(map[apply.ID]apply.Result, len(report.Results))
	for _, result := range report.Results {
		results[result.ID] = result
	}
	list := make([]starbase.ServiceStatus, 0, len(current.rendered.Services)+len(current.rendered.Rejected))
	for i := range current.rendered.Services {
		s := &current.rendered.Services[i]
		status := newStatus(s.Identity, current.state.Generation)
		status.Desired = s.Replicas
		status.Phase, status.ErrorClass, status.Message = stand(s, results)
		list = append(list, status)
	}
	for _, rejection := range current.rendered.Rejected {
		status := newStatus(rejection.Identity, current.state.Generation)
		status.Phase, status.ErrorClass, status.Message = starbase.PhaseRejected, rejection.Class, shorten(rejection.Message)
		list = append(list, status)
	}
	for i := range current.state.Services {
		s := &current.state.Services[i]
		if n := held[labelsOf(s.Identity())]; s.Deleted && n > 0 {
			status := newStatus(s.Identity(), current.state.Generation)
			status.Phase, status.ErrorClass = starbase.PhaseFailed, starbase.ClassDeletionHeld
			status.Message = fmt.Sprintf("%d objects are not deleted: more at once than the limit allows; see allow-mass-delete", n)
			list = append(list, status)
		}
	}
	slices.SortStableFunc(list, func(a, b starbase.ServiceStatus) int { return a.Identity().Compare(b.Identity()) })
	return list
}

func newStatus(id starbase.Identity, generation int64) starbase.ServiceStatus {
	return starbase.ServiceStatus{ProjectID: id.ProjectID, Environment: id.Environment, ServiceID: id.ServiceID, ObservedGeneration: generation}
}

// stand judges a service by what happened to its objects and to those it needs.
// That its pods run is not claimed here.
func stand(s *RenderedService, results map[apply.ID]apply.Result) (phase starbase.Phase, class, message string) {
	var failures []string
	phase = starbase.PhaseProgressing
	for _, id := range slices.Concat(s.Shared, s.Objects) {
		result, ok := results[id]
		if !ok || result.Err == nil {
			continue
		}
		failures = append(failures, fmt.Sprintf("%s: %v", id, result.Err))
		switch {
		case errors.Is(result.Err, apply.ErrNotOurs):
			phase, class = starbase.PhaseRejected, starbase.ClassNameTaken
		case result.Action == apply.Waiting && phase == starbase.PhaseProgressing:
			phase, class = starbase.PhaseApplying, "Waiting"
		case result.Action != apply.Waiting && phase != starbase.PhaseRejected:
			phase, class = starbase.PhaseFailed, "ApplyFailed"
		}
	}
	return phase, class, shorten(strings.Join(failures, "; "))
}

// shorten cuts a message to what Starbase takes.
func shorten(message string) string {
	if len(message) <= starbase.MaxStatusMessage {
		return message
	}
	cut := starbase.MaxStatusMessage
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut]
}
