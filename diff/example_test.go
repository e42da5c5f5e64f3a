package diff_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// What the server answered to our last apply, and what it says now.
func ExampleDigest() {
	at := metav1.NewTime(time.Unix(0, 0))
	object := func(ours string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "my-operator", Operation: metav1.ManagedFieldsOperationApply, Time: &at,
			FieldsV1: &metav1.FieldsV1{Raw: []byte(ours)},
		}}}
	}
	applied, _ := diff.Digest(object(`{"f:spec":{"f:replicas":{},"f:paused":{}}}`), "my-operator")
	// Somebody scaled it: the server has taken the field out of our set.
	now, _ := diff.Digest(object(`{"f:spec":{"f:paused":{}}}`), "my-operator")
	fmt.Println("as we left it:", applied == now)
	// Output: as we left it: false
}

func ExampleHash() {
	a, err := diff.Hash(map[string]any{"replicas": 2, "image": "web:1"})
	if err != nil {
		fmt.Println(err)
	}
	b, err := diff.Hash(struct {
		Image    string  `json:"image"`
		Replicas float64 `json:"replicas"`
	}{"web:1", 2})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(a == b)
	// Output: true
}

// After a restart: is what we own exactly what we want? The protocol that the
// server filled in is found by the port.
func ExampleCovers() {
	owned, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(
		`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}`)}})
	if err != nil {
		fmt.Println(err)
	}
	service := func(port int) map[string]any {
		return map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": port}}}}
	}
	fmt.Println(diff.Covers(owned, service(80)), diff.Covers(owned, service(81)))
	// Output: true false
}
