package apply_test

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// A set holds what can be applied, and names what cannot.
func ExampleNewSet() {
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "shop"},
		}}
	}
	set, err := apply.NewSet(apply.Owner{
		Manager: "my-operator",
		Labels:  map[string]string{"app.kubernetes.io/managed-by": "my-operator"},
		Domain:  "example.com",
	}, []*unstructured.Unstructured{object("a"), object("b"), object("")}, apply.SetOptions{})
	fmt.Println(set.Len(), "can be applied")
	fmt.Println(err)
	// Output:
	// 2 can be applied
	// object 2 (ConfigMap/shop): apiVersion, kind and metadata.name are required
}

// A report is made of values: failures beside changes.
func ExampleReport() {
	web := apply.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	api := apply.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}
	report := apply.Report{Unchanged: 40, Results: []apply.Result{
		{ID: web, Action: apply.Updated},
		{ID: api, Action: apply.Refused, Err: apply.ErrNotOurs},
	}}
	fmt.Println(report.Unchanged, "unchanged,", report.Count(apply.Updated), "updated")
	if err := report.Err(); errors.Is(err, apply.ErrNotOurs) {
		fmt.Println(err)
	}
	// Output:
	// 40 unchanged, 1 updated
	// Deployment.apps/shop/api: belongs to another owner
}
