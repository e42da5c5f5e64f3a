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
	// Another manager scaled it: the server has taken the field out of our set.
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

// Another manager has scaled a Deployment that we applied with two replicas.
func ExampleFields() {
	desired := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"replicas": int64(2), "paused": true},
	}
	live := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "managedFields": []any{
			map[string]any{
				"manager": "my-operator", "operation": "Apply", "time": "2026-11-20T09:00:00Z",
				"fieldsV1": map[string]any{"f:spec": map[string]any{"f:paused": map[string]any{}}},
			},
			map[string]any{
				"manager": "kubectl", "operation": "Update", "subresource": "scale", "time": "2026-11-20T10:00:00Z",
				"fieldsV1": map[string]any{"f:spec": map[string]any{"f:replicas": map[string]any{}}},
			},
		}},
		"spec": map[string]any{"replicas": int64(5), "paused": true},
	}
	fields, err := diff.Fields(desired, live, diff.Options{Manager: "my-operator"})
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range fields {
		fmt.Println(f)
	}
	// Output: .spec.replicas: 5 -> 2 (by "kubectl" on scale 2026-11-20T10:00:00Z)
}

// The replicas of every Deployment are left to an autoscaler.
func ExampleIgnore() {
	ignore, err := diff.NewIgnore(diff.Rule{Kind: "Deployment.apps", Paths: []string{".spec.replicas"}})
	if err != nil {
		fmt.Println(err)
	}
	desired := ignore.Strip(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"spec": map[string]any{"replicas": int64(2), "paused": true},
	})
	fmt.Println(desired["spec"])
	_, err = diff.NewIgnore(diff.Rule{Paths: []string{"spec.replicas"}})
	fmt.Println(err)
	// Output:
	// map[paused:true]
	// ignore rule 0: path "spec.replicas": at offset 0: want .name or [ here, as in .spec.replicas
}

// A plan reads like a diff, and is approved by its hash.
func ExamplePlan() {
	plan := diff.Plan{Changes: []diff.Change{
		{Action: diff.Create, APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web"},
		{Action: diff.Update, APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", Fields: []diff.Field{
			{Path: ".spec.replicas", Difference: diff.Changed, Live: "3", Desired: "5"},
		}},
		{Action: diff.Delete, APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"},
	}}
	fmt.Print(plan)
	approved := plan.Hash()
	plan.Changes[2].Name = "newer"
	fmt.Println("as approved:", plan.Hash() == approved)
	// Output:
	// + create Service/shop/web
	// ~ update Deployment.apps/shop/web
	//     .spec.replicas: 3 -> 5
	// - delete ConfigMap/shop/old
	// 1 to create, 1 to update, 1 to delete
	// as approved: false
}

// Where the server keeps no managedFields, contents are compared.
func ExampleStates() {
	desired := map[string]any{"spec": map[string]any{"replicas": int64(2), "paused": false}}
	live := func(replicas int64) map[string]any {
		return map[string]any{"spec": map[string]any{"replicas": replicas, "minReadySeconds": int64(5)}}
	}
	fmt.Println(diff.Tracked(live(2)), diff.States(live(2), desired), diff.States(live(3), desired))
	// Output: false true false
}

func ExampleSecretData() {
	fmt.Println(diff.SecretData(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"user": "admin"},
	}))
	// Output: map[apiVersion:v1 data:map[user:YWRtaW4=] kind:Secret]
}
