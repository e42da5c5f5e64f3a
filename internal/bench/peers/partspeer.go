package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// peerParts is an operator on controller-runtime: a Manager whose controller owns the
// kinds of the children, and calls CreateOrUpdate for each child in each pass. Its cache
// holds nothing that is not its own, and what it wants of a parent is made once for each
// generation.
type peerParts struct {
	*createOrUpdate
	passes

	children func(metav1.Object) []*unstructured.Unstructured
	wanted   sync.Map // of *peerPart by UID
}

type peerPart struct {
	generation int64
	objects    []client.Object
}

func startPartsPeer(ctx context.Context, s *side) (partsOperator, error) {
	selector := labels.SelectorFromSet(labels.Set{contenderLabel: s.name})
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
		Cache:  cache.Options{DefaultLabelSelector: selector},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	p := &peerParts{children: childrenOf, createOrUpdate: &createOrUpdate{s, true, mgr, func() {
		cancel()
		<-ended
	}}}
	parent := &unstructured.Unstructured{}
	parent.SetGroupVersionKind(parentKind())
	skip := true // of the name, which the controller of another start has had
	build := ctrl.NewControllerManagedBy(mgr).
		For(parent).
		WithOptions(controller.Options{MaxConcurrentReconciles: partsWorkers, SkipNameValidation: &skip})
	for kind := range benchobjects.Resources() {
		build = build.Owns(newObject(kind.GroupVersion().String(), kind.Kind))
	}
	if err := build.Complete(p); err != nil {
		cancel()
		return nil, err
	}
	go func() { ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		p.stop()
		return nil, errors.New("the cache of controller-runtime is not synced")
	}
	return p, nil
}

func (p *peerParts) passed() *passes { return &p.passes }

// Reconcile does one pass for one parent.
func (p *peerParts) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	parent := &unstructured.Unstructured{}
	parent.SetGroupVersionKind(parentKind())
	if err := p.cluster.GetClient().Get(ctx, request.NamespacedName, parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err := p.reconcile(ctx, parent)
	if err == nil {
		p.note(request.Name)
	}
	return ctrl.Result{}, err
}

func (p *peerParts) reconcile(ctx context.Context, parent metav1.Object) error {
	wanted, err := p.part(parent)
	if err != nil {
		return err
	}
	for _, want := range wanted {
		kind := want.GetObjectKind().GroupVersionKind()
		live := newObject(kind.GroupVersion().String(), kind.Kind)
		live.SetNamespace(want.GetNamespace())
		live.SetName(want.GetName())
		_, failed := controllerutil.CreateOrUpdate(ctx, p.cluster.GetClient(), live, func() error {
			if err := p.mutate(live, want); err != nil {
				return err
			}
			return controllerutil.SetControllerReference(parent, live, p.cluster.GetScheme())
		})
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", want.GetName(), failed))
		}
	}
	return err
}

func (p *peerParts) part(parent metav1.Object) ([]client.Object, error) {
	if found, ok := p.wanted.Load(parent.GetUID()); ok && found.(*peerPart).generation == parent.GetGeneration() {
		return found.(*peerPart).objects, nil // the map holds no other type
	}
	wanted, err := p.typed(p.children(parent))
	if err == nil {
		p.wanted.Store(parent.GetUID(), &peerPart{parent.GetGeneration(), wanted})
	}
	return wanted, err
}
