package apply

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// applySet is what a Live remembers of its ApplySet.
type applySet struct {
	stated members // by the parent on the server
	set    *Set    // the last one of which item was made
	next   members // what item states
	item   item
}

// parentItem returns the parent of the ApplySet as this pass applies it: it names
// the kinds and namespaces of the set, and of all other objects that we have.
func (p *pass) parentItem() (item, error) {
	l := p.live
	l.mu.Lock()
	defer l.mu.Unlock()
	next := p.set.members.union(l.remaining(p.set.members))
	if l.applySet.set == p.set && l.applySet.next.equal(next) {
		return l.applySet.item, nil
	}
	it, err := p.set.parentOf(next)
	if err != nil {
		return item{}, err
	}
	l.applySet.set, l.applySet.next, l.applySet.item = p.set, next, it
	return it, nil
}

// remaining returns what the parent states beyond a set and must go on to state: the
// kinds that another part wants or of which there may be objects, and the namespaces
// of these. The lock is held.
func (l *Live) remaining(set members) members {
	left := members{map[string]bool{}, map[string]bool{}}
	for text := range l.applySet.stated.kinds {
		if set.kinds[text] {
			continue
		}
		w := l.kinds[schema.ParseGroupKind(text)]
		if w != nil && (w.wanted > 0 || w.view.Len() > 0 || w.view.Unseen() != nil) {
			left.kinds[text] = true
		}
	}
	more := map[string]bool{}
	for namespace := range l.applySet.stated.namespaces {
		if !set.namespaces[namespace] {
			more[namespace] = true
		}
	}
	if l.Owner.PartLabel != "" || len(more) == 0 {
		left.namespaces = more
		return left
	}
	for _, w := range l.kinds {
		if w.view.Unseen() != nil {
			left.namespaces = more
			return left
		}
		w.view.Each(func(n view.Name, _ *view.Record) bool {
			if more[n.Namespace()] {
				left.namespaces[n.Namespace()] = true
			}
			return true
		})
	}
	return left
}

// announced notes that the parent on the server states what was applied.
func (p *pass) announced() {
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	if p.live.applySet.set == p.set {
		p.live.applySet.stated = p.live.applySet.next
	}
}

// unannounced returns why an object may not be applied: the parent failed in this
// pass, and does not name its kind, so that a restarted program would not find the
// object.
func (p *pass) unannounced(it *item) error {
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
