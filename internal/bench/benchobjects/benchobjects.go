// Package benchobjects makes the objects that the benchmarks in internal/bench
// apply, with trueup and with its peers: one mix, so that everybody does the
// same work.
//
// Of ten objects four are Deployments, one is a StatefulSet, two are ConfigMaps,
// and a Secret, a Service and an object of a custom kind complete them. Among
// them is what is known to keep others busy at rest: quantities that the server
// writes otherwise (cpu "0.1"), optional fields left out, a Service with two
// protocols on one port, claim templates, stringData, an object to which a second
// manager has added, and a Deployment whose replicas an autoscaler sets
// ([Others.Share]).
package benchobjects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mix says which objects are wanted.
type Mix struct {
	// Namespace is where they are. It is not one of them.
	Namespace string
	// Count is how many there are.
	Count int
	// Canonical writes quantities as the server does.
	Canonical bool
}

// Objects returns them. They hold values as encoding/json decodes them into the
// types of the API machinery, and share nothing.
func (m Mix) Objects() []*unstructured.Unstructured {
	forms := forms()
	objects := make([]*unstructured.Unstructured, m.Count)
	for i := range objects {
		form := forms[i%len(forms)]
		object := form.body(m)
		object["apiVersion"], object["kind"] = form.kind.ToAPIVersionAndKind()
		name := fmt.Sprintf("%s-%05d", form.name, i)
		object["metadata"] = map[string]any{
			"name": name, "namespace": m.Namespace,
			"labels":      map[string]any{"app": name, "example.com/part-of": "bench"},
			"annotations": map[string]any{"example.com/note": "made for a benchmark"},
		}
		objects[i] = &unstructured.Unstructured{Object: object}
	}
	return objects
}

// Resources returns the resource of each kind in a mix.
func Resources() map[schema.GroupVersionKind]schema.GroupVersionResource {
	resources := map[schema.GroupVersionKind]schema.GroupVersionResource{}
	for _, form := range forms() {
		resources[form.kind] = form.kind.GroupVersion().WithResource(form.resource)
	}
	return resources
}

// form is one of the ten.
type form struct {
	name, resource string
	kind           schema.GroupVersionKind
	body           func(Mix) map[string]any
}

func forms() []form {
	apps := func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
	}
	core := func(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: kind} }
	return []form{
		{"plain", "deployments", apps("Deployment"), plain},
		{"config", "configmaps", core("ConfigMap"), config},
		{"sparse", "deployments", apps("Deployment"), sparse},
		{"login", "secrets", core("Secret"), login},
		{"dns", "services", core("Service"), dns},
		{"scaled", "deployments", apps("Deployment"), scaled},
		{"store", "statefulsets", apps("StatefulSet"), store},
		{"shared", "configmaps", core("ConfigMap"), config},
		{"widget", "widgets", schema.GroupVersionKind{Group: widgets, Version: "v1", Kind: "Widget"}, widget},
		{"odd", "deployments", apps("Deployment"), odd},
	}
}
