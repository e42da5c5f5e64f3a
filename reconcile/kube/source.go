package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// Source delivers the objects of a kind until ctx ends, for example from a cache that the process
// has already. It calls the Sink from one goroutine at a time, and not after it has returned.
type Source func(ctx context.Context, to Sink)

// Sink takes the objects of a kind. They are whole, and belong to the Sink.
type Sink interface {
	// List takes all objects that there are. It is called once, and first.
	List(objects []*unstructured.Unstructured)
	// Put takes an object that was added or changed.
	Put(object *unstructured.Unstructured)
	// Drop takes the last known state of an object that was deleted.
	Drop(object *unstructured.Unstructured)
	// Failed takes the reason why there is no list yet, or that what was delivered is not
	// current. It is nil when there is none any more.
	Failed(err error)
}

// sourceSink is the Sink of a cache.
type sourceSink struct{ cache *kindCache }

var _ Sink = sourceSink{}

// List implements Sink.
func (s sourceSink) List(objects []*unstructured.Unstructured) {
	seen, newest := make([]any, len(objects)), "0"
	for i, object := range objects {
		s.cache.trim(object)
		seen[i] = object
		if version := object.GetResourceVersion(); versions.Parse(version) > versions.Parse(newest) {
			newest = version
		}
	}
	if err := s.cache.Replace(seen, newest); err != nil {
		s.cache.Failed(err)
	}
}

// Put implements Sink.
func (s sourceSink) Put(object *unstructured.Unstructured) {
	s.cache.trim(object)
	if err := s.cache.Put(object); err != nil {
		s.cache.Failed(err)
	}
	s.reached(object)
}

// Drop implements Sink.
func (s sourceSink) Drop(object *unstructured.Unstructured) {
	if err := s.cache.Drop(object); err != nil {
		s.cache.Failed(err)
	}
	s.reached(object)
}

// Failed implements Sink.
func (s sourceSink) Failed(err error) { s.cache.Failed(err) }

// reached leaves out versions that the events are past: a Source repeats objects that have not
// changed.
func (s sourceSink) reached(object *unstructured.Unstructured) {
	version := object.GetResourceVersion()
	s.cache.all.mu.RLock()
	past := versions.Parse(version) <= s.cache.version
	s.cache.all.mu.RUnlock()
	if !past {
		s.cache.Reached(version)
	}
}
