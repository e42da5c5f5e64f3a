package main

import (
	"context"
	"encoding/json"
	"path"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// contenderLabel tells whose an object is.
const contenderLabel = "example.com/contender"

// flux is ssa.ResourceManager.ApplyAll as kustomize-controller calls it.
type flux struct {
	*side
	manager *ssa.ResourceManager
}

func newFlux(s *side, concurrency int) (*flux, error) {
	// Without a cache for what it reads, as there.
	c, err := client.New(s.config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, err
	}
	manager := ssa.NewResourceManager(c, nil, ssa.Owner{Field: "flux-bench", Group: "bench.example.com"})
	manager.SetConcurrency(concurrency)
	return &flux{s, manager}, nil
}

func (f *flux) prepare(objects []*unstructured.Unstructured) (pass, error) {
	if err := normalize.UnstructuredList(objects); err != nil {
		return nil, err
	}
	f.manager.SetOwnerLabels(objects, f.name, "bench")
	options := ssa.DefaultApplyOptions()
	return func(ctx context.Context) error {
		_, err := f.manager.ApplyAll(ctx, objects, options)
		return err
	}, nil
}

// plain is a loop of server-side applies whose bodies are encoded once and whose
// answers are not decoded: the least that one request for each object can cost.
type plain struct {
	*side
	client      *rest.RESTClient
	concurrency int
}

func newPlain(s *side, concurrency int) (*plain, error) {
	config := rest.CopyConfig(s.config)
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(config)
	return &plain{s, c, concurrency}, err
}

func (p *plain) prepare(objects []*unstructured.Unstructured) (pass, error) {
	paths, bodies := make([]string, len(objects)), make([][]byte, len(objects))
	resources := benchobjects.Resources()
	for i, o := range objects {
		resource := resources[o.GroupVersionKind()]
		paths[i] = path.Join("/apis", resource.Group, resource.Version, "namespaces", o.GetNamespace(), resource.Resource, o.GetName())
		if resource.Group == "" {
			paths[i] = path.Join("/api", resource.Version, "namespaces", o.GetNamespace(), resource.Resource, o.GetName())
		}
		body, err := json.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		bodies[i] = body
	}
	return func(ctx context.Context) error {
		return benchobjects.Each(len(paths), p.concurrency, func(i int) error {
			return p.client.Patch(types.ApplyPatchType).
				AbsPath(paths[i]).
				Param("fieldManager", "plain-bench").
				Param("force", "true").
				Body(bodies[i]).
				Do(ctx).
				Error()
		})
	}, nil
}
