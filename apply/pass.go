package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// pass is one call of Apply, Plan or Execute.
type pass struct {
	applier *Applier
	live    *Live
	set     *Set
	kinds   []*view.Kind // by item.group
	hints   []view.Hint  // by the index of the item
	done    func()       // ends the use of the kinds
	now     time.Time
	parent  *item // the ApplySet's parent; nil: there is none
	report  Report
	failed  map[ID]error // objects not applied in this pass, and why

	overriding sync.Mutex // guards overrides
	overrides  []Override
}

// begin starts a pass. Every kind of the set is watched until the pass ends.
func (a *Applier) begin(ctx context.Context, set *Set) (*pass, error) {
	if err := a.accept(set); err != nil {
		return nil, err
	}
	p := &pass{applier: a, live: a.Live, set: set, now: time.Now()}
	p.kinds, p.done = a.use(set)
	p.hints = set.hintsOf(p.kinds)
	waitReady(ctx, p.kinds)
	if set.parent != nil {
		_ = a.Live.trace(ctx) // a prune returns the error
		it, _, err := p.parentItem()
		if err != nil {
			p.done()
			return nil, err
		}
		p.parent = &it
	}
	return p, nil
}

// item returns the item to apply: the set's own, the same without the fields that are
// still with a controller, or the current ApplySet parent.
func (p *pass) item(it *item) *item {
	switch {
	case p.parent != nil && it.id == p.parent.id:
		return p.parent
	case it.handed != nil && p.keepsFields(it):
		return p.set.handedOver(it)
	default:
		return it
	}
}

// keepsFields reports whether a controller still has fields of an object that the set
// states: the object that configures it exists. If that cannot be seen, the fields stay
// where they are.
func (p *pass) keepsFields(it *item) bool {
	h := it.handed
	k := p.kinds[h.group]
	switch look := k.Look(h.at); {
	case look.Found:
		return look.Record.Deleting() || !look.Record.Pruned()
	case k.Known().Doubt() == nil:
		return false
	default:
		look := p.kinds[it.group].Look(it.at)
		return look.Found && look.Record.Hash() != it.hash
	}
}

// wakeAtHandBack starts a pass when the object has changed that still configures a
// controller of fields of the item, or may.
func (p *pass) wakeAtHandBack(it *item) {
	if p.live.OnDrift == nil {
		return
	}
	k, by := p.kinds[it.handed.group], it.handed.at
	wake := func() { p.live.OnDrift(Observed{ID: it.id, Part: p.set.Part(), owner: p.live.identity}) }
	seen := k.Look(by)
	k.Await(by, seen.Record.Version(), it.id, wake)
	if !p.keepsFields(it) { // it has changed since the pass looked
		k.Forget(by, it.id)
		wake()
	}
}

// verdict is the decision about one object, and what it is based on.
type verdict struct {
	action Action // unchanged, write, or the action to report
	look   view.Look
	err    error
	again  bool // the object is as stated, and it is time to apply it again
}

// Two more outcomes: nothing to do, and a request to send.
const (
	unchanged Action = ""
	send      Action = "send"
)

// decide compares a desired object with the observed one. It sends nothing. After a
// restart it restores the memory of an object that it recognises.
func (p *pass) decide(it *item) verdict {
	if err := p.blocked(it); err != nil {
		return verdict{action: Waiting, err: err}
	}
	k := p.kinds[it.group]
	v := verdict{look: k.LookAt(it.at, p.hint(it))}
	r := &v.look.Record
	switch {
	case v.look.State != view.Served:
		v.action, v.err = Waiting, errors.Join(ErrNotSynced, v.look.Err)
		return v
	case !v.look.Found:
		if !p.live.finished.done(it, p.now) {
			v.action = send
		}
	case !r.Deleting() && !r.Pruned() && p.current(k, it, r):
		// An object of another part never comes here: the hash covers the part label.
		// r is the record before it was recalled, and one that was is not due.
		if v.again = it.policy != CreateOnly && !r.Unknown() && k.Due(r, p.now); v.again {
			v.action = send
		}
	case p.live.Owner.PartLabel != "" && r.Part() != "" && r.Part() != p.set.Part() && !r.Strayed() &&
		it.id != p.live.Owner.ApplySet:
		v.action, v.err = Refused, fmt.Errorf("%w: its label %s is %q", ErrClaimed, p.live.Owner.PartLabel, r.Part())
		return v
	case it.policy == CreateOnly:
	case r.Deleting() || r.Pruned():
		v.action, v.err = Waiting, ErrTerminating
		return v
	default:
		v.action = send
	}
	if err := p.scopeError(it, v.look.Mapping); err != nil {
		return verdict{action: Refused, err: err}
	}
	if v.look.Err != nil && (v.action == unchanged || apierrors.IsUnauthorized(v.look.Err)) {
		v.action, v.err = Waiting, fmt.Errorf("%w any more: %w", ErrNotSynced, v.look.Err)
	}
	return v
}

// current reports whether the live object is as the item states it.
func (p *pass) current(k *view.Kind, it *item, r *view.Record) bool {
	switch {
	case r.Superseded(), r.Hash() != it.hash:
		return false
	case r.Unknown():
		return !r.Unowned() && p.recall(k, it, r)
	default:
		return !r.Foreign()
	}
}

// recall restores the memory of the last apply after a restart. It is right if the
// annotation has the hash of the desired object and we own exactly the fields that the
// object states.
func (p *pass) recall(k *view.Kind, it *item, r *view.Record) bool {
	if r.Owned() == "" {
		return false
	}
	owned, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(r.Owned())}})
	if err != nil {
		return false // an apply decides
	}
	if !diff.Covers(owned, it.body.Decode()) && (it.create == nil || !diff.Covers(owned, it.create.Decode())) {
		return false
	}
	return k.Remember(it.at, r.Observed(), it.hash)
}

// hint returns the hint of an item, nil if it is none of the set's.
func (p *pass) hint(it *item) *view.Hint {
	if it.number == 0 {
		return nil
	}
	return &p.hints[it.number-1]
}

// blocked returns an error if a requirement of the object was not applied in this pass:
// its namespace, a dependency, or a policy that isolates it.
func (p *pass) blocked(it *item) error {
	for _, id := range it.after {
		if p.set.ids[id] == invalid {
			return fmt.Errorf("%w: it depends on %s, which cannot be applied", ErrBlocked, id)
		}
	}
	if len(p.failed) == 0 {
		return nil
	}
	if err := p.kindNotInParent(it); err != nil {
		return err
	}
	if cause := p.failed[ID{Kind: "Namespace", Name: it.id.Namespace}]; cause != nil && it.id.Namespace != "" {
		return fmt.Errorf("%w: namespace %s: %w", ErrBlocked, it.id.Namespace, cause)
	}
	for _, id := range it.after {
		if cause := p.failed[id]; cause != nil {
			return fmt.Errorf("%w: it depends on %s: %w", ErrBlocked, id, cause)
		}
	}
	if !p.set.options.Gate || it.rank.stage < stageWorkloads {
		return nil
	}
	for id, cause := range p.failed {
		if gates(id.GroupKind()) && (id.Namespace == "" || id.Namespace == it.id.Namespace) {
			return fmt.Errorf("%w: %s must be in force before: %w", ErrBlocked, id, cause)
		}
	}
	return nil
}

func (p *pass) scopeError(it *item, mapping *meta.RESTMapping) error {
	if mapping == nil {
		return nil
	}
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	switch {
	case namespaced && it.at.Namespace() == "":
		return fmt.Errorf("metadata.namespace is required: %s is namespaced", it.id.Kind)
	case !namespaced && it.at.Namespace() != "":
		return fmt.Errorf("metadata.namespace is %q; leave it out: %s is cluster-scoped", it.id.Namespace, it.id.Kind)
	case len(p.live.Namespaces) > 0 && it.id.Namespace != "" && !slices.Contains(p.live.Namespaces, it.id.Namespace):
		return fmt.Errorf("metadata.namespace is %q, which is not in Live.Namespaces %q", it.id.Namespace, p.live.Namespaces)
	default:
		return nil
	}
}

// parentItem returns the parent of the ApplySet to apply now. It lists the kinds and
// namespaces of the set, of other sets, and of all objects that we have.
func (p *pass) parentItem() (item, members, error) {
	r, parent := &p.live.registry, p.set.parent
	r.mu.Lock()
	defer r.mu.Unlock()
	next := p.set.members.union(members{r.remainingKinds(p.set), r.remainingNamespaces(p.set)})
	same := r.applySet.source == parent || r.applySet.source != nil && !r.applySet.source.stated && !parent.stated
	partial := p.live.untraced()
	if !same || !r.applySet.next.equal(next) || r.applySet.partial != partial {
		it, err := p.set.parentOf(next, partial)
		if err != nil {
			return item{}, next, err
		}
		r.applySet.source, r.applySet.next, r.applySet.partial, r.applySet.item = parent, next, partial, it
	}
	it := r.applySet.item
	it.number = 0
	it.group = max(0, slices.Index(p.set.kinds, it.id.GroupKind()))
	return it, next, nil
}

// announced records the members that the parent on the server lists now.
func (p *pass) announced(next members) {
	p.live.registry.mu.Lock()
	defer p.live.registry.mu.Unlock()
	p.live.registry.state(next)
}

// kindNotInParent returns an error for an object that must not be applied: the parent
// failed in this pass and does not list its kind, and a restarted program would not
// find the object.
func (p *pass) kindNotInParent(it *item) error {
	cause := p.failed[p.live.Owner.ApplySet]
	if cause == nil || p.parent == nil || it.id == p.live.Owner.ApplySet {
		return nil
	}
	p.live.registry.mu.RLock()
	defer p.live.registry.mu.RUnlock()
	if p.live.registry.applySet.stated.kinds[it.id.GroupKind().String()] {
		return nil
	}
	return fmt.Errorf("%w: the ApplySet's parent %s does not name the kind: %w", ErrBlocked, p.live.Owner.ApplySet, cause)
}

// undid notes what a repair has undone.
func (p *pass) undid(id ID, fields []diff.Field) {
	if len(fields) == 0 {
		return
	}
	p.overriding.Lock()
	defer p.overriding.Unlock()
	p.overrides = append(p.overrides, Override{id, fields})
}

// overridden returns the fields that others have changed in an object since our last apply. It is empty
// if the object cannot be read: the repair that follows then says why, or there is none.
func (p *pass) overridden(ctx context.Context, it *item, look *view.Look, t *write.Target) []diff.Field {
	r := &look.Record
	ours := look.Found && r.Hash() == it.hash && (r.Unknown() || r.Foreign()) && !r.Superseded() && !r.Bare() && !t.Upsert
	if !p.applier.Overrides || p.applier.Objects == nil || !ours {
		return nil
	}
	found, err := p.applier.writer.Look(ctx, t)
	live, whole := found.(*unstructured.Unstructured)
	if err != nil || !whole || string(live.GetUID()) != t.UID {
		return nil
	}
	all, err := diff.Fields(it.body.Decode(), live.Object, diff.Options{Manager: p.live.Owner.Manager, Applied: true})
	if err != nil {
		return nil
	}
	var fields []diff.Field
	for _, f := range all {
		if f.Difference == diff.Changed || f.Difference == diff.Missing || f.Difference == diff.Reordered {
			fields = append(fields, f)
		}
	}
	return fields
}
