package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// mirror is what the watches of a controller show, with the indexes that lead
// from any object to the keys to be reconciled. One lock guards it and its
// stores.
type mirror struct {
	controller        string
	lag               time.Duration
	logger            *slog.Logger
	wake              func(keys ...types.NamespacedName) // never called with the lock held
	references        func(from Reference, data []byte) ([]Reference, error)
	ignoreStatus      bool
	keepManagedFields bool

	own    *store
	stores []*store // own is the first

	mu     sync.RWMutex
	synced chan struct{} // closed when all stores are, since the last restart
	keyOf  map[types.UID]types.NamespacedName
	graph  referenceGraph
	writes writes
}

// open makes the stores.
func (m *mirror) open(own Kind, owned, referenced []Kind) error {
	own.Whole = true
	if err := own.validate("Controller.Kind"); err != nil {
		return err
	}
	m.own = newStore(m, own)
	m.graph.own = own.Resource
	m.stores = []*store{m.own}
	for _, list := range []struct {
		field string
		kinds []Kind
		mark  func(*store)
	}{
		{"Controller.Owned", owned, func(s *store) { s.isOwned = true }},
		{"Controller.Referenced", referenced, func(s *store) { s.isReferenced = true }},
	} {
		for i, kind := range list.kinds {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			if err := kind.validate(field); err != nil {
				return err
			}
			s := m.store(kind.Resource)
			switch {
			case s == nil:
				s = newStore(m, kind)
				m.stores = append(m.stores, s)
			case s == m.own:
				return fmt.Errorf("kube: %s.Resource: %s is that of Controller.Kind, which is watched anyway", field, kind.Resource.GroupResource())
			case s.kind != kind || i > 0 && slices.Contains(list.kinds[:i], kind):
				return fmt.Errorf("kube: %s: %s is listed twice; want it once, or the same in Owned and in Referenced", field, kind.Resource.GroupResource())
			}
			list.mark(s)
		}
	}
	return nil
}

func (m *mirror) store(resource schema.GroupVersionResource) *store {
	for _, s := range m.stores {
		if s.kind.Resource == resource {
			return s
		}
	}
	return nil
}

// restart forgets that anything was known, and returns the channel that closes
// when everything is again. The objects stay, so that those which have gone
// meanwhile are noticed.
func (m *mirror) restart() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = make(chan struct{})
	m.writes = writes{}
	for _, s := range m.stores {
		s.synced, s.err, s.version = false, nil, 0
	}
	return m.synced
}

// settled closes synced when the last store has been filled. The lock is held.
func (m *mirror) settled() {
	for _, s := range m.stores {
		if !s.synced {
			return
		}
	}
	close(m.synced)
}

func (m *mirror) status() (synced bool, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	synced = true
	var errs []error
	for _, s := range m.stores {
		switch resource := s.kind.Resource.GroupResource(); {
		case !s.synced && s.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w: %w", resource, ErrNotSynced, s.err))
		case !s.synced:
			errs = append(errs, fmt.Errorf("%s: %w", resource, ErrNotSynced))
		case s.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", resource, s.err))
		}
		synced = synced && s.synced
	}
	return synced, errors.Join(errs...)
}

// keys returns those of the controller's own kind in order.
func (m *mirror) keys(namespace string) []types.NamespacedName {
	m.mu.RLock()
	defer m.mu.RUnlock()
	keys := make([]types.NamespacedName, 0, len(m.own.objects))
	for key := range m.own.objects {
		if namespace == "" || key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// keysOf returns the keys of the controller's own objects with these UIDs. It
// leaves out the UIDs of other objects.
func (m *mirror) keysOf(uids []types.UID) []types.NamespacedName {
	m.mu.RLock()
	defer m.mu.RUnlock()
	keys := make([]types.NamespacedName, 0, len(uids))
	for _, uid := range uids {
		if key, ok := m.keyOf[uid]; ok && uid != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *mirror) usersOf(reference Reference) []types.NamespacedName {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var found wakeSet
	m.graph.addUsers(&found, reference)
	return slices.SortedFunc(maps.Keys(found.keys), compareKeys)
}

// affected adds to found the keys to reconcile because the object of s with that
// key was old and is now object; either may be nil. The lock is held.
func (m *mirror) affected(found *wakeSet, s *store, key types.NamespacedName, old, object *objectState) {
	if s == m.own {
		found.add(key)
	}
	if s.refers() {
		m.graph.addUsers(found, s.reference(key))
	}
	if s.isOwned {
		for _, o := range []*objectState{old, object} {
			if o == nil || o.owner == "" {
				continue
			}
			if owner, ok := m.keyOf[o.owner]; ok {
				found.add(owner)
			}
		}
	}
}
