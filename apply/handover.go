//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"maps"
)

// handOver leaves the fields of items to the controllers that the set configures.
func (s *Set) handOver() error {
	var errs []error
	for i := range s.items {
		it := &s.items[i]
		if it.handed == nil || s.ids[it.handed.by] == absent {
			continue
		}
		without, err := s.without(it)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", it.id, err))
			continue
		}
		*it = without
	}
	return errors.Join(errs...)
}

// handedOver returns the item without the fields that a controller has.
func (s *Set) handedOver(it *item) *item {
	h := it.handed
	h.once.Do(func() {
		h.item = it
		if without, err := s.without(it); err == nil { // always: with the fields it was encoded before
			h.item = &without
		}
	})
	return h.item
}

// without returns an item whose fields are left to a controller.
func (s *Set) without(it *item) (item, error) {
	stated := it.body
	if it.create != nil {
		stated = it.create
	}
	object := stated.Decode()
	if metadata, ok := object["metadata"].(map[string]any); ok { // the hash is of the object without it
		annotations, _ := metadata["annotations"].(map[string]any)
		annotations = maps.Clone(annotations)
		delete(annotations, s.owner.hashAnnotation())
		if metadata["annotations"] = annotations; len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	next := *it
	next.left, next.create, next.handed = it.left.Also(it.handed.fields), nil, nil
	err := s.encode(&next, object)
	return next, err
}
