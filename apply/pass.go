package apply

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// pass is one call of Apply or Plan.
type pass struct {
	*Applier
	set    *Set
	now    time.Time
	report Report
	failed map[ID]error // what was not applied in this pass, and why
}

func (a *Applier) pass(set *Set) *pass {
	return &pass{Applier: a, set: set, now: time.Now(), failed: map[ID]error{}}
}

// rank applies objects that do not depend on each other.
func (p *pass) rank(ctx context.Context, items []item) {
	var writes []attempt
	for i := range items {
		switch action, seen, err := p.decide(&items[i]); action {
		case unchanged:
			p.report.Unchanged++
		case write:
			if result, ok := p.standing(&items[i], seen, p.now); ok {
				p.add(result)
				continue
			}
			writes = append(writes, attempt{item: &items[i], seen: seen})
		default:
			p.add(Result{items[i].id, action, err})
		}
	}
	each(len(writes), p.Concurrency, func(i int) {
		action, err := p.write(ctx, writes[i].item)
		writes[i].result = Result{writes[i].item.id, action, err}
	})
	for _, w := range writes {
		p.settle(w.item, w.seen, w.result, p.now)
		p.add(w.result)
	}
}

// attempt is a request that a rank makes, and how it ended.
type attempt struct {
	item   *item
	seen   diff.Sum
	result Result
}

func (p *pass) add(r Result) {
	if r.Action == unchanged {
		p.report.Unchanged++
		return
	}
	p.report.Results = append(p.report.Results, r)
	if r.Err != nil {
		p.failed[r.ID] = r.Err
	}
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
	if err := p.blocked(it); err != nil {
		return Waiting, seen, err
	}
	compare := false // with what the server says that we own
	v.mu.RLock()
	synced, mapping := v.synced, v.mapping
	r := v.records[name{it.id.Namespace, it.id.Name}]
	if r != nil {
		seen = r.observed
	}
	switch {
	case !synced:
		action, err = Waiting, errors.Join(ErrNotSynced, v.failure())
	case r == nil:
		action = write
	case r.deleting:
		action, err = Waiting, ErrTerminating
	case !r.unknown():
		if r.hash != it.hash || r.foreign() {
			action = write
		}
	default:
		action = write
		compare = r.hash == it.hash && !r.unowned()
	}
	v.mu.RUnlock()
	if mapping != nil && (action == write || action == unchanged) {
		if err := p.scopeError(it, mapping); err != nil {
			return Refused, seen, err
		}
	}
	if compare && p.recall(v, it) {
		return unchanged, seen, nil
	}
	return action, seen, err
}

// blocked reports that what the object needs was not applied in this pass: its
// namespace, or what it depends on.
func (p *pass) blocked(it *item) error {
	for _, id := range it.after {
		if applicable := p.set.ids[id]; !applicable {
			return fmt.Errorf("%w: it depends on %s, which cannot be applied", ErrBlocked, id)
		}
	}
	if len(p.failed) == 0 {
		return nil
	}
	if cause := p.failed[ID{Kind: "Namespace", Name: it.id.Namespace}]; cause != nil && it.id.Namespace != "" {
		return fmt.Errorf("%w: namespace %s: %w", ErrBlocked, it.id.Namespace, cause)
	}
	for _, id := range it.after {
		if cause := p.failed[id]; cause != nil {
			return fmt.Errorf("%w: it depends on %s: %w", ErrBlocked, id, cause)
		}
	}
	return nil
}

// recall restores, after a restart, the memory of what was applied: it holds if
// the annotation carries the hash of the wanted object and we own exactly what
// that states.
func (p *pass) recall(v *view, it *item) bool {
	n := name{it.id.Namespace, it.id.Name}
	var raw string
	var seen diff.Sum
	v.read(n, func(r *record) {
		if r != nil && r.unknown() && r.owned != (unique.Handle[string]{}) {
			raw, seen = r.owned.Value(), r.observed
		}
	})
	owned, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(raw)}})
	if err != nil || seen == (diff.Sum{}) {
		return false // an apply settles it
	}
	desired, err := it.desired()
	if err != nil || !diff.Covers(owned, desired) {
		return false
	}
	return v.remember(n, seen, it.hash)
}

func (p *pass) viewOf(it *item) (*view, error) {
	v := p.Live.views[it.id.GroupKind()]
	if v == nil {
		return nil, fmt.Errorf("kind %s is not watched: add it to Live.Kinds", it.id.GroupKind())
	}
	return v, nil
}

func (p *pass) scopeError(it *item, mapping *meta.RESTMapping) error {
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	switch {
	case namespaced && it.id.Namespace == "":
		return fmt.Errorf("metadata.namespace: required, %s is namespaced", it.id.Kind)
	case !namespaced && it.id.Namespace != "":
		return fmt.Errorf("metadata.namespace: is %q; leave it out, %s is cluster-scoped", it.id.Namespace, it.id.Kind)
	case !p.Live.covers(it.id.Namespace):
		return fmt.Errorf("metadata.namespace: %q is not in Live.Namespaces %q", it.id.Namespace, p.Live.Namespaces)
	default:
		return nil
	}
}
