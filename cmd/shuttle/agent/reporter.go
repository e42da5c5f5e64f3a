package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// reporter reports the phase of each service, and what the cluster's configuration lacks,
// to Starbase: soon after a change, and
// every [reportInterval].
type reporter struct {
	client   *client
	rollouts *rollouts
	pods     *podView
	instance string
	region   string
	backoff  reconcile.Backoff // of a report that is not taken
	trigger  func()            // makes Reconcile run

	soon atomic.Bool // a trigger is on its way

	// Of Reconcile alone:
	sent   *starbase.StatusReport
	sentAt time.Time
	failed refused

	mu      sync.Mutex
	last    *outcome
	cluster [parts]problem
	epoch   string // of the last state that was not accepted
}

// refused is a report that was not taken: it is sent again at a time, although others trigger a pass before.
type refused struct {
	report *starbase.StatusReport
	err    error
	times  int
	again  time.Time
}

// outcome is what a pass found.
type outcome struct {
	current   *accepted
	results   map[apply.ID]apply.Result
	written   map[types.NamespacedName]written
	deletions deletions
}

// reportDelay is how long changes are collected before they are reported.
const reportDelay = 500 * time.Millisecond

// changed makes a report follow.
func (r *reporter) changed() {
	if r.soon.CompareAndSwap(false, true) {
		time.AfterFunc(reportDelay, r.trigger)
	}
}

// update takes the outcome of a pass.
func (r *reporter) update(next *outcome) {
	r.mu.Lock()
	r.last = next
	r.mu.Unlock()
	r.changed()
}

// updateCluster takes the problem that a part has now, zero for none.
func (r *reporter) updateCluster(of part, next problem) {
	r.mu.Lock()
	changed := r.cluster[of] != next
	r.cluster[of] = next
	r.mu.Unlock()
	if changed {
		r.changed()
	}
}

// updateState takes why a state of that epoch was not accepted, zero if it was. Without an epoch the state
// was not read at all.
func (r *reporter) updateState(epoch string, next problem) {
	r.mu.Lock()
	r.epoch = epoch
	r.mu.Unlock()
	r.updateCluster(ofState, next)
}

// Reconcile implements reconcile.Reconciler: one report, unless a recent one
// was the same.
func (r *reporter) Reconcile(ctx context.Context) (reconcile.Result, error) {
	r.soon.Store(false)
	r.mu.Lock()
	last, cluster, epoch := r.last, together(&r.cluster), r.epoch
	r.mu.Unlock()
	next := r.report(last, cluster, epoch)
	if next == nil {
		return reconcile.Result{}, nil
	}
	if left := reportInterval - time.Since(r.sentAt); r.sent != nil && same(r.sent, next) && left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if f := r.failed; f.report != nil && same(f.report, next) && time.Now().Before(f.again) {
		return reconcile.Result{}, f.err
	}
	began := time.Now()
	if err := r.send(ctx, next); err != nil {
		times := r.failed.times + 1
		wait, _ := r.backoff.Next(times)
		r.failed = refused{report: next, err: err, times: times, again: time.Now().Add(wait)}
		return reconcile.Result{}, err
	}
	r.sent, r.sentAt, r.failed = next, began, refused{}
	return reconcile.Result{RequeueAfter: reportInterval - time.Since(began)}, nil
}

// report makes the report of a pass. Without one it says why no state was accepted, if the epoch of that
// state is known. Nil: there is nothing to report, or the server lacks the endpoint.
func (r *reporter) report(last *outcome, cluster problem, epoch string) *starbase.StatusReport {
	switch {
	case last != nil && last.current.state.Basic():
		return nil
	case last == nil && (epoch == "" || cluster == problem{}):
		return nil
	case last == nil:
		return &starbase.StatusReport{
			Epoch: epoch, InstanceID: r.instance, Region: r.region, Services: starbase.Statuses{},
			ClusterErrorClass: cluster.class, ClusterMessage: cluster.message,
		}
	}
	next := &starbase.StatusReport{
		Epoch: last.current.state.Epoch, Generation: last.current.state.Generation, InstanceID: r.instance, Region: r.region,
		ClusterErrorClass: cluster.class, ClusterMessage: cluster.message, HeldDeletions: last.deletions.held,
	}
	var complete bool
	next.Services, complete = r.statuses(last)
	next.Complete = complete && len(next.Services) <= starbase.MaxStatusServices && len(last.deletions.projects) <= starbase.MaxStatusServices
	if next.Complete {
		for project := range last.deletions.projects {
			next.LeftProjects = append(next.LeftProjects, uuidOf(project))
		}
		slices.Sort(next.LeftProjects)
	}
	return next
}

// send sends a report in parts that Starbase takes: at least one, also without services, since it
// confirms the deletion of services.
func (r *reporter) send(ctx context.Context, next *starbase.StatusReport) error {
	for from := 0; from == 0 || from < len(next.Services); from += starbase.MaxStatusServices {
		part := *next
		part.Services = next.Services[from:min(from+starbase.MaxStatusServices, len(next.Services))]
		if err := r.client.report(ctx, &part); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two reports of this process say the same.
func same(a, b *starbase.StatusReport) bool {
	return a.Epoch == b.Epoch && a.Generation == b.Generation && a.Complete == b.Complete &&
		a.ClusterErrorClass == b.ClusterErrorClass && a.ClusterMessage == b.ClusterMessage &&
		reflect.DeepEqual(a.HeldDeletions, b.HeldDeletions) && slices.Equal(a.Services, b.Services) &&
		slices.Equal(a.LeftProjects, b.LeftProjects)
}

// statuses returns the status of each service and of each other that has objects left,
// and whether these are all.
func (r *reporter) statuses(o *outcome) (list []starbase.ServiceStatus, complete bool) {
	generation := o.current.state.Generation
	rendered := &o.current.rendered
	left := maps.Clone(o.deletions.left)
	list = make([]starbase.ServiceStatus, 0, len(rendered.Services)+len(rendered.Rejected))
	digests := r.pods.digests()
	for i := range rendered.Services {
		s := &rendered.Services[i]
		status := newStatus(s.Identity, generation)
		status.Desired, status.ImageDigest = s.Replicas, digests[s.Identity]
		status.Phase, status.ErrorClass, status.Message = stand(s, o.results)
		if err := o.current.invalid[s.Identity]; err != nil {
			status.Phase, status.ErrorClass, status.Message = starbase.PhaseRejected, classInvalid, shorten(err.Error())
		}
		if pods, ok := r.rollouts.of(s.Deployment, o.written[s.Deployment]); ok {
			status.Ready = int(pods.ready)
			if s.Autoscaled { // it has as many as its autoscaler wants
				status.Desired = int(pods.desired)
			}
			if status.Phase == starbase.PhaseProgressing {
				status.Phase, status.ErrorClass, status.Message = progress(pods, r.pods.cause(s.Identity))
			}
		}
		if more := left[labelsOf(s.Identity)]; more.stuck() && (status.ErrorClass == "" || status.Phase == starbase.PhaseProgressing) {
			_, status.ErrorClass, status.Message = more.status()
		}
		delete(left, labelsOf(s.Identity))
		list = append(list, status)
	}
	for _, rejection := range rendered.Rejected {
		status := newStatus(rejection.Identity, generation)
		status.ImageDigest = digests[rejection.Identity]
		status.Phase, status.ErrorClass, status.Message = starbase.PhaseRejected, rejection.Class, shorten(rejection.Message)
		list = append(list, status)
	}
	for at, l := range left {
		status := newStatus(
			starbase.Identity{ProjectID: uuidOf(at.project), Environment: at.environment, ServiceID: uuidOf(at.service)},
			generation,
		)
		status.Phase, status.ErrorClass, status.Message = l.status()
		list = append(list, status)
	}
	slices.SortStableFunc(list, func(a, b starbase.ServiceStatus) int { return a.Identity().Compare(b.Identity()) })
	return list, !o.deletions.open
}

// progress judges a service whose objects are as wanted by its rollout and by why its pods
// are not ready.
func progress(found rollout, pods readiness.Cause) (phase starbase.Phase, class, message string) {
	if found.complete() {
		return starbase.PhaseHealthy, "", ""
	}
	cause := readiness.First(found.cause, pods)
	switch cause.Outlook {
	case readiness.Lasting:
		phase = starbase.PhaseFailed
	case readiness.Transient:
		phase = starbase.PhaseProgressing
	default:
		return starbase.PhaseProgressing, "", ""
	}
	return phase, string(cause.Reason), shorten(cause.Message)
}

// classApplyFailed is an object that could not be written.
const classApplyFailed = "ApplyFailed"

func newStatus(id starbase.Identity, generation int64) starbase.ServiceStatus {
	return starbase.ServiceStatus{
		ProjectID:          id.ProjectID,
		Environment:        id.Environment,
		ServiceID:          id.ServiceID,
		ObservedGeneration: generation,
	}
}

// stand judges a service by what happened to its objects and to those it needs.
// Without a failure it is Progressing: readiness decides whether its pods run.
func stand(s *RenderedService, results map[apply.ID]apply.Result) (phase starbase.Phase, class, message string) {
	var failures []string
	taken, last := map[string]int{}, "" // where the objects of the same reason are among the failures
	phase = starbase.PhaseProgressing
	for _, id := range slices.Concat(s.Shared, s.Objects) {
		result, ok := results[id]
		if !ok || result.Err == nil {
			continue
		}
		if text := result.Err.Error(); errors.Is(result.Err, apply.ErrNotOurs) {
			last = "; rename the service, or remove what has its names"
			if at, again := taken[text]; again {
				failures[at] = fmt.Sprintf("%s, %s", id, failures[at])
			} else {
				taken[text] = len(failures)
				failures = append(failures, fmt.Sprintf("%s: %s", id, text))
			}
		} else {
			failures = append(failures, fmt.Sprintf("%s: %s", id, text))
		}
		_, fought := errors.AsType[*apply.FightError](result.Err)
		switch {
		case errors.Is(result.Err, apply.ErrNotOurs):
			phase, class = starbase.PhaseRejected, starbase.ClassNameTaken
		case result.Action == apply.Waiting && phase == starbase.PhaseProgressing:
			phase, class = starbase.PhaseApplying, "Waiting"
		case fought && phase != starbase.PhaseRejected:
			phase, class = starbase.PhaseFailed, starbase.ClassContested
		case result.Action != apply.Waiting && phase != starbase.PhaseRejected:
			phase, class = starbase.PhaseFailed, classApplyFailed
		}
	}
	text := strings.Join(failures, "; ")
	return phase, class, shorten(shortenTo(text, starbase.MaxStatusMessage-len(last)) + last)
}

// shorten cuts a message to what Starbase takes.
func shorten(message string) string { return shortenTo(message, starbase.MaxStatusMessage) }

func shortenTo(message string, cut int) string {
	if len(message) <= cut {
		return message
	}
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut]
}
