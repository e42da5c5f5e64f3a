package kube_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// Of all replicas of a program, one runs the loop.
func ExampleLease() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	lease := &kube.Lease{
		Client:    newServer().client(), // in a program dynamic.NewForConfig(config)
		Namespace: "shop",
		Name:      "converger",
		Identity:  "converger-0",
		Starter: &reconcile.Loop{
			Interval: time.Minute,
			Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
				fmt.Println("pass")
				cancel() // a program would go on until it is told to stop
				return reconcile.Result{}, nil
			}),
		},
		OnChange: func(state kube.LeaseState) {
			fmt.Printf("holder %q, works here: %v\n", state.Holder, state.Held)
		},
	}
	if err := lease.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// holder "converger-0", works here: true
	// pass
	// holder "", works here: false
}

// Names of children. The tail tells apart what the hyphens could not.
func ExampleName() {
	fmt.Println(kube.Name(kube.LabelLimit, "shop", "web"))
	fmt.Println(kube.Name(kube.LabelLimit, "my-shop", "web"))
	fmt.Println(kube.Name(kube.LabelLimit, "my", "shop-web"))
	fmt.Println(kube.Name(30, "a-team-with-a-long-name", "web"))
	// Output:
	// shop-web
	// my-shop-web-tkvgwtwjc5bv8
	// my-shop-web-cpt9bjvlb2wfd
	// a-team-with-a-lo-z7ltzh8w6xbwh
}
