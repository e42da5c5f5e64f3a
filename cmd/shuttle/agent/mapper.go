package agent

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mapper is a caching mapper that is asked by one goroutine at a time. The others wait at a
// channel, and not at its mutex, which it holds during its requests: virtual time goes on then.
type mapper struct {
	meta.ResettableRESTMapper

	turn chan struct{}
}

func newMapper(of meta.ResettableRESTMapper) mapper { return mapper{of, make(chan struct{}, 1)} }

// RESTMapping implements meta.RESTMapper.
func (m mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	return m.ResettableRESTMapper.RESTMapping(kind, versions...)
}

// Reset implements meta.ResettableRESTMapper.
func (m mapper) Reset() {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.ResettableRESTMapper.Reset()
}
