package apply_test

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// An object states by an annotation what it depends on, by IDs. It is applied
// after that, and not before it is ready.
func ExampleNewSet_dependsOn() {
	object := func(name, after string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
		o.SetNamespace("shop")
		o.SetName(name)
		o.SetAnnotations(map[string]string{"example.com/depends-on": after})
		return o
	}
	_, err := apply.NewSet(apply.Owner{
		Manager: "my-operator",
		Labels:  map[string]string{"app.kubernetes.io/managed-by": "my-operator"},
		Domain:  "example.com",
	}, []*unstructured.Unstructured{object("migrate", "Job.batch/shop/seed"), object("seed", "Job.batch/shop/migrate")}, apply.SetOptions{})
	fmt.Println(err)
	// Output:
	// Job.batch/shop/migrate: depends on Job.batch/shop/seed: depends on itself: Job.batch/shop/migrate -> Job.batch/shop/seed -> Job.batch/shop/migrate
	// Job.batch/shop/seed: depends on Job.batch/shop/migrate: depends on itself: Job.batch/shop/seed -> Job.batch/shop/migrate -> Job.batch/shop/seed
}

// The replicas of a Deployment are its autoscaler's while there is one, and come back with
// the value of the set when it is gone.
func ExampleHandover() {
	replicas, err := diff.NewIgnore(diff.Rule{Kind: "Deployment.apps", Paths: []string{".spec.replicas"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	options := apply.SetOptions{Handover: []apply.Handover{{
		Fields: replicas,
		By: func(deployment apply.ID) apply.ID {
			return apply.ID{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: deployment.Namespace, Name: deployment.Name}
		},
	}}}
	set, err := apply.NewSet(apply.Owner{
		Manager: "my-operator",
		Labels:  map[string]string{"app.kubernetes.io/managed-by": "my-operator"},
		Domain:  "example.com",
	}, nil, options)
	fmt.Println(set.Len(), err)
	// Output: 0 <nil>
}

// IDs are written as Kind.group/namespace/name.
func ExampleParseID() {
	for _, s := range []string{"Deployment.apps/shop/web", "Namespace/shop", "web"} {
		id, err := apply.ParseID(s)
		fmt.Printf("%q in %q: %v\n", id.Name, id.Namespace, err)
	}
	// Output:
	// "web" in "shop": <nil>
	// "shop" in "": <nil>
	// "" in "": "web": want Kind.group/namespace/name, or Kind.group/name for a cluster-scoped object
}

// An owner may name an ApplySet (KEP-3659), so that kubectl and other tools see
// which objects belong together: all carry its ID as a label.
func ExampleID_ApplySetID() {
	owner := apply.Owner{
		Manager:  "my-operator",
		Labels:   map[string]string{"app.kubernetes.io/managed-by": "my-operator"},
		Domain:   "example.com",
		ApplySet: apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "everything"},
	}
	set, err := apply.NewSet(owner, nil, apply.SetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("made for it:", set.Has(owner.ApplySet))
	fmt.Println("kubectl get all -l applyset.kubernetes.io/part-of=" + owner.ApplySet.ApplySetID())
	// Output:
	// made for it: true
	// kubectl get all -l applyset.kubernetes.io/part-of=applyset--KpI7EvS5P-ABXxwz90XIqalXAR3hHTqGrMLRruakyk-v1
}

// When another program changes an object back after each repair, the report
// names it.
func ExampleFightError() {
	// As Applier.Apply returns it.
	report := apply.Report{Results: []apply.Result{{
		ID:     apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "settings"},
		Action: apply.Refused,
		Err:    &apply.FightError{Repairs: 5, Conflicts: []apply.Conflict{{Field: ".data.color", Manager: "other-team"}}},
	}}}
	for _, r := range report.Results {
		if fight, ok := errors.AsType[*apply.FightError](r.Err); ok {
			for _, c := range fight.Conflicts {
				fmt.Printf("tell %s to leave %s of %s alone\n", c.Manager, c.Field, r.ID)
			}
		}
	}
	// Output:
	// tell other-team to leave .data.color of ConfigMap/shop/settings alone
}

// With ReportConflicts, a field that another manager owns is named and left.
func ExampleConflictError() {
	// As Applier.Apply returns it.
	err := fmt.Errorf("Deployment.apps/shop/web: %w", &apply.ConflictError{
		Conflicts: []apply.Conflict{{Field: ".spec.replicas", Manager: "autoscaler"}},
	})
	fmt.Println(err)
	if conflict, ok := errors.AsType[*apply.ConflictError](err); ok {
		fmt.Println("leave out", conflict.Conflicts[0].Field)
	}
	// Output:
	// Deployment.apps/shop/web: owned with another value: .spec.replicas by "autoscaler"
	// leave out .spec.replicas
}

// A guard counts units as a person would, over an hour, and holds what exceeds the
// limit.
func ExampleGuard() {
	guard := apply.Guard{
		Unit:   func(o apply.Observed) string { return o.Label("example.com/service") },
		Absent: apply.Limit{Count: 3, Percent: 5},
	}
	options := apply.PruneOptions{Complete: true, Guard: &guard}
	fmt.Println("complete:", options.Complete, "- at most", options.Guard.Absent.Count, "services or", options.Guard.Absent.Percent, "percent")
	// As Applier.Prune returns it.
	var err error = &apply.LimitError{Units: []string{"cart", "shop"}, Before: 2, Limit: 3, Owned: 9, Window: time.Hour, Digest: "pXkq0zY1"}
	if over, ok := errors.AsType[*apply.LimitError](err); ok {
		fmt.Println(over)
		fmt.Println("ask a person about", over.Units)
		options.Approved = over.Digest // once the person agrees: exactly these, no other
	}
	fmt.Println("approved:", options.Approved)
	// Output:
	// complete: true - at most 3 services or 5 percent
	// 2 of 9 units are absent, and 2 were deleted within 1h0m0s; the limit is 3, so these are held: cart, shop
	// ask a person about [cart shop]
	// approved: pXkq0zY1
}
