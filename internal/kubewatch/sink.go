package kubewatch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// store is a Watch as the store of its reflector.
type store struct{ watch *Watch }

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

// kept is what a Reducer keeps of an object of a list that is not complete yet.
type kept struct {
	metav1.ObjectMeta
	value any
}

// Transformer implements cache.TransformingStore. It gets the objects of a streamed list.
func (s *store) Transformer() cache.TransformFunc {
	reducer, ok := s.watch.Sink.(Reducer)
	if !ok {
		return nil
	}
	return func(object any) (any, error) {
		m, ok := object.(metav1.Object)
		if !ok {
			return object, nil
		}
		name := metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()}
		value, err := reducer.Reduce(object)
		return &kept{name, value}, err
	}
}

func (s *store) keep(object any) (any, error) {
	if k, ok := object.(*kept); ok {
		return k.value, nil
	}
	if reducer, ok := s.watch.Sink.(Reducer); ok {
		return reducer.Reduce(object)
	}
	return object, nil
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error {
	value, err := s.keep(object)
	if err == nil {
		err = s.watch.Sink.Put(value)
	}
	return s.refused(err)
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error { return s.refused(s.watch.Sink.Drop(object)) }

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, version string) error {
	values := make([]any, len(objects))
	for i, object := range objects {
		var err error
		if values[i], err = s.keep(object); err != nil {
			return s.failed(err)
		}
	}
	if err := s.watch.Sink.Replace(values, version); err != nil {
		return s.failed(err)
	}
	s.watch.listed.Store(true)
	s.watch.proved()
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: it is called for each
// event and bookmark.
func (s *store) UpdateResourceVersion(version string) {
	s.watch.Sink.Reached(version)
	s.watch.proved()
}

// Resync implements cache.ReflectorStore. It does nothing.
func (s *store) Resync() error { return nil }

// failed reports an object that the sink does not take.
func (s *store) failed(err error) error {
	if err != nil {
		s.watch.note(err)
	}
	return err
}

// refused is failed for one object. The reflector gets no error: it would pass it to a
// handler that is shared by the whole process and sleeps.
func (s *store) refused(err error) error {
	_ = s.failed(err)
	return nil
}
