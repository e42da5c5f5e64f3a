package kube_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// A Controller starts a pass for each object of its kind, and again when the
// object, a child of it, or something that it refers to changes.
func ExampleController() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	cluster := newWorld() // in a program dynamic.NewForConfig(config)
	web := newWidget("web", 3)
	web.Spec.Secret = "password"
	cluster.put(widgets, web)

	controller := &kube.Controller[*widget]{
		Client:     cluster,
		Kind:       kube.Kind{Resource: widgets},
		Owned:      []kube.Kind{{Resource: maps1}},
		Referenced: []kube.Kind{{Resource: secrets}},
		References: func(w *widget) []kube.Reference {
			return []kube.Reference{{Resource: secrets, Namespace: w.Namespace, Name: w.Spec.Secret}}
		},
	}
	controller.Reconcile = func(_ context.Context, key types.NamespacedName, w *widget) (reconcile.Result, error) {
		if w == nil {
			fmt.Println(key, "is gone")
			cancel() // a program would go on until it is told to stop
			return reconcile.Result{}, nil
		}
		_, err := controller.Lookup(kube.Reference{Resource: secrets, Namespace: w.Namespace, Name: w.Spec.Secret})
		if errors.Is(err, kube.ErrAbsent) {
			fmt.Println(key, "waits for its secret")
			cluster.put(secrets, newSecret("password", "s3cret")) // a user creates it
			return reconcile.Result{}, nil
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		fmt.Println(key, "has its secret")
		cluster.remove(widgets, key) // a user deletes it
		return reconcile.Result{}, nil
	}
	if err := controller.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop/web waits for its secret
	// shop/web has its secret
	// shop/web is gone
}

// Another live view watches the children, such as the one of package apply, and the
// Controller does not. The view reports the UID of the parent of each child that it
// sees change or go, which starts a pass for the parent.
func ExampleController_AddUID() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	cluster := newWorld()
	cluster.put(widgets, newWidget("web", 2))
	controller := &kube.Controller[*widget]{Client: cluster, Kind: kube.Kind{Resource: widgets}}

	live := map[string]types.UID{} // each child, with the UID of its parent
	appeared := func(child string, parent types.UID) {
		live[child] = parent
		controller.AddUID(parent)
	}
	gone := func(child string) {
		parent := live[child]
		delete(live, child)
		controller.AddUID(parent)
	}

	deleted := false
	controller.Reconcile = func(_ context.Context, key types.NamespacedName, w *widget) (reconcile.Result, error) {
		fmt.Printf("%s has %d of %d children\n", key, len(live), w.Spec.Size)
		for i := range w.Spec.Size {
			child := fmt.Sprintf("%s-%d", key.Name, i)
			if _, ok := live[child]; !ok {
				appeared(child, w.UID) // the view observes the child that this pass creates
				return reconcile.Result{}, nil
			}
		}
		if deleted {
			cancel()
			return reconcile.Result{}, nil
		}
		deleted = true
		gone("web-0") // a user deletes it
		return reconcile.Result{}, nil
	}
	if err := controller.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop/web has 0 of 2 children
	// shop/web has 1 of 2 children
	// shop/web has 2 of 2 children
	// shop/web has 1 of 2 children
	// shop/web has 2 of 2 children
}

// A child whose name the server makes up is created once, although the watch
// shows it late: the pass reports its write, and the key waits for it.
func ExampleController_WroteChild() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	cluster := newWorld()
	cluster.put(widgets, newWidget("web", 1))
	controller := &kube.Controller[*widget]{
		Client: cluster,
		Kind:   kube.Kind{Resource: widgets},
		Owned:  []kube.Kind{{Resource: maps1}},
	}
	controller.Reconcile = func(ctx context.Context, key types.NamespacedName, w *widget) (reconcile.Result, error) {
		children, err := controller.Children(w.UID, maps1)
		if err != nil {
			return reconcile.Result{}, err
		}
		fmt.Println(len(children), "children")
		if len(children) > 0 {
			cancel()
			return reconcile.Result{}, nil
		}
		wanted := child("", cluster.get(widgets, key))
		wanted.SetGenerateName("web-")
		written, err := cluster.Resource(maps1).Namespace(key.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
		if err == nil {
			controller.WroteChild(key, maps1, written)
		}
		controller.Add(key) // a pass added now runs after the watch has shown the child
		return reconcile.Result{}, err
	}
	if err := controller.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0 children
	// 1 children
}

// A pass begins with Finalize. What is outside is taken down before the object
// goes, in steps that can be repeated.
func ExampleFinalizer() {
	ctx := context.Background()
	cluster := newWorld()
	cluster.put(widgets, newWidget("web", 1))

	database := map[string]bool{}
	steps := reconcile.Steps{{
		Name: "schema",
		Do:   func(context.Context) error { database["web"] = true; return nil },
		Undo: func(context.Context) error { delete(database, "web"); return nil },
	}}
	finalizer := &kube.Finalizer{Client: cluster, Resource: widgets, Name: "shop.example.com/schema"}
	pass := func(object metav1.Object) {
		alive, _, err := finalizer.Finalize(ctx, object, func(ctx context.Context) (gone bool, err error) {
			if err := steps.Undo(ctx); err != nil {
				return false, err
			}
			return !database["web"], nil // check, rather than assume
		})
		if alive && err == nil {
			err = steps.Do(ctx)
		}
		fmt.Printf("alive %v, schema %v, error %v\n", alive, database["web"], err)
	}
	web := keyOf("shop", "web")
	pass(cluster.get(widgets, web))
	fmt.Println(cluster.get(widgets, web).GetFinalizers())
	cluster.remove(widgets, web)
	pass(cluster.get(widgets, web))
	fmt.Println("still there:", cluster.get(widgets, web) != nil)
	// Output:
	// alive true, schema true, error <nil>
	// [shop.example.com/schema]
	// alive false, schema false, error <nil>
	// still there: false
}

// A status is written when it changes, and only then.
func ExampleStatus() {
	ctx := context.Background()
	cluster := newWorld()
	cluster.put(widgets, newWidget("web", 1))
	status := &kube.Status[*unstructured.Unstructured]{Client: cluster, Resource: widgets}

	for _, pods := range []int64{1, 3, 3, 3} {
		web := cluster.get(widgets, keyOf("shop", "web")) // a pass gets it from its Controller
		err := status.Update(ctx, web, func(web *unstructured.Unstructured) {
			web.Object["status"] = map[string]any{"pods": pods}
		})
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(pods, "pods:", cluster.requests())
	}
	// Output:
	// 1 pods: [patch widgets]
	// 3 pods: [patch widgets]
	// 3 pods: []
	// 3 pods: []
}

// The three conditions that kubectl wait, Flux and Argo CD understand.
func ExampleSetState() {
	var conditions []metav1.Condition
	kube.SetState(&conditions, kube.Reconciling, "PodsStarting", "1 of 3 pods are ready")
	kube.SetState(&conditions, kube.Ready, "PodsReady", "3 of 3 pods are ready")
	kube.SetCondition(&conditions, "BackedUp", metav1.ConditionFalse, "Never", "no backup yet")
	for _, c := range conditions {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	// Output:
	// Ready True PodsReady
	// Reconciling False PodsReady
	// Stalled False PodsReady
	// BackedUp False Never
}

// A Controller under a Lease: of all replicas one reconciles. One that takes
// over begins with a consistent list and a pass for each object.
func ExampleLease_controller() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	cluster := newWorld()
	cluster.put(widgets, newWidget("web", 1))
	controller := &kube.Controller[*widget]{
		Client: cluster,
		Kind:   kube.Kind{Resource: widgets},
		Reconcile: func(_ context.Context, key types.NamespacedName, w *widget) (reconcile.Result, error) {
			if w != nil {
				fmt.Println("reconcile", key)
			}
			cancel()
			return reconcile.Result{}, nil
		},
	}
	lease := &kube.Lease{
		Client: newServer().client(), Namespace: "shop", Name: "operator",
		Starter: controller,
	}
	if err := lease.Start(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// reconcile shop/web
}

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

// Names of children. The tail separates parts that hyphens do not.
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
