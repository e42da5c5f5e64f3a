package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// holdObjects watches the objects of a [store] in one of several ways and prints
// what it takes to hold them, beyond the process before that.
func holdObjects(ctx context.Context, way, address string, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	config := &rest.Config{Host: "http://" + address, QPS: -1}
	begun := settled()
	hold, err := holder(ctx, way, n, config, mapper, kind)
	if err != nil {
		return err
	}
	before := settled()
	kept, err := hold(ctx)
	if err != nil {
		return err
	}
	after := settled()
	runtime.KeepAlive(kept)
	book := benchfigures.Book{Out: os.Stdout}
	book.Add("resident_bytes_per_object", (after.resident-before.resident)/float64(n), "bytes")
	// With what is made before: of trueup the desired state, which a program on a cache makes in each pass.
	book.Add("resident_bytes_per_object_in_all", (after.resident-begun.resident)/float64(n), "bytes")
	book.Add("heap_bytes_per_object", (after.heap-before.heap)/float64(n), "bytes")
	book.Add("heap_spans_bytes_per_object", (after.spans-before.spans)/float64(n), "bytes")
	book.Add("runtime_bytes_per_object", (after.runtime-before.runtime)/float64(n), "bytes")
	return nil
}

// holder returns what begins to hold the objects, and what must stay alive for
// that. What does not grow with them is made before.
func holder(
	ctx context.Context,
	way string,
	n int,
	config *rest.Config,
	mapper meta.RESTMapper,
	kind schema.GroupVersionKind,
) (func(context.Context) (any, error), error) {
	switch way {
	case "embedded_trueup", "embedded_CreateOrUpdate":
		return holdEmbedded(ctx, strings.TrimPrefix(way, "embedded_"), strings.TrimPrefix(config.Host, "http://"), n)
	case "trueup":
		return trueupHolder(n, config, mapper, kind)
	case "parts":
		return partsHolder(n, config)
	case "parts_informer":
		return cacheHolder(config, mapper, &appsv1.Deployment{}, false, n), nil
	case "informer", "stripped_informer":
		return cacheHolder(config, mapper, &appsv1.Deployment{}, way != "informer", n), nil
	case "metadata_informer", "stripped_metadata_informer":
		partial := &metav1.PartialObjectMetadata{}
		partial.SetGroupVersionKind(kind)
		return cacheHolder(config, mapper, partial, way != "metadata_informer", n), nil
	default:
		return nil, fmt.Errorf("no way to hold objects: %q", way)
	}
}

// trueupHolder is a live view that a pass has compared with the desired state.
// The desired state is there before: it is no cost of watching.
func trueupHolder(
	n int,
	config *rest.Config,
	mapper meta.RESTMapper,
	kind schema.GroupVersionKind,
) (func(context.Context) (any, error), error) {
	objects := make([]*unstructured.Unstructured, n)
	for i := range objects {
		objects[i] = watchedObject(i)
	}
	set, err := apply.NewSet(owner(), objects, apply.SetOptions{})
	if err != nil {
		return nil, err
	}
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (any, error) {
		live := &apply.Live{Client: c, Mapper: mapper, Owner: owner(), Kinds: []schema.GroupVersionKind{kind}}
		go live.Start(ctx) //nolint:errcheck // of the configuration; WaitSynced tells
		if err := live.WaitSynced(ctx); err != nil {
			return nil, err
		}
		applier := &apply.Applier{Live: live}
		report, err := applier.Apply(ctx, set)
		if err == nil && report.Unchanged != n {
			err = fmt.Errorf("%d of %d objects unchanged", report.Unchanged, n)
		}
		return []any{applier, set}, err
	}, nil
}

// cacheHolder is a cache of controller-runtime. Stripped, it drops managedFields,
// as its documentation advises those who need no such field.
func cacheHolder(
	config *rest.Config,
	mapper meta.RESTMapper,
	object client.Object,
	stripped bool,
	n int,
) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		options := cache.Options{Scheme: scheme.Scheme, Mapper: mapper}
		if stripped {
			options.DefaultTransform = cache.TransformStripManagedFields()
		}
		c, err := cache.New(config, options)
		if err != nil {
			return nil, err
		}
		go c.Start(ctx) //nolint:errcheck // WaitForCacheSync tells
		informer, err := c.GetInformer(ctx, object)
		if err != nil {
			return nil, err
		}
		if !c.WaitForCacheSync(ctx) {
			return nil, errors.New("not synced")
		}
		if indexed, ok := informer.(toolscache.SharedIndexInformer); ok && len(indexed.GetIndexer().ListKeys()) != n {
			return nil, fmt.Errorf("%d of %d objects held", len(indexed.GetIndexer().ListKeys()), n)
		}
		return c, nil
	}
}

// footprint is memory in use: of the process, of the objects on the heap, of the spans
// that hold them, which have gaps, and of the runtime for its own records.
type footprint struct{ resident, heap, spans, runtime float64 }

// settled is the memory in use once all garbage has been given back.
func settled() footprint {
	for range 3 { // finalizers and interned strings need more than one
		runtime.GC()
	}
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	f := footprint{
		resident: float64(stats.Sys - stats.HeapReleased),
		heap:     float64(stats.HeapAlloc),
		spans:    float64(stats.HeapInuse),
		runtime:  float64(stats.MSpanInuse + stats.MCacheInuse + stats.BuckHashSys + stats.GCSys + stats.OtherSys + stats.StackInuse),
	}
	// The operating system knows, where that is Linux.
	if memory, err := benchfigures.MemoryOf(os.Getpid()); err == nil {
		f.resident = memory.Resident
	}
	return f
}
