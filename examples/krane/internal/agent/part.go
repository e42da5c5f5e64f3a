package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/examples/krane/internal/render"
)

// part is one component in the cluster. Its Applier is used by one goroutine,
// which takes all that waits into one pass: an object that is slow to apply does
// not make the others wait one by one.
type part struct {
	component render.Component
	owner     apply.Owner
	live      *apply.Live
	applier   *apply.Applier
	jobs      chan *job
}

// passTimeout bounds one pass.
const passTimeout = time.Minute

// job is objects to apply, or something else to do with the Applier.
type job struct {
	objects []*unstructured.Unstructured
	do      func(ctx context.Context) error
	done    chan struct{}
	results []apply.Result
	err     error
}

// apply applies the objects and returns the results of those that were not as
// they should be, valid with an error.
func (p *part) apply(ctx context.Context, objects []*unstructured.Unstructured) ([]apply.Result, error) {
	j := &job{objects: objects, done: make(chan struct{})}
	err := p.submit(ctx, j)
	return j.results, err
}

// exclusive calls do while nothing is applied.
func (p *part) exclusive(ctx context.Context, do func(ctx context.Context) error) error {
	return p.submit(ctx, &job{do: do, done: make(chan struct{})})
}

func (p *part) submit(ctx context.Context, j *job) error {
	select {
	case p.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-j.done
	return j.err
}

// Start works until ctx ends.
func (p *part) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-p.jobs:
			for j != nil {
				j = p.work(ctx, j)
			}
		}
	}
}

// work does the job, and others that wait. It returns one that it took and that
// has to be done after these.
func (p *part) work(ctx context.Context, first *job) (other *job) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	jobs := []*job{first}
	for taken := names(first); other == nil && first.do == nil && len(jobs) < 64; {
		select {
		case j := <-p.jobs:
			// An object twice in a set would be refused.
			if j.do != nil || taken.overlap(j) {
				other = j
				continue
			}
			jobs = append(jobs, j)
			continue
		default:
		}
		break
	}
	if first.do != nil {
		first.err = first.do(ctx)
		close(first.done)
		return nil
	}
	p.pass(ctx, jobs)
	return other
}

type taken map[apply.ID]bool

func names(j *job) taken {
	t := taken{}
	t.overlap(j)
	return t
}

// overlap tells whether an object of the job is taken, and takes them all if not.
func (t taken) overlap(j *job) bool {
	for _, o := range j.objects {
		if t[idOf(o)] {
			return true
		}
	}
	for _, o := range j.objects {
		t[idOf(o)] = true
	}
	return false
}

func idOf(o *unstructured.Unstructured) apply.ID {
	kind := o.GroupVersionKind()
	return apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// pass applies the objects of all jobs, and ends them.
func (p *part) pass(ctx context.Context, jobs []*job) {
	var all []*unstructured.Unstructured
	owner := map[apply.ID]*job{}
	for _, j := range jobs {
		all = append(all, j.objects...)
		for _, o := range j.objects {
			owner[idOf(o)] = j
		}
	}
	set, err := apply.NewSet(p.owner, all, apply.SetOptions{})
	if err != nil && len(jobs) > 1 {
		for _, j := range jobs { // to find out whose it is
			p.pass(ctx, []*job{j})
		}
		return
	}
	if set != nil {
		var report apply.Report
		var passErr error
		report, passErr = p.applier.Apply(ctx, set)
		for _, r := range report.Results {
			j := owner[r.ID]
			j.results = append(j.results, r)
			if r.Err != nil {
				j.err = errors.Join(j.err, fmt.Errorf("%s: %w", r.ID, r.Err))
			}
		}
		if passErr != nil && report.Err() == nil { // the pass as such, not an object
			err = errors.Join(err, passErr)
		}
	}
	for _, j := range jobs {
		j.err = errors.Join(j.err, err)
		if cut := context.Cause(ctx); cut != nil {
			j.err = errors.Join(j.err, cut)
		}
		close(j.done)
	}
}

// prune deletes the objects that doomed names, and no other. Each must be ours,
// and is deleted only as it was seen.
func (p *part) prune(ctx context.Context, doomed func(apply.Observed) bool, limit apply.Limit) (apply.PruneReport, error) {
	var report apply.PruneReport
	err := p.exclusive(ctx, func(ctx context.Context) error {
		none, err := apply.NewSet(p.owner, nil, apply.SetOptions{})
		if err != nil {
			return err
		}
		report, err = p.applier.Prune(ctx, none, apply.PruneOptions{
			Complete: true, AllowEmpty: true, // it is said one by one what goes
			Keep:  func(o apply.Observed) bool { return !doomed(o) },
			Gone:  doomed,
			Limit: limit,
		})
		return err
	})
	return report, err
}

// synced returns nil when all kinds of the component are known.
func (p *part) synced() error {
	for _, kind := range p.live.Kinds {
		if ok, err := p.live.Synced(kind.GroupKind()); !ok {
			return errors.Join(fmt.Errorf("%s: %w", kind.GroupKind(), apply.ErrNotSynced), err)
		}
	}
	return nil
}

// known tells whether all kinds of the component are.
func (p *part) known() bool { return p.synced() == nil }

// uid returns the UID of the object, "" if there is none or it is being deleted.
func (p *part) uid(id apply.ID) types.UID {
	for o := range p.live.All() {
		if o.ID == id && !o.Deleting {
			return o.UID
		}
	}
	return ""
}
