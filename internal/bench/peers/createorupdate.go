package main

import (
	"context"
	"errors"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// createOrUpdate is controllerutil.CreateOrUpdate with typed objects, read from
// a synced cache of what is the contender's own.
type createOrUpdate struct {
	*side
	// careful leaves a spec alone that has all that is wanted, as an operator does that knows the defaults of the server.
	careful bool
	cluster cluster.Cluster
	cancel  func()
}

func startCreateOrUpdate(ctx context.Context, s *side, careful bool) (*createOrUpdate, error) {
	c, err := cluster.New(s.config, func(o *cluster.Options) {
		o.Scheme = scheme.Scheme
		o.Cache.DefaultLabelSelector = labels.SelectorFromSet(labels.Set{contenderLabel: s.name})
		o.Client.Cache = &client.CacheOptions{Unstructured: true}
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	p := &createOrUpdate{s, careful, c, func() {
		cancel()
		<-ended
	}}
	for kind := range benchobjects.Resources() {
		o := newObject(kind.GroupVersion().String(), kind.Kind)
		if _, err := c.GetCache().GetInformer(ctx, o); err != nil {
			p.stop()
			return nil, err
		}
	}
	if !c.GetCache().WaitForCacheSync(ctx) {
		p.stop()
		return nil, errors.New("the cache of controller-runtime is not synced")
	}
	return p, nil
}

func (p *createOrUpdate) stop() { p.cancel() }

// newObject is an empty object: typed where there is a type.
func newObject(apiVersion, kind string) client.Object {
	empty := &unstructured.Unstructured{}
	empty.SetAPIVersion(apiVersion)
	empty.SetKind(kind)
	if typed, err := scheme.Scheme.New(empty.GroupVersionKind()); err == nil {
		return typed.(client.Object) // all of ours are
	}
	return empty
}

func (p *createOrUpdate) prepare(objects []*unstructured.Unstructured) (pass, error) {
	wanted, err := p.typed(objects)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var failed error
		for _, want := range wanted {
			failed = errors.Join(failed, p.one(ctx, want))
		}
		return failed
	}, nil
}

// typed returns the objects as this contender states them.
func (p *createOrUpdate) typed(objects []*unstructured.Unstructured) ([]client.Object, error) {
	wanted := make([]client.Object, len(objects))
	for i, o := range objects {
		o.SetLabels(maps.Clone(o.GetLabels()))
		have := o.GetLabels()
		have[contenderLabel] = p.name
		o.SetLabels(have)
		// Written as stringData, a Secret would never be equal to what is read.
		o.Object = diff.SecretData(o.Object)
		wanted[i] = newObject(o.GetAPIVersion(), o.GetKind())
		if u, ok := wanted[i].(*unstructured.Unstructured); ok {
			u.Object = o.Object
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, wanted[i]); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// one makes a single object as wanted.
func (p *createOrUpdate) one(ctx context.Context, want client.Object) error {
	kind := want.GetObjectKind().GroupVersionKind()
	live := newObject(kind.GroupVersion().String(), kind.Kind)
	live.SetNamespace(want.GetNamespace())
	live.SetName(want.GetName())
	_, err := controllerutil.CreateOrUpdate(ctx, p.cluster.GetClient(), live, func() error { return p.mutate(live, want) })
	if err != nil {
		return fmt.Errorf("%s: %w", want.GetName(), err)
	}
	return nil
}

// mutate writes what is wanted over what there is, as the closures of operators
// do: the whole spec, but for what others decide, and maps key by key. One that is careful writes no spec that has
// already what is wanted, and does not see what another has added to it.
func (p *createOrUpdate) mutate(live, want client.Object) error {
	has := func(spec, wanted any) bool {
		return p.careful && live.GetResourceVersion() != "" && equality.Semantic.DeepDerivative(wanted, spec)
	}
	live.SetLabels(merged(live.GetLabels(), want.GetLabels()))
	live.SetAnnotations(merged(live.GetAnnotations(), want.GetAnnotations()))
	switch live := live.(type) {
	case *appsv1.Deployment:
		if has(live.Spec, want.(*appsv1.Deployment).Spec) {
			return nil
		}
		replicas := live.Spec.Replicas
		want.(*appsv1.Deployment).Spec.DeepCopyInto(&live.Spec)
		if live.Spec.Replicas == nil {
			live.Spec.Replicas = replicas
		}
	case *appsv1.StatefulSet:
		if has(live.Spec, want.(*appsv1.StatefulSet).Spec) {
			return nil
		}
		// What is immutable can only be stated at the creation.
		claims := live.Spec.VolumeClaimTemplates
		want.(*appsv1.StatefulSet).Spec.DeepCopyInto(&live.Spec)
		if live.GetResourceVersion() != "" {
			live.Spec.VolumeClaimTemplates = claims
		}
	case *corev1.ConfigMap:
		live.Data = merged(live.Data, want.(*corev1.ConfigMap).Data)
	case *corev1.Secret:
		live.Type = want.(*corev1.Secret).Type
		live.Data = merged(live.Data, want.(*corev1.Secret).Data)
	case *corev1.Service:
		spec := want.(*corev1.Service).Spec.DeepCopy()
		if has(live.Spec, *spec) {
			return nil
		}
		live.Spec.Selector, live.Spec.Ports, live.Spec.SessionAffinity = spec.Selector, spec.Ports, spec.SessionAffinity
	case *unstructured.Unstructured:
		if has(live.Object["spec"], want.(*unstructured.Unstructured).Object["spec"]) {
			return nil
		}
		live.Object["spec"] = runtime.DeepCopyJSONValue(want.(*unstructured.Unstructured).Object["spec"])
	default:
		return fmt.Errorf("no closure for %T", live)
	}
	return nil
}

func merged[V any](have, want map[string]V) map[string]V {
	if have == nil {
		have = map[string]V{}
	}
	maps.Copy(have, want)
	return have
}
