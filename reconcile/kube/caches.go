package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// caches holds the cache of each kind that a Controller watches, and the indexes
// that map a change of any object to the keys to reconcile. One lock guards it and
// the cache of each kind.
type caches struct {
	controller   string
	logger       *slog.Logger
	wake         func(keys ...types.NamespacedName) // never called with the lock held
	references   func(from Reference, data []byte) ([]Reference, error)
	ignoreStatus bool

	own   *kindCache
	kinds []*kindCache // own is the first

	mu     sync.RWMutex
	synced chan struct{} // closed when every kind is synced, since the last restart
	keyOf  map[types.UID]types.NamespacedName
	graph  referenceGraph
	writes pendingWrites
}

// open makes the cache of each kind.
func (c *caches) open(own Kind, owned, referenced []Kind) error {
	own.Whole = true
	if err := own.validate("Controller.Kind"); err != nil {
		return err
	}
	c.own = newKindCache(c, own)
	c.graph.own = own.Resource
	c.kinds = []*kindCache{c.own}
	for _, list := range []struct {
		field string
		kinds []Kind
		mark  func(*kindCache)
	}{
		{"Controller.Owned", owned, func(k *kindCache) { k.isOwned = true }},
		{"Controller.Referenced", referenced, func(k *kindCache) { k.isReferenced = true }},
	} {
		for i, kind := range list.kinds {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			if err := kind.validate(field); err != nil {
				return err
			}
			k := c.kind(kind.Resource)
			switch {
			case k == nil:
				k = newKindCache(c, kind)
				c.kinds = append(c.kinds, k)
			case k == c.own:
				return fmt.Errorf("kube: %s.Resource: is %s, must not be the resource of Controller.Kind", field, kind.Resource.GroupResource())
			case k.kind != kind || i > 0 && slices.Contains(list.kinds[:i], kind):
				return fmt.Errorf(
					"kube: %s.Resource: is %s, listed twice, must be listed once, or the same in Owned and in Referenced",
					field,
					kind.Resource.GroupResource(),
				)
			}
			list.mark(k)
		}
	}
	return nil
}

func (c *caches) kind(resource schema.GroupVersionResource) *kindCache {
	for _, k := range c.kinds {
		if k.kind.Resource == resource {
			return k
		}
	}
	return nil
}

// restart marks every kind as not synced, and returns the channel that closes when
// all are synced again. The objects stay, so that the next list shows which were
// deleted.
func (c *caches) restart() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced = make(chan struct{})
	c.writes = pendingWrites{}
	for _, k := range c.kinds {
		k.synced, k.woken, k.err, k.version = false, false, nil, 0
	}
	return c.synced
}

// closeIfWoken closes synced once every kind is synced and has woken the keys of its
// first list. The lock is held.
func (c *caches) closeIfWoken() {
	for _, k := range c.kinds {
		if !k.woken {
			return
		}
	}
	select {
	case <-c.synced:
	default:
		close(c.synced)
	}
}

func (c *caches) status() (synced bool, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	synced = true
	var errs []error
	for _, k := range c.kinds {
		switch resource := k.kind.Resource.GroupResource(); {
		case !k.synced && k.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w: %w", resource, ErrNotSynced, k.err))
		case !k.synced:
			errs = append(errs, fmt.Errorf("%s: %w", resource, ErrNotSynced))
		case k.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", resource, k.err))
		}
		synced = synced && k.synced
	}
	return synced, errors.Join(errs...)
}

// keys returns the keys of the objects of the Controller's kind, in order.
func (c *caches) keys(namespace string) []types.NamespacedName {
	c.mu.RLock()
	defer c.mu.RUnlock()
	keys := make([]types.NamespacedName, 0, len(c.own.objects))
	for key := range c.own.objects {
		if namespace == "" || key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// keysOf returns the keys of the objects of the Controller's kind with these UIDs.
// It leaves out UIDs of other objects.
func (c *caches) keysOf(uids []types.UID) []types.NamespacedName {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []types.NamespacedName
	for _, uid := range uids {
		if key, ok := c.keyOf[uid]; ok {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c *caches) usersOf(reference Reference) []types.NamespacedName {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var found wakeSet
	c.graph.addUsers(&found, reference)
	return slices.SortedFunc(maps.Keys(found.keys), compareKeys)
}

// affected adds to found the keys to reconcile after the object of k with that key
// changed from old to object. Either may be nil. The lock is held.
func (c *caches) affected(found *wakeSet, k *kindCache, key types.NamespacedName, old, object *objectState) {
	if k == c.own {
		found.add(key)
	}
	if k.refers() {
		c.graph.addUsers(found, k.reference(key))
	}
	if k.isOwned {
		for _, o := range []*objectState{old, object} {
			if o == nil {
				continue
			}
			if owner, ok := c.keyOf[o.owner]; ok {
				found.add(owner)
			}
		}
	}
}
