package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// repairLimit is how long a single repair is waited for.
const repairLimit = 30 * time.Second

// drift measures how long foreign edits stay.
func (b *bench) drift(ctx context.Context) error {
	if err := b.driftTrueup(ctx); err != nil {
		return fmt.Errorf("trueup: %w", err)
	}
	if err := b.driftOperator(ctx); err != nil {
		return fmt.Errorf("CreateOrUpdate: %w", err)
	}
	return nil
}

// driftTrueup measures the time from the answer to a foreign edit until a third client
// sees, by its watch, that it is repaired. The program that repairs is a
// reconcile.Loop whose interval is too long to play a part.
func (b *bench) driftTrueup(ctx context.Context) error {
	objects, err := b.mix(ctx, "drift", b.edits)
	if err != nil {
		return err
	}
	set, err := apply.NewSet(owner(), objects, apply.SetOptions{})
	if err != nil {
		return err
	}
	loop := &reconcile.Loop{Interval: time.Hour}
	t, err := startTrueup(ctx, b.side("trueup"), func(apply.Observed) { loop.Trigger() })
	if err != nil {
		return err
	}
	defer t.stop()
	if _, err := t.Apply(ctx, set); err != nil {
		return err
	}
	loop.Reconciler = reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
		_, err := t.Apply(ctx, set)
		return reconcile.Result{}, err
	})
	looping, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- loop.Start(looping) }()
	defer func() {
		cancel()
		<-ended
	}()
	return b.editAll(ctx, "trueup", objects)
}

// driftOperator measures the same of an operator on controller-runtime: one that
// watches the objects that it makes, and calls CreateOrUpdate for the one that
// has changed, with closures that write only what is not there.
func (b *bench) driftOperator(ctx context.Context) error {
	objects, err := b.mix(ctx, "drift-operator", b.edits)
	if err != nil {
		return err
	}
	p, err := startCreateOrUpdate(ctx, b.side("CreateOrUpdate"), true)
	if err != nil {
		return err
	}
	defer p.stop()
	wanted, err := p.typed(objects)
	if err != nil {
		return err
	}
	byName := make(map[string]client.Object, len(wanted))
	for _, want := range wanted {
		if err := p.one(ctx, want); err != nil {
			return err
		}
		byName[want.GetName()] = want
	}
	pause(ctx, time.Second) // its cache sees its own writes
	changed := workqueue.NewTyped[string]()
	for kind := range benchobjects.Resources() {
		informer, err := p.cluster.GetCache().GetInformer(ctx, newObject(kind.GroupVersion().String(), kind.Kind))
		if err != nil {
			return err
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, now any) { changed.Add(now.(client.Object).GetName()) },
		})
		if err != nil {
			return err
		}
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer changed.ShutDown()
	for range partsWorkers {
		workers.Go(func() {
			for {
				name, end := changed.Get()
				if end {
					return
				}
				if p.one(ctx, byName[name]) != nil && ctx.Err() == nil {
					changed.Add(name) // a conflict: the cache was behind
				}
				changed.Done(name)
			}
		})
	}
	return b.editAll(ctx, "CreateOrUpdate", objects)
}

// editAll edits one object after the other and adds how long each stayed wrong.
func (b *bench) editAll(ctx context.Context, whose string, objects []*unstructured.Unstructured) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *unstructured.Unstructured, 1000)
	if err := b.watch(ctx, objects[0].GetNamespace(), events); err != nil {
		return err
	}
	times := make([]float64, 0, len(objects))
	for _, o := range objects {
		if err := b.others.Edit(ctx, o); err != nil {
			return err
		}
		start := time.Now()
		if err := awaitRepair(ctx, o, events); err != nil {
			return err
		}
		times = append(times, benchfigures.Micros(time.Since(start), 1000))
	}
	b.book.Add(whose+".repair_edits", float64(len(times)), "edits")
	b.book.Add(whose+".repair_p50_ms", benchfigures.Percentile(times, 0.5), "ms")
	b.book.Add(whose+".repair_p99_ms", benchfigures.Percentile(times, 0.99), "ms")
	b.book.Add(whose+".repair_max_ms", benchfigures.Percentile(times, 1), "ms")
	return nil
}

// awaitRepair waits for the edit of an object to be seen, and then its repair.
func awaitRepair(ctx context.Context, o *unstructured.Unstructured, events <-chan *unstructured.Unstructured) error {
	limit := time.NewTimer(repairLimit)
	defer limit.Stop()
	for edited := false; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("%s is not repaired after %s", o.GetName(), repairLimit)
		case event, open := <-events:
			switch {
			case !open:
				return errors.New("the watch has ended")
			case event.GetName() != o.GetName():
			case !benchobjects.Stated(o, event):
				edited = true
			case edited:
				return nil
			}
		}
	}
}

// watch delivers what a client of its own sees of the objects in a namespace.
func (b *bench) watch(ctx context.Context, namespace string, to chan<- *unstructured.Unstructured) error {
	third, err := dynamic.NewForConfig(b.side("watcher").config)
	if err != nil {
		return err
	}
	for _, resource := range benchobjects.Resources() {
		if err := watchResource(ctx, third, resource, namespace, to); err != nil {
			return err
		}
	}
	return nil
}

func watchResource(
	ctx context.Context,
	third dynamic.Interface,
	resource schema.GroupVersionResource,
	namespace string,
	to chan<- *unstructured.Unstructured,
) error {
	list, err := third.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w, err := third.Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			select {
			case to <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}
