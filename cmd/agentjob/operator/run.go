package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

// A run is started at most once for each thing that asks for it, whatever is lost on
// the way:
//
//   - The name of its Job is made of the run hash and the annotation rerun, so that a
//     repeated creation finds the first.
//   - The Job carries a finalizer until its outcome is in the status of the AgentJob: a
//     Job that is not there has not run, or its outcome is recorded.
//   - What ends a run is recorded before the Job is deleted.

// want is the run that an AgentJob asks for.
type want struct {
	hash  string // the run hash
	rerun string // the annotation
}

// jobSuffix returns the suffix that distinguishes the Job of a run.
func (w want) jobSuffix() string {
	if w.rerun == "" {
		return w.hash
	}
	sum := sha256.Sum256([]byte(w.hash + "\x00" + w.rerun))
	return hex.EncodeToString(sum[:8])
}

// facts are the input of a decision.
type facts struct {
	want want
	// ready is whether all that a run needs is there: references, access, children.
	ready     bool
	scheduled bool // the CronJob starts the runs
	suspended bool
	onChange  v1alpha1.OnChange
	// last is the run in the status, nil if there was none.
	last *v1alpha1.Run
	jobs []observedJob
	now  time.Time
	// keep is how long a finished Job stays.
	keep time.Duration
}

// observedJob is a Job that was made for a run, as the complete view of them shows it.
type observedJob struct {
	name, uid string
	run       want
	// held is whether the finalizer keeps it: its outcome is not recorded, or was not
	// when it was looked at last.
	held     bool
	deleting bool
	started  *metav1.Time
	// outcome is empty while it runs.
	outcome  v1alpha1.Outcome
	finished *metav1.Time
	exitCode *int32
	// reason may be set while it runs: what it waits for.
	reason string
}

// decision is the plan of a pass; its steps run in this order.
type decision struct {
	// last is the run that the status must hold before the steps below. It equals
	// facts.last if there is nothing to record.
	last *v1alpha1.Run
	// release names the Jobs whose outcome is recorded: their finalizer is removed.
	release []string
	// remove names the Jobs to delete, of release alone.
	remove []string
	// start is whether the wanted run must be started now.
	start bool
	// after is when to decide again, zero if nothing but an event changes it.
	after time.Duration
}

// decide is a pure function: the same facts lead to the same decision. A process that dies
// between two steps is therefore followed by one that decides the rest.
func decide(f facts) decision {
	d := decision{last: f.last}
	active := d.record(f)
	if active != nil && f.ends(*active) {
		ended := *d.last
		ended.Outcome, ended.Finished = v1alpha1.RunReplaced, f.second()
		ended.ExitCode, ended.Reason = nil, ""
		d.last = &ended
	}
	d.clean(f)
	d.start = f.due(d.last) && !slices.ContainsFunc(f.jobs, func(j observedJob) bool {
		return j.outcome == "" || j.held || j.deleting || j.run == f.want
	})
	return d
}

// second returns the time as a status holds it.
func (f facts) second() *metav1.Time { return new(metav1.NewTime(f.now.Truncate(time.Second))) }

// record records the outcome of the last run, or of a started run that the status lacks
// because its answer was lost. It returns the Job of that run, if it still runs.
func (d *decision) record(f facts) (active *observedJob) {
	var own *observedJob
	newer := false
	for i := range f.jobs {
		switch j := &f.jobs[i]; {
		case d.last != nil && j.uid == d.last.UID:
			if !newer {
				own = j
			}
		case j.held:
			// No run is started before the one before is recorded.
			own, newer = j, true
		}
	}
	switch {
	case !newer && (d.last == nil || d.last.Outcome != ""):
		return nil
	case own == nil:
		lost := *d.last
		lost.Outcome, lost.Reason, lost.Finished = v1alpha1.RunDeleted, reasonDeleted, f.second()
		d.last = &lost
		return nil
	}
	d.last = own.toRun()
	switch {
	case own.outcome != "":
		return nil
	case own.deleting:
		d.last.Outcome, d.last.Reason, d.last.Finished = v1alpha1.RunDeleted, reasonDeleted, f.second()
		return nil
	default:
		return own
	}
}

func (j *observedJob) toRun() *v1alpha1.Run {
	return &v1alpha1.Run{
		RunHash: j.run.hash, Rerun: j.run.rerun, Job: j.name, UID: j.uid, Started: j.started,
		Finished: j.finished, Outcome: j.outcome, ExitCode: j.exitCode, Reason: j.reason,
	}
}

// ends reports whether a run under way must be ended.
func (f facts) ends(active observedJob) bool {
	switch {
	case f.scheduled:
		return true // the CronJob starts its runs now
	case f.suspended || !f.ready || f.onChange != v1alpha1.Replace:
		return false
	default:
		return active.run != f.want
	}
}

// clean finds the Jobs whose outcome is recorded, and which of them to delete.
func (d *decision) clean(f facts) {
	for _, j := range f.jobs {
		last := d.last != nil && j.uid == d.last.UID
		if last && d.last.Outcome == "" {
			continue
		}
		if j.held {
			d.release = append(d.release, j.name)
		}
		if j.deleting {
			continue
		}
		if last && !f.scheduled && d.last.Outcome != v1alpha1.RunReplaced && d.last.Finished != nil {
			if left := d.last.Finished.Add(f.keep).Sub(f.now); left > 0 {
				d.after = left
				continue
			}
		}
		d.remove = append(d.remove, j.name)
	}
}

// due reports whether the wanted run is one that was not started yet.
func (f facts) due(last *v1alpha1.Run) bool {
	switch {
	case f.scheduled || f.suspended || !f.ready:
		return false
	case last == nil:
		return true
	case last.Outcome == "":
		return false
	case f.want.rerun != "" && f.want.rerun != last.Rerun, last.Outcome == v1alpha1.RunReplaced:
		return true
	default:
		return f.want.hash != last.RunHash && f.onChange != v1alpha1.Keep
	}
}
