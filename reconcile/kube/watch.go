package kube

import (
	"context"
	"errors"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// watch fills the cache until ctx ends.
func (k *kindCache) watch(ctx context.Context, client dynamic.Interface, metadata clientmetadata.Interface) {
	resource := kubewatch.Of(client, &unstructured.Unstructured{}, client.Resource(k.kind.Resource).Namespace(k.kind.Namespace))
	if !k.kind.Whole && metadata != nil {
		resource = kubewatch.Of(metadata, &metav1.PartialObjectMetadata{}, metadata.Resource(k.kind.Resource).Namespace(k.kind.Namespace))
	}
	w := kubewatch.Watch{
		Name: k.kind.Resource.GroupResource().String(), Resource: resource, Sink: k, Failed: k.Failed,
		LabelSelector: k.kind.LabelSelector, FieldSelector: k.kind.FieldSelector,
		Logger: k.all.logger.With(slog.String("controller", k.all.controller)),
	}
	_ = w.Start(ctx) // it returns nil
}

// Failed records the error of a list or watch, nil for a success. A silent watch is resumed,
// and nothing is lost: only what fails then is an error.
func (k *kindCache) Failed(err error) {
	if errors.Is(err, kubewatch.ErrSilent) {
		return
	}
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.err = err
}
