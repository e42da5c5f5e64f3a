package operator_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const (
	buffersKind     = buffers.Definition
	definitionsKind = "customresourcedefinitions.apiextensions.k8s.io"
)

// bufferKinds are the CapacityBuffers, and what they may refer to.
func bufferKinds() []simtest.Kind {
	return []simtest.Kind{
		{Group: buffers.Group, Version: buffers.Version, Resource: buffers.Plural, Kind: buffers.Kind, Status: true},
		{Version: "v1", Resource: "podtemplates", Kind: "PodTemplate"},
		{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		{Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet", Status: true},
	}
}

// defineBuffers brings the definition, and a template of a pod for each pool: a machine has room for one.
func defineBuffers(w *simtest.World) {
	objects := []simtest.Object{{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": buffers.Definition},
		"spec": map[string]any{"versions": []any{map[string]any{"name": buffers.Version, "served": true}}},
	}}
	for _, pool := range []string{"p0", "p1"} {
		pod := replicas(pool, pool, 0, "3").Field("spec", "template")
		objects = append(objects, simtest.Object{
			"apiVersion": "v1", "kind": "PodTemplate", "metadata": map[string]any{"namespace": "team", "name": pool}, "template": pod,
		})
	}
	for _, o := range objects {
		if err := w.Create(o); err != nil {
			panic(err)
		}
	}
}

// establish is what an API server does with a new definition.
func establish(w *simtest.World, c simtest.Change) {
	if c.Before == nil && c.After["kind"] == "CustomResourceDefinition" {
		_ = w.As("apiextensions").Update(definitionsKind, "", c.After.Name(), func(o simtest.Object) { // it is new
			o.Set([]any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions")
		})
	}
}

// editBuffers has one of two buffers ask for room for up to two pods, or for none.
func editBuffers(w *simtest.World, dice *rand.Rand, pool string) {
	name, pods := fmt.Sprint("b", dice.IntN(2)), dice.IntN(3)
	spec := map[string]any{
		"provisioningStrategy": "buffer.stratos.sh/standby-capacity", "podTemplateRef": map[string]any{"name": pool}, "replicas": pods,
	}
	if dice.IntN(2) == 0 { // as good as none
		spec["limits"] = map[string]any{"cpu": "9223372036854775807", "memory": "1e30"}
	}
	switch {
	case w.Object(buffersKind, "team", name) == nil:
		_ = w.Create(simtest.Object{ // it does not exist
			"apiVersion": buffers.Group + "/" + buffers.Version, "kind": buffers.Kind,
			"metadata": map[string]any{"namespace": "team", "name": name}, "spec": spec,
		})
	case dice.IntN(3) == 0:
		_ = w.Delete(buffersKind, "team", name) // it exists
	default:
		_ = w.Update(buffersKind, "team", name, func(o simtest.Object) { o["spec"] = spec }) // it exists
	}
}

// bufferedPods returns how many pods the buffers ask room for in a pool.
func bufferedPods(w *simtest.World, pool string) (pods int) {
	for _, b := range w.Objects(buffersKind) {
		if b.Field("spec", "podTemplateRef", "name") == pool && !b.Deleting() {
			pods += integer(b.Field("spec", "replicas"))
		}
	}
	return pods
}

// buffered returns what is wrong about the status of a buffer: it is ready if the standby machines of its pool are
// enough for all buffers, and not if there is none for it.
func buffered(w *simtest.World) (wrong []error) {
	for _, b := range w.Objects(buffersKind) {
		name, _ := b.Field("spec", "podTemplateRef", "name").(string)
		pool := w.Object(poolsKind, "", name)
		pods, standby := integer(b.Field("spec", "replicas")), 0
		if pool != nil {
			for _, n := range w.Objects("nodes") {
				if n.Label(v1alpha1.LabelPool) == name && n.Label(v1alpha1.LabelState) == "standby" {
					standby++
				}
			}
		}
		if told := integer(b.Field("status", "replicas")); told != pods {
			wrong = append(wrong, fmt.Errorf("buffer %s asks for %d pods, and its status says %d", b.Name(), pods, told))
		}
		ready := conditionOf(b, buffers.ConditionReady)["status"] == "True"
		if standby >= bufferedPods(w, name) != ready && (standby >= bufferedPods(w, name) || standby < pods) {
			err := fmt.Errorf("buffer %s: %d of %d machines on standby, and its status says %v", b.Name(), standby, pods, b.Field("status"))
			wrong = append(wrong, err)
		}
	}
	return wrong
}
