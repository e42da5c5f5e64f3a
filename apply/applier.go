package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Applier makes the cluster match a [Set]. Set the fields and use it; passes of
// one Applier must not overlap, and a Live has one Applier.
type Applier struct {
	// Live is the actual state, started. Required.
	Live *Live
	// Adopt takes over objects that exist under a wanted name and belong to
	// nobody that we know of. The default refuses them with [ErrNotOurs]. An
	// object that carries one of our owner's labels with another value is
	// another owner's and never taken.
	Adopt bool
	// Conflicts says what happens to a field that somebody else owns with
	// another value, be it foreign from the start or taken from us. The default
	// takes it.
	Conflicts ConflictPolicy
	// Concurrency bounds the requests under way at once. Zero means 8.
	Concurrency int
	// OnWrite is called, if set, after each write request, from several
	// goroutines at once.
	OnWrite func(Write)

	missing  map[string]absence // by UID, for Prune
	setbacks map[ID]setback
}

// Write is one write request as it ended.
type Write struct {
	ID       ID
	Verb     string // patch or delete
	Duration time.Duration
	Err      error
}

// Apply makes every object of the set exist as stated and reports what it did.
// An object that is as the last apply left it costs no request, no allocation
// and about a microsecond; one that is not costs one server-side apply, which
// takes back the fields that the set states and leaves all others.
//
// Objects are applied in stages: definitions and namespaces first, routes last,
// in parallel within a stage. A failed object holds back only what lives in it
// (a namespace) and no other. The report is valid with an error, which is
// [Report.Err] or the cause for which ctx ended.
func (a *Applier) Apply(ctx context.Context, set *Set) (Report, error) {
	if err := a.prepare(set); err != nil {
		return Report{}, err
	}
	a.forget(set)
	p := pass{Applier: a, now: time.Now(), closed: map[string]error{}}
	for start := 0; start < len(set.items); {
		end := start + 1
		for end < len(set.items) && set.items[end].stage == set.items[start].stage {
			end++
		}
		p.stage(ctx, set.items[start:end])
		start = end
	}
	return p.report, errors.Join(p.report.Err(), context.Cause(ctx))
}

func (a *Applier) prepare(set *Set) error {
	if a.Live == nil {
		return errors.New("apply: Applier.Live: required")
	}
	if err := a.Live.prepare(); err != nil {
		return err
	}
	if set == nil {
		return errors.New("apply: no set")
	}
	if set.owner.Manager != a.Live.Owner.Manager || set.owner.selector() != a.Live.Owner.selector() || set.owner.Domain != a.Live.Owner.Domain {
		return fmt.Errorf("apply: the set's owner %q (%s) is not the live view's %q (%s)",
			set.owner.Manager, set.owner.selector(), a.Live.Owner.Manager, a.Live.Owner.selector())
	}
	return nil
}

// pass is one call of Apply.
type pass struct {
	*Applier
	now    time.Time
	report Report
	closed map[string]error // namespaces that take nothing in this pass, and why
}

func (p *pass) stage(ctx context.Context, items []item) {
	first := len(p.report.Results)
	var writes []attempt
	for i := range items {
		switch action, seen, err := p.decide(&items[i]); action {
		case unchanged:
			p.report.Unchanged++
		case write:
			if result, ok := p.standing(&items[i], seen, p.now); ok {
				p.report.Results = append(p.report.Results, result)
				continue
			}
			writes = append(writes, attempt{item: &items[i], seen: seen})
		default:
			p.report.Results = append(p.report.Results, Result{items[i].id, action, err})
		}
	}
	each(len(writes), p.Concurrency, func(i int) {
		action, err := p.write(ctx, writes[i].item)
		writes[i].result = Result{writes[i].item.id, action, err}
	})
	for _, w := range writes {
		p.settle(w.item, w.seen, w.result, p.now)
		p.report.Results = append(p.report.Results, w.result)
	}
	for _, r := range p.report.Results[first:] {
		if r.Err != nil && r.ID.Kind == "Namespace" && r.ID.Group == "" {
			p.closed[r.ID.Name] = r.Err
		}
	}
}

// attempt is a request that a stage makes, and how it ended.
type attempt struct {
	item   *item
	seen   diff.Sum
	result Result
}

// Two more outcomes of decide: nothing to do, and a request to send.
const (
	unchanged Action = ""
	write     Action = "write"
)

// decide compares a wanted object with its record and returns what we own of
// it, as seen. It sends nothing.
func (p *pass) decide(it *item) (action Action, seen diff.Sum, err error) {
	v, err := p.viewOf(it)
	if err != nil {
		return Refused, seen, err
	}
	if cause := p.closed[it.id.Namespace]; cause != nil {
		return Waiting, seen, fmt.Errorf("%w: namespace %s: %w", ErrBlocked, it.id.Namespace, cause)
	}
	compare := false // with what the server says that we own
	v.mu.RLock()
	synced, reason, mapping := v.synced, v.err, v.mapping
	r := v.records[name{it.id.Namespace, it.id.Name}]
	if r != nil {
		seen = r.observed
	}
	switch {
	case !synced:
		action, err = Waiting, errors.Join(ErrNotSynced, reason)
	case r == nil:
		action = write
	case r.deleting:
		action, err = Waiting, ErrTerminating
	case !r.unknown():
		if r.appliedHash != it.hash || r.foreign() {
			action = write
		}
	default:
		action = write
		compare = r.stated == it.hash && !r.unowned()
	}
	v.mu.RUnlock()
	if mapping != nil && (action == write || action == unchanged) {
		if err := scopeError(it, mapping); err != nil {
			return Refused, seen, err
		}
	}
	if compare && p.recall(v, it) {
		return unchanged, seen, nil
	}
	return action, seen, err
}

// recall restores, after a restart, the memory of what was applied: it holds if
// the annotation carries the hash of the wanted object and we own exactly what
// that states.
func (p *pass) recall(v *view, it *item) bool {
	n := name{it.id.Namespace, it.id.Name}
	var raw string
	var seen diff.Sum
	v.read(n, func(r *record) {
		if r != nil && r.unknown() && !r.unowned() {
			raw, seen = r.owned.Value(), r.observed
		}
	})
	owned, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(raw)}})
	if err != nil {
		return false // an apply settles it
	}
	desired, err := it.desired()
	if err != nil || !diff.Covers(owned, desired) {
		return false
	}
	held := false
	v.change(n, func(r *record) {
		if held = r != nil && r.observed == seen; held {
			r.remember(it.hash)
		}
	})
	return held
}

func (p *pass) viewOf(it *item) (*view, error) {
	v := p.Live.views[it.id.GroupKind()]
	if v == nil {
		return nil, fmt.Errorf("kind %s is not watched: add it to Live.Kinds", it.id.GroupKind())
	}
	return v, nil
}

func scopeError(it *item, mapping *meta.RESTMapping) error {
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	switch {
	case namespaced && it.id.Namespace == "":
		return fmt.Errorf("metadata.namespace: required, %s is namespaced", it.id.Kind)
	case !namespaced && it.id.Namespace != "":
		return fmt.Errorf("metadata.namespace: is %q; leave it out, %s is cluster-scoped", it.id.Namespace, it.id.Kind)
	default:
		return nil
	}
}

// write applies one object.
func (p *pass) write(ctx context.Context, it *item) (Action, error) {
	v := p.Live.views[it.id.GroupKind()]
	n := name{it.id.Namespace, it.id.Name}
	var must precondition
	v.read(n, func(r *record) {
		if r != nil {
			must.uid = r.uid
		}
	})
	v.began(n)
	defer v.ended(n, false)
	err := p.send(ctx, v, it, must)
	if !unmet(err) {
		return outcome(must, err)
	}
	// The view was behind: the object exists, or is another one by now.
	must, err = p.lookUp(ctx, v, it)
	if err != nil {
		if errors.Is(err, ErrTerminating) {
			return Waiting, err
		}
		if errors.Is(err, ErrNotOurs) {
			return Refused, err
		}
		return Failed, err
	}
	return outcome(must, p.send(ctx, v, it, must))
}

func outcome(must precondition, err error) (Action, error) {
	_, conflict := errors.AsType[*ConflictError](err)
	switch {
	case conflict:
		return Refused, err
	case err != nil:
		return Failed, err
	case must.uid == "":
		return Created, nil
	default:
		return Updated, nil
	}
}

// send makes one server-side apply.
func (p *pass) send(ctx context.Context, v *view, it *item, must precondition) error {
	desired, err := it.desired()
	if err != nil {
		return err
	}
	metadata := desired["metadata"].(map[string]any)
	if must.uid == "" {
		metadata["resourceVersion"] = neverVersion
	} else {
		metadata["uid"] = must.uid
	}
	body, err := utiljson.Marshal(desired)
	if err != nil {
		return err
	}
	start := time.Now()
	force := p.Conflicts == ForceConflicts
	answer, err := p.resource(v, it.id).Patch(ctx, it.id.Name, applyPatch, body,
		metav1.PatchOptions{FieldManager: p.Live.Owner.Manager, Force: &force})
	p.wrote(Write{ID: it.id, Verb: "patch", Duration: time.Since(start), Err: err})
	if conflict := conflictOf(err); conflict != nil {
		return conflict
	}
	if err != nil {
		return err
	}
	v.wrote(answer, it.hash)
	return nil
}

func (a *Applier) wrote(w Write) {
	if a.OnWrite != nil {
		a.OnWrite(w)
	}
}

// each calls f for 0 to n-1, a bounded number at once, and waits for all.
func each(n, concurrency int, f func(int)) {
	if concurrency <= 0 {
		concurrency = 8
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, concurrency) {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}
