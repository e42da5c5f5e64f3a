package main

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// partLabel is the label of a child that holds the UID of its parent.
const partLabel = "example.com/parent"

func partsOwner() apply.Owner {
	return apply.Owner{
		Manager: "trueup-parts", Labels: map[string]string{contenderLabel: "parts_trueup"}, Domain: "bench.example.com", PartLabel: partLabel,
	}
}

// ownParts is an operator as examples/operator has it: one Live and one Applier for all
// parents, a Controller that the Live wakes. A Set is made once for each generation of a
// parent.
type ownParts struct {
	*side
	passes

	applier    apply.Applier
	controller kube.Controller[*unstructured.Unstructured]
	sets       sync.Map // of *partSet by UID
	cancel     func()
}

type partSet struct {
	*apply.Set

	generation int64
}

func startPartsOperator(ctx context.Context, s *side) (partsOperator, error) {
	metadataClient, err := metadata.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	o := &ownParts{side: s}
	o.controller.Client, o.controller.Workers, o.controller.IgnoreStatus = client, partsWorkers, true
	o.controller.Kind = kube.Kind{Resource: parentResource(), LabelSelector: contenderLabel + "=" + s.name}
	o.controller.Reconcile = func(ctx context.Context, key types.NamespacedName, parent *unstructured.Unstructured) (reconcile.Result, error) {
		if parent == nil {
			return reconcile.Result{}, nil
		}
		err := o.reconcile(ctx, parent)
		if err == nil {
			o.note(key.Name)
		}
		return reconcile.Result{}, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	wake := func(child apply.Observed) { o.controller.AddUID(child.Controller, types.UID(child.Part)) }
	live := &apply.Live{Client: metadataClient, Mapper: mapper, Owner: partsOwner(), OnChange: wake, OnDrift: wake}
	for kind := range benchobjects.Resources() {
		mapper.Add(kind, meta.RESTScopeNamespace)
		live.Kinds = append(live.Kinds, kind)
	}
	o.applier.Live = live
	group := &reconcile.Group{Members: []reconcile.Member{{Name: "live", Starter: live}, {Name: "controller", Starter: &o.controller}}}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- group.Start(ctx) }()
	o.cancel = func() {
		cancel()
		<-ended
	}
	if err := live.WaitSynced(ctx); err != nil {
		o.stop()
		return nil, err
	}
	return o, nil
}

func (o *ownParts) stop() { o.cancel() }

func (o *ownParts) passed() *passes { return &o.passes }

func (o *ownParts) reconcile(ctx context.Context, parent metav1.Object) error {
	set, err := o.set(parent)
	if err != nil {
		return err
	}
	if _, err := o.applier.Apply(ctx, set); err != nil {
		return err
	}
	_, err = o.applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
	return err
}

// set returns what a parent wants, made once for each of its generations.
func (o *ownParts) set(parent metav1.Object) (*apply.Set, error) {
	if found, ok := o.sets.Load(parent.GetUID()); ok && found.(*partSet).generation == parent.GetGeneration() {
		return found.(*partSet).Set, nil // the map holds no other type
	}
	set, err := partOf(parent, childrenOf(parent))
	if err == nil {
		o.sets.Store(parent.GetUID(), &partSet{set, parent.GetGeneration()})
	}
	return set, err
}

// partOf is a set of children whose controller is the parent.
func partOf(parent metav1.Object, children []*unstructured.Unstructured) (*apply.Set, error) {
	for _, child := range children {
		child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(parent, parentKind())})
	}
	return apply.NewSet(partsOwner(), children, apply.SetOptions{Part: string(parent.GetUID())})
}

// partsAllocations measures what an unchanged child allocates in a pass, and what makes
// up a pass.
func (b *bench) partsAllocations(ctx context.Context, o *ownParts, parent metav1.Object) error {
	// A part of one object, to tell the share of a child from that of a pass.
	lone := &unstructured.Unstructured{}
	lone.SetNamespace(parent.GetNamespace())
	lone.SetName("lone")
	lone.SetUID("00000000-0000-4000-8000-000000000001")
	few, err := apply.NewSet(partsOwner(), childrenOf(lone)[:1], apply.SetOptions{Part: string(lone.GetUID())})
	if err != nil {
		return err
	}
	if _, err := o.applier.Apply(ctx, few); err != nil {
		return err
	}
	set, err := o.set(parent)
	if err != nil {
		return err
	}
	const repeated = 2000
	measure := func(set *apply.Set, call func(*apply.Set) error) (us, allocations float64, err error) {
		took, allocated, err := benchfigures.Measured(func() error {
			for range repeated {
				if err := call(set); err != nil {
					return err
				}
			}
			return nil
		})
		return benchfigures.Micros(took, repeated), allocated / repeated, err
	}
	total := 0.0
	for name, call := range map[string]func(*apply.Set) error{
		"apply": func(set *apply.Set) error {
			report, err := o.applier.Apply(ctx, set)
			if err == nil && report.Unchanged != set.Len() {
				err = fmt.Errorf("%d of %d objects unchanged", report.Unchanged, set.Len())
			}
			return err
		},
		"prune": func(set *apply.Set) error {
			_, err := o.applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
			return err
		},
	} {
		us, of10, err := measure(set, call)
		if err != nil {
			return err
		}
		_, of1, err := measure(few, call)
		if err != nil {
			return err
		}
		b.book.Add("trueup.parts_"+name+"_us", us, "us")
		b.book.Add("trueup.parts_"+name+"_allocations", of10, "allocations")
		total += max(0, of10-of1)
	}
	// Below a tenth it is what runs beside, not the children.
	perChild := total / float64(set.Len()-few.Len())
	b.book.Add("trueup.parts_allocs_per_child", float64(int(perChild*10))/10, "allocations")
	us, _, err := measure(set, func(*apply.Set) error {
		_, err := partOf(parent, childrenOf(parent))
		return err
	})
	b.book.Add("trueup.parts_new_set_us", us, "us")
	return err
}
