package main

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// contender makes the cluster match a desired state, with one of the packages
// that are compared.
type contender interface {
	// its name, requests and configuration
	own() *side
	// prepare does once what the package's users do when the desired state
	// changes, and returns what does a pass over it. The pass may be called
	// again and again.
	prepare(objects []*unstructured.Unstructured) (pass, error)
	// stop ends what runs in the background.
	stop()
}

// pass makes the objects as desired.
type pass func(context.Context) error

func (s *side) own() *side { return s }

func (s *side) stop() {}
