package main

import (
	"fmt"
	"maps"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// growthForm is one of the kinds of the stage growth. Its objects are small, so that a million of
// them fits into the memory of one machine, beside their server.
type growthForm struct {
	name, resource string
	kind           schema.GroupVersionKind
	digits         []int // of ten objects, these are of the form
	body           map[string]any
}

func growthForms() []growthForm {
	core := schema.GroupVersion{Version: "v1"}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	return []growthForm{
		{"config", "configmaps", core.WithKind("ConfigMap"), []int{0, 1, 2, 3, 4}, map[string]any{"data": map[string]any{"level": "info"}}},
		{"login", "secrets", core.WithKind("Secret"), []int{5, 6}, map[string]any{
			"type": "Opaque", "data": map[string]any{"password": "bWFkZS11cA=="},
		}},
		// Without an address of its own: a server has few.
		{"service", "services", core.WithKind("Service"), []int{7, 8}, map[string]any{"spec": map[string]any{
			"clusterIP": "None", "selector": map[string]any{"run": "bench"}, "ports": []any{map[string]any{"port": int64(80)}},
		}}},
		{"web", "deployments", apps.WithKind("Deployment"), []int{9}, map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"run": "bench"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"run": "bench"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/app:1"}}},
			},
		}}},
	}
}

// growthNamespaces is how many namespaces the objects are in.
const growthNamespaces = 100

// growthSample is the number of the object that is made on a real server, of which ours serves
// copies. Its texts are as long as those of each other object, and it is none of them.
const growthSample = 7_777_770

// growthWorld are the objects of the stage growth, by their numbers: the same for each size.
type growthWorld struct {
	forms []growthForm
	parts bool // ten objects each are the children of one parent
}

func newGrowthWorld(parts bool) growthWorld { return growthWorld{growthForms(), parts} }

func (w growthWorld) owner() apply.Owner {
	if w.parts {
		return partsOwner()
	}
	return owner()
}

// form returns the index of an object's form.
func (w growthWorld) form(i int) int {
	for at := range w.forms {
		if last := w.forms[at].digits; i%10 <= last[len(last)-1] {
			return at
		}
	}
	return -1 // no digit is beyond the last one
}

func growthNamespace(i int) string { return fmt.Sprintf("ns-%02d", i/10%growthNamespaces) }

func (w growthWorld) name(i int) string { return fmt.Sprintf("%s-%07d", w.forms[w.form(i)].name, i) }

// path is that of the object in the API.
func (w growthWorld) path(i int) string {
	form := &w.forms[w.form(i)]
	prefix := "/api/"
	if form.kind.Group != "" {
		prefix = "/apis/" + form.kind.Group + "/"
	}
	return prefix + form.kind.Version + "/namespaces/" + growthNamespace(i) + "/" + form.resource + "/" + w.name(i)
}

// parent returns the parent object with the number.
func (w growthWorld) parent(p int) metav1.Object {
	parent := &unstructured.Unstructured{}
	parent.SetName(fmt.Sprintf("parent-%07d", p))
	parent.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012d", p)))
	return parent
}

// object is what is desired of the object with the number. It shares its body with others: it is
// to be read only.
func (w growthWorld) object(i int) *unstructured.Unstructured {
	form, name := &w.forms[w.form(i)], w.name(i)
	object := maps.Clone(form.body)
	object["apiVersion"], object["kind"] = form.kind.ToAPIVersionAndKind()
	metadata := map[string]any{"name": name, "namespace": growthNamespace(i), "labels": map[string]any{"app": name}}
	object["metadata"] = metadata
	made := &unstructured.Unstructured{Object: object}
	if w.parts {
		made.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.parent(i/10), parentKind())})
	}
	return made
}

// hash is the content hash that the annotation of an object has, once it is applied.
func (w growthWorld) hash(i int) (diff.Sum, error) {
	object := w.object(i)
	labels := object.GetLabels()
	maps.Copy(labels, w.owner().Labels)
	if w.parts {
		labels[partLabel] = string(w.parent(i / 10).GetUID())
	}
	object.SetLabels(labels)
	return diff.Hash(object.Object)
}

// set is the desired state of n objects, without those that leave selects; nil: with all of them.
func (w growthWorld) set(n int, leave func(int) bool) (*apply.Set, error) {
	objects := make([]*unstructured.Unstructured, 0, n)
	for i := range n {
		if leave == nil || !leave(i) {
			objects = append(objects, w.object(i))
		}
	}
	return w.setOf(objects, 0)
}

// part is the desired state of a parent: its first children of ten.
func (w growthWorld) part(p, children int) (*apply.Set, error) {
	objects := make([]*unstructured.Unstructured, children)
	for i := range objects {
		objects[i] = w.object(10*p + i)
	}
	return w.setOf(objects, p)
}

// setOf is the desired state with these objects, of a parent if there are parts.
func (w growthWorld) setOf(objects []*unstructured.Unstructured, parent int) (*apply.Set, error) {
	var options apply.SetOptions
	if w.parts {
		options.Part = string(w.parent(parent).GetUID())
	}
	return apply.NewSet(w.owner(), objects, options)
}

func (w growthWorld) mapper() (*meta.DefaultRESTMapper, []schema.GroupVersionKind) {
	mapper := meta.NewDefaultRESTMapper(nil)
	var kinds []schema.GroupVersionKind
	for _, form := range w.forms {
		mapper.Add(form.kind, meta.RESTScopeNamespace)
		kinds = append(kinds, form.kind)
	}
	return mapper, kinds
}

// shuffled are the numbers below n in an order that is the same each time: parents are passed over
// as their objects change, which follows no order.
func shuffled(n int) []int {
	return rand.New(rand.NewPCG(1, 2)).Perm(n) //nolint:gosec // no secret
}
