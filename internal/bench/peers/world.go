package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// world is the API server, and what happens to it beside the contenders.
type world struct {
	cluster *kubetest.Cluster
	others  benchobjects.Others // not counted
}

func newWorld(ctx context.Context, cluster *kubetest.Cluster) (*world, error) {
	admin, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return nil, err
	}
	w := &world{cluster, benchobjects.Others{Client: admin}}
	return w, w.define(ctx)
}

// define creates the custom kind and waits until it is served.
func (w *world) define(ctx context.Context) error {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := w.others.Client.Resource(definitions).Create(ctx, benchobjects.Definition(), metav1.CreateOptions{}); err != nil {
		return err
	}
	for kind, resource := range benchobjects.Resources() {
		for {
			_, err := w.others.Client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil {
				break
			}
			if !apierrors.IsNotFound(err) || !pause(ctx, 50*time.Millisecond) {
				return fmt.Errorf("%s: %w", kind.Kind, err)
			}
		}
	}
	return nil
}

// side is a contender's own way to the API server, on which requests are
// counted, and its name.
type side struct {
	name   string
	net    applytest.Transport
	config *rest.Config
}

func (w *world) side(name string) *side {
	s := &side{name: name, config: rest.CopyConfig(w.cluster.Config)}
	s.config.QPS = -1
	s.config.UserAgent = "bench-" + name
	s.config.Wrap(s.net.Wrap)
	return s
}

// requests counts those since the last Reset, without lists and watches, by
// which caches are kept up to date.
func (s *side) requests() (requests, lists int) {
	for _, r := range s.net.Requests() {
		if r.Verb == "list" || r.Verb == "watch" {
			lists++
		} else {
			requests++
		}
	}
	return requests, lists
}

// perObject returns the requests since the last Reset for each of n objects,
// without lists and watches.
func (s *side) perObject(n int) float64 {
	requests, _ := s.requests()
	return float64(requests) / float64(n)
}

// counted returns an error if fewer requests were counted than objects were made. What is counted at rest says
// nothing then: it would be none, too.
func counted(whose string, requests, objects int) error {
	if requests < objects {
		return fmt.Errorf("%s: %d requests were counted for %d objects, must be one or more for each", whose, requests, objects)
	}
	return nil
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
