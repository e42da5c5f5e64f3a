package apply_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// The first pass creates, the second one finds nothing to do.
func ExampleApplier_Apply() {
	owner := apply.Owner{Manager: "shop", Labels: map[string]string{"app.kubernetes.io/managed-by": "shop"}, Domain: "shop.example.com"}
	applier, stop := exampleApplier(owner) // its Live is started
	defer stop()
	set, err := apply.NewSet(owner, exampleConfigMaps("cart", "menu"), apply.SetOptions{})
	if err != nil {
		fmt.Println(err)
	}
	for range 2 {
		report, err := applier.Apply(context.Background(), set)
		fmt.Println(report.Count(apply.Created), "created,", report.Unchanged, "unchanged,", err)
	}
	// Output:
	// 2 created, 0 unchanged, <nil>
	// 0 created, 2 unchanged, <nil>
}

// What a complete set does not state any more is deleted.
func ExampleApplier_Prune() {
	owner := apply.Owner{Manager: "shop", Labels: map[string]string{"app.kubernetes.io/managed-by": "shop"}, Domain: "shop.example.com"}
	applier, stop := exampleApplier(owner)
	defer stop()
	both, _ := apply.NewSet(owner, exampleConfigMaps("cart", "menu"), apply.SetOptions{})
	if _, err := applier.Apply(context.Background(), both); err != nil {
		fmt.Println(err)
	}
	one, _ := apply.NewSet(owner, exampleConfigMaps("cart"), apply.SetOptions{})
	_, err := applier.Prune(context.Background(), one, apply.PruneOptions{})
	fmt.Println(errors.Is(err, apply.ErrIncomplete), err)
	report, err := applier.Prune(context.Background(), one, apply.PruneOptions{Complete: true})
	for _, r := range report.Results {
		fmt.Println(r.Action, r.ID, err)
	}
	// Output:
	// true desired state is not known to be complete
	// Deleted ConfigMap/shop/menu <nil>
}

// Each parent object has a part of its own, which goes with it.
func ExampleApplier_DeletePart() {
	owner := apply.Owner{
		Manager: "shop", Labels: map[string]string{"app.kubernetes.io/managed-by": "shop"}, Domain: "shop.example.com",
		PartLabel: "shop.example.com/parent",
	}
	applier, stop := exampleApplier(owner)
	defer stop()
	for parent, child := range map[string]string{"uid-1": "cart", "uid-2": "menu"} {
		set, _ := apply.NewSet(owner, exampleConfigMaps(child), apply.SetOptions{Part: parent})
		if _, err := applier.Apply(context.Background(), set); err != nil {
			fmt.Println(err)
		}
	}
	// The first parent is being deleted.
	report, err := applier.DeletePart(context.Background(), "uid-1", apply.DeleteOptions{})
	for _, r := range report.Results {
		fmt.Println(r.Action, r.ID, err)
	}
	fmt.Println("gone:", err == nil && report.Remaining == 0) // not before the watch shows it
	// Output:
	// Deleted ConfigMap/shop/cart <nil>
	// gone: false
}

// A plan is what Apply and Prune would do.
func ExampleApplier_Plan() {
	owner := apply.Owner{Manager: "shop", Labels: map[string]string{"app.kubernetes.io/managed-by": "shop"}, Domain: "shop.example.com"}
	applier, stop := exampleApplier(owner)
	defer stop()
	now, _ := apply.NewSet(owner, exampleConfigMaps("cart"), apply.SetOptions{})
	if _, err := applier.Apply(context.Background(), now); err != nil {
		fmt.Println(err)
	}
	next, _ := apply.NewSet(owner, exampleConfigMaps("menu"), apply.SetOptions{})
	plan, err := applier.Plan(context.Background(), next, apply.PruneOptions{Complete: true})
	fmt.Print(plan)
	fmt.Println(err)
	// Output:
	// + create ConfigMap/shop/menu
	// - delete ConfigMap/shop/cart
	// 1 to create, 1 to delete
	// <nil>
}

// Delete takes the objects to delete. One that does not exist needs no request.
func ExampleApplier_Delete() {
	owner := apply.Owner{Manager: "shop", Labels: map[string]string{"app.kubernetes.io/managed-by": "shop"}, Domain: "shop.example.com"}
	applier, stop := exampleApplier(owner)
	defer stop()
	set, _ := apply.NewSet(owner, exampleConfigMaps("cart", "menu"), apply.SetOptions{})
	if _, err := applier.Apply(context.Background(), set); err != nil {
		fmt.Println(err)
	}
	cart := apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "cart"}
	never := apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "never"}
	report, err := applier.Delete(context.Background(), []apply.ID{cart, never}, apply.DeleteOptions{})
	for _, r := range report.Results {
		fmt.Println(r.Action, r.ID, err)
	}
	// Output:
	// Deleted ConfigMap/shop/cart <nil>
}
