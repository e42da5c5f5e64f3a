package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// embedded is one Manager of controller-runtime with operators, each of which has the parents of
// one namespace.
type embedded struct {
	side      *side
	operators map[string]*inManager
	stop      func()
}

// inManager is one of the operators.
type inManager struct {
	namespace string
	passed    *passes
	// again starts a pass for each parent.
	again func(context.Context, []*unstructured.Unstructured) error
}

// startEmbedded starts a Manager with the operators that namespaces names.
func startEmbedded(ctx context.Context, s *side, namespaces map[string]string) (*embedded, error) {
	options := ctrl.Options{Scheme: holderScheme(), Metrics: server.Options{BindAddress: "0"}}
	options.Cache.ByObject = map[client.Object]cache.ByObject{}
	for name, namespace := range namespaces {
		only := map[string]cache.Config{namespace: {}}
		if len(namespaces) == 1 {
			options.Cache.DefaultNamespaces = only
		}
		if name == "CreateOrUpdate" { // its cache of the children has no others
			for _, kind := range holderKinds() {
				options.Cache.ByObject[newObject(kind.GroupVersion().String(), kind.Kind)] = cache.ByObject{Namespaces: only}
			}
		}
	}
	mgr, err := ctrl.NewManager(s.config, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	e := &embedded{s, map[string]*inManager{}, func() {
		cancel()
		<-ended
	}}
	for name, namespace := range namespaces {
		add := addEmbedded
		if name == "CreateOrUpdate" {
			add = addEmbeddedPeer
		}
		if e.operators[name], err = add(mgr, s, namespace); err != nil {
			cancel()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	go func() { ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		e.stop()
		return nil, errors.New("the cache of controller-runtime is not synced")
	}
	return e, nil
}

// addEmbedded adds an operator as examples/embed does.
func addEmbedded(mgr ctrl.Manager, _ *side, namespace string) (*inManager, error) {
	m := &inManager{namespace: namespace, passed: &passes{}}
	o := &operator.Operator[*Holder]{
		Name: "bench-embedded", Domain: "bench.example.com", Namespace: namespace, Workers: partsWorkers, Owns: holderKinds(),
		Children: func(_ context.Context, parent *Holder) ([]operator.Object, error) {
			return operator.Objects(holderChildren(parent)...), nil
		},
		Conditions: func(parent *Holder) *[]metav1.Condition { return &parent.Status.Conditions },
		OnPass: func(pass reconcile.KeyPass[types.NamespacedName]) {
			if pass.Err == nil {
				m.passed.note(pass.Key.Name)
			}
		},
	}
	m.again = func(_ context.Context, parents []*unstructured.Unstructured) error {
		for _, parent := range parents {
			o.Add(types.NamespacedName{Namespace: namespace, Name: parent.GetName()})
		}
		return nil
	}
	return m, controllerruntime.Add(mgr, o)
}

// embeddedPeer is a controller that calls CreateOrUpdate for each child, with a finalizer and a
// status.
type embeddedPeer struct {
	parts *peerParts
}

func addEmbeddedPeer(mgr ctrl.Manager, s *side, namespace string) (*inManager, error) {
	p := &embeddedPeer{&peerParts{createOrUpdate: &createOrUpdate{side: s, cluster: mgr}, children: holderChildren}}
	skip := true // of the name, which the controller of another start has had
	own := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == namespace })
	build := ctrl.NewControllerManagedBy(mgr).
		For(&Holder{}, builder.WithPredicates(predicate.GenerationChangedPredicate{}, own)).
		WithOptions(controller.Options{MaxConcurrentReconciles: partsWorkers, SkipNameValidation: &skip})
	for _, kind := range holderKinds() {
		build = build.Owns(newObject(kind.GroupVersion().String(), kind.Kind))
	}
	m := &inManager{namespace: namespace, passed: &p.parts.passes}
	m.again = func(ctx context.Context, parents []*unstructured.Unstructured) error {
		return benchobjects.Each(len(parents), partsWorkers, func(i int) error {
			_, err := p.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(parents[i])})
			return err
		})
	}
	return m, build.Complete(p)
}

// Reconcile does one pass for one parent.
func (p *embeddedPeer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	c, parent := p.parts.cluster.GetClient(), &Holder{}
	if err := c.Get(ctx, request.NamespacedName, parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if controllerutil.AddFinalizer(parent, "bench.example.com/children") {
		if err := c.Update(ctx, parent); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := p.parts.reconcile(ctx, parent); err != nil {
		return ctrl.Result{}, err
	}
	before := parent.DeepCopyObject().(*Holder) // it returns no other
	parent.Status.ObservedGeneration = parent.Generation
	meta.SetStatusCondition(&parent.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: parent.Generation,
	})
	if !equality.Semantic.DeepEqual(before.Status, parent.Status) {
		if err := c.Status().Patch(ctx, parent, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
	}
	p.parts.note(request.Name)
	return ctrl.Result{}, nil
}

// embeddedHolder measures one operator in a Manager, with the parents of a namespace that have
// all their children. What a process has once is there before: another such Manager runs, for a
// namespace without a parent.
func embeddedHolder(ctx context.Context, name string, s *side, namespace string, parents []*unstructured.Unstructured) (
	func(context.Context) (any, error), error,
) {
	empty, err := startEmbedded(ctx, s, map[string]string{name: namespace + "-empty"})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (any, error) {
		full, err := startEmbedded(ctx, s, map[string]string{name: namespace})
		if err != nil {
			return nil, err
		}
		if err := full.operators[name].passed.await(ctx, parents); err != nil {
			return nil, err
		}
		pause(ctx, 5*time.Second) // what the passes began ends
		return sync.OnceFunc(func() { empty.stop(); full.stop() }), nil
	}, nil
}
