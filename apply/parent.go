package apply

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// applySet is the memory that a Live has of its ApplySet.
type applySet struct {
	stated     members         // listed by the parent on the server
	namespaces map[string]bool // of all sets so far, if the owner has parts
	source     *applySetParent // the parent that item was built from
	next       members         // the members that item lists
	item       item

	absent   bool      // there was no parent, and one that appears is new
	traced   bool      // the kinds of before are known
	untraced error     // why they are not
	until    time.Time // no look for them before
}

// parentItem returns the parent of the ApplySet to apply now. It lists the kinds and
// namespaces of the set, of other sets, and of all objects that we have.
func (p *pass) parentItem() (item, members, error) {
	l, parent := p.live, p.set.parent
	l.mu.Lock()
	defer l.mu.Unlock()
	next := p.set.members.union(members{l.remainingKinds(p.set), l.remainingNamespaces(p.set)})
	same := l.applySet.source == parent || l.applySet.source != nil && !l.applySet.source.stated && !parent.stated
	if !same || !l.applySet.next.equal(next) {
		it, err := p.set.parentOf(next)
		if err != nil {
			return item{}, next, err
		}
		l.applySet.source, l.applySet.next, l.applySet.item = parent, next, it
	}
	it := l.applySet.item
	it.group = max(0, slices.Index(p.set.kinds, it.id.GroupKind()))
	return it, next, nil
}

// remainingKinds returns the kinds beyond a set that the parent must list: kinds that
// another part states, kinds with objects, and kinds that it lists already and that may
// have objects. The lock is held.
func (l *Live) remainingKinds(set *Set) map[string]bool {
	left := map[string]bool{}
	for kind, w := range l.kinds {
		others := w.view.Len()
		if kind == set.parent.item.id.GroupKind() {
			others-- // the parent itself
		}
		wanted := w.wanted
		if slices.Contains(set.kinds, kind) {
			wanted--
		}
		if wanted > 0 || others > 0 {
			left[kind.String()] = true
		}
	}
	for text := range l.applySet.stated.kinds {
		if w := l.kinds[schema.ParseGroupKind(text)]; w != nil && w.view.Unseen() != nil {
			left[text] = true
		}
	}
	return left
}

// remainingNamespaces returns the namespaces beyond a set that the parent must list:
// namespaces with objects, and, if there are parts, the namespaces of all sets. The
// lock is held.
func (l *Live) remainingNamespaces(set *Set) map[string]bool {
	if l.Owner.PartLabel != "" {
		l.applySet.namespaces = members{namespaces: l.applySet.namespaces}.union(set.members).union(l.applySet.stated).namespaces
		return l.applySet.namespaces
	}
	more, left := map[string]bool{}, map[string]bool{}
	for namespace := range l.applySet.stated.namespaces {
		if !set.members.namespaces[namespace] {
			more[namespace] = true
		}
	}
	if len(more) == 0 {
		return left
	}
	for _, w := range l.kinds {
		if w.view.Unseen() != nil {
			return more
		}
		w.view.Each(func(n view.Name, _ *view.Record) bool {
			if more[n.Namespace()] {
				left[n.Namespace()] = true
			}
			return true
		})
	}
	return left
}

// announced records the members that the parent on the server lists now.
func (p *pass) announced(next members) {
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	p.live.applySet.stated = next
}

// kindNotInParent returns an error for an object that must not be applied: the parent
// failed in this pass and does not list its kind, and a restarted program would not
// find the object.
func (p *pass) kindNotInParent(it *item) error {
	cause := p.failed[p.live.Owner.ApplySet]
	if cause == nil || p.parent == nil || it.id == p.live.Owner.ApplySet {
		return nil
	}
	p.live.mu.RLock()
	defer p.live.mu.RUnlock()
	if p.live.applySet.stated.kinds[it.id.GroupKind().String()] {
		return nil
	}
	return fmt.Errorf("%w: the ApplySet's parent %s does not name the kind: %w", ErrBlocked, p.live.Owner.ApplySet, cause)
}

func (m members) equal(other members) bool {
	return maps.Equal(m.kinds, other.kinds) && maps.Equal(m.namespaces, other.namespaces)
}
