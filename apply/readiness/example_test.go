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

// A rollout that does not get on is explained by its pods.
func ExampleWhy() {
	web := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out",
		}}},
	}}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web-1"},
		"status": map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{
			"name": "main", "state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "not found"}},
		}}},
	}}
	c := readiness.Why(web, pod)
	fmt.Println(c.Reason, c.Outlook)
	fmt.Println(c.Message)
	// Output:
	// ImagePull Lasting
	// Pod web-1: container main: ErrImagePull: not found
}
