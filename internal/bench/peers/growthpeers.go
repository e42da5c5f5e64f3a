package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fluxOwner is the name and the group of flux in the stage growth.
const fluxOwner, fluxGroup = "flux-growth", "bench.example.com"

// fluxManager is ApplyAll as kustomize-controller calls it: without a cache, four at once.
func (r *growthRun) fluxManager() (*ssa.ResourceManager, error) {
	mapper, _ := r.world.mapper()
	c, err := client.New(r.config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	manager := ssa.NewResourceManager(c, nil, ssa.Owner{Field: fluxOwner, Group: fluxGroup})
	manager.SetConcurrency(4)
	return manager, nil
}

// fluxObjects are desired ones that flux may change.
func (r *growthRun) fluxObjects(manager *ssa.ResourceManager, numbers ...int) ([]*unstructured.Unstructured, error) {
	objects := make([]*unstructured.Unstructured, len(numbers))
	for at, i := range numbers {
		objects[at] = r.world.object(i).DeepCopy()
	}
	if err := normalize.UnstructuredList(objects); err != nil {
		return nil, err
	}
	manager.SetOwnerLabels(objects, fluxOwner, "bench")
	return objects, nil
}

// flux measures a pass of the engine of Flux at rest.
func (r *growthRun) flux(ctx context.Context) error {
	manager, err := r.fluxManager()
	if err != nil {
		return err
	}
	numbers := make([]int, r.n)
	for i := range numbers {
		numbers[i] = i
	}
	objects, err := r.fluxObjects(manager, numbers...)
	if err != nil {
		return err
	}
	passes := 0
	pass := func() error {
		passes++
		changes, err := manager.ApplyAll(ctx, objects, ssa.DefaultApplyOptions())
		if err != nil {
			return err
		}
		for _, change := range changes.Entries {
			if change.Action != ssa.UnchangedAction {
				return fmt.Errorf("%s is %s, must be unchanged", change.Subject, change.Action)
			}
		}
		return nil
	}
	if err := pass(); err != nil {
		return err
	}
	r.count.reset()
	passes = 0
	if err := r.measure("sweep_us", r.n, pass, nil); err != nil {
		return err
	}
	_, other, _ := r.count.reset()
	r.book.Add("sweep_requests_per_object", float64(other)/float64(passes*r.n), "requests")
	return nil
}

// informer measures the memory of a cache of controller-runtime with the whole objects.
func (r *growthRun) informer(ctx context.Context) error {
	mapper, kinds := r.world.mapper()
	start := func(n int) (cache.Cache, func(), error) {
		c, err := cache.New(r.config, cache.Options{Scheme: scheme.Scheme, Mapper: mapper})
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- c.Start(ctx) }()
		stop := func() {
			cancel()
			<-ended
		}
		for _, kind := range kinds {
			object, err := scheme.Scheme.New(kind)
			if err != nil {
				stop()
				return nil, nil, err
			}
			typed, ok := object.(client.Object)
			if !ok {
				stop()
				return nil, nil, fmt.Errorf("%s has no metadata", kind.Kind)
			}
			if _, err := c.GetInformer(ctx, typed); err != nil {
				stop()
				return nil, nil, err
			}
		}
		if !c.WaitForCacheSync(ctx) {
			stop()
			return nil, nil, errors.New("not synced")
		}
		return c, stop, r.cached(ctx, c, n)
	}
	_, stop, err := start(r.n)
	if err != nil {
		return err
	}
	stop()
	copies := max(1, 20_000/r.n)
	base := settled()
	held := make([]cache.Cache, copies)
	for i := range held {
		if held[i], stop, err = start(r.n); err != nil {
			return err
		}
		defer stop()
	}
	seen := settled()
	runtime.KeepAlive(held)
	r.book.Add("memory_bytes", (seen.resident-base.resident)/float64(copies*r.n), "bytes")
	r.book.Add("memory_heap_bytes", (seen.heap-base.heap)/float64(copies*r.n), "bytes")
	return nil
}

// cached returns an error unless the cache has the last objects of n.
func (r *growthRun) cached(ctx context.Context, c cache.Cache, n int) error {
	for i := n - 10; i < n; i++ {
		object, err := scheme.Scheme.New(r.world.forms[r.world.form(i)].kind)
		if err != nil {
			return err
		}
		typed, ok := object.(client.Object)
		if !ok {
			return fmt.Errorf("%T has no metadata", object)
		}
		if err := c.Get(ctx, client.ObjectKey{Namespace: growthNamespace(i), Name: r.world.name(i)}, typed); err != nil {
			return err
		}
	}
	return nil
}
