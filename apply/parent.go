package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// remainingKinds returns the kinds beyond a set that the parent must list: kinds that
// another part states, kinds with objects, and kinds that it lists already and that may
// have objects. The lock is held.
func (r *registry) remainingKinds(set *Set) map[string]bool {
	left := map[string]bool{}
	for kind, w := range r.kinds {
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
	for text := range r.applySet.stated.kinds {
		if w := r.kinds[schema.ParseGroupKind(text)]; w != nil && w.view.Known().Doubt() != nil {
			left[text] = true
		}
	}
	return left
}

// remainingNamespaces returns the namespaces beyond a set that the parent must list:
// namespaces with objects, and, if there are parts, the namespaces of all sets. The
// lock is held.
func (r *registry) remainingNamespaces(set *Set) map[string]bool {
	if r.identity.PartLabel != "" {
		r.applySet.namespaces = members{namespaces: r.applySet.namespaces}.union(set.members).union(r.applySet.stated).namespaces
		return r.applySet.namespaces
	}
	more, left := map[string]bool{}, map[string]bool{}
	for namespace := range r.applySet.stated.namespaces {
		if !set.members.namespaces[namespace] {
			more[namespace] = true
		}
	}
	if len(more) == 0 {
		return left
	}
	for _, w := range r.kinds {
		if w.view.Known().Doubt() != nil {
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
