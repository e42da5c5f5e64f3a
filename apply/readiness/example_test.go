package readiness_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// Readiness is read off an object as the server gave it.
func ExampleOf() {
	web := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "generation": int64(2)},
		"spec":     map[string]any{"replicas": int64(3)},
		"status":   map[string]any{"observedGeneration": int64(2), "replicas": int64(3), "updatedReplicas": int64(1)},
	}}
	r := readiness.Of(web)
	fmt.Println(r.Status)
	fmt.Println(r.Message)
	// Output:
	// InProgress
	// updated replicas: 1 of 3
}
