package buffers_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// A user asks for room for three pods, of which two fit on a machine of the pool batch. The Controller asks
// for a pass of the pool, which keeps two machines on standby, and reports that they are not there yet.
//
// The API server is in memory. A program has watches that show Nodes and pods to the Cluster, and passes
// that show their Pool to the ScaleUp: [pools.Pass]. It puts what Standby returns into [cloud.Want], and
// terminates no surplus while that is not known.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: &simtest.Server{Kinds: kinds()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pool := &pools.Pool{
		Spec:   cloud.Pool{Size: 5, Templates: []cloud.Template{{Name: "subnet-a", InstanceType: "large", Zone: "zone-a"}}},
		Nodes:  nodes.Pool{Domain: "example.com", Name: "batch", UID: "0b6f"},
		Memory: &cloud.SharedMemory{},
		Machine: func(t cloud.Template) demand.Node {
			return demand.Node{Labels: map[string]string{corev1.LabelTopologyZone: t.Zone}}
		},
		Capacity: func(int) demand.Resources { return demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 50} },
	}
	passes := make(chan string, 10)
	controller := &buffers.Controller{Client: client, Strategy: "buffer.example.com/standby-capacity", ScaleUp: &pools.ScaleUp{
		Pools: func() map[string]*pools.Pool { return map[string]*pools.Pool{"batch": pool} },
		Look:  func(pool string) { passes <- pool },
	}}
	controller.ScaleUp.Cluster = nodes.New("example.com", nodes.Zoned("fake", nil), func(_ []string, demand bool) {
		if demand {
			controller.ScaleUp.Wake()
			controller.Wake()
		}
	})
	_, known := controller.Standby(pool)
	fmt.Println("known:", known)
	done := make(chan error, 1)
	go func() { done <- controller.Start(ctx) }()

	err = errors.Join(
		create(ctx, client.Resource(templates).Namespace("team"), &corev1.PodTemplate{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodTemplate"}, ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Image: "web",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
			}}}},
		}),
		create(ctx, client.Resource(buffers.Resource()).Namespace("team"), &buffers.CapacityBuffer{
			TypeMeta:   metav1.TypeMeta{APIVersion: buffers.Group + "/" + buffers.Version, Kind: buffers.Kind},
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: buffers.Spec{
				ProvisioningStrategy: controller.Strategy, PodTemplateRef: &buffers.TemplateRef{Name: "web"}, Replicas: new(int32(3)),
			},
		}),
		// Until the definition is there, the Controller watches nothing else.
		create(ctx, client.Resource(definitions), map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": buffers.Definition},
			"spec":   map[string]any{"versions": []any{map[string]any{"name": buffers.Version, "served": true}}},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
		}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("look at", <-passes)
	keep, known := controller.Standby(pool)
	fmt.Println("keep", keep, "known:", known)
	for _, c := range reported(ctx, client, "web") {
		fmt.Println(c.Type, c.Status, c.Reason)
	}
	stop()
	fmt.Println("end:", <-done)
	// Output:
	// known: false
	// look at batch
	// keep map[:2] known: true
	// Provisioning True Provisioned
	// Ready False WarmingUp
	// ReadyForProvisioning True Resolved
	// end: <nil>
}

// create makes an object, with its status.
func create(ctx context.Context, to dynamic.ResourceInterface, object any) error {
	fields, ok := object.(map[string]any)
	var err error
	if !ok {
		fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	}
	if err != nil {
		return err
	}
	o, err := to.Create(ctx, &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
	if err == nil && ok {
		o.Object["status"] = fields["status"]
		_, err = to.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	}
	return err
}

// reported waits until a buffer has conditions.
func reported(ctx context.Context, client dynamic.Interface, name string) []metav1.Condition {
	changes, err := client.Resource(buffers.Resource()).Namespace("team").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	defer changes.Stop()
	for c := range changes.ResultChan() {
		o, ok := c.Object.(*unstructured.Unstructured)
		if !ok || o.GetName() != name {
			continue
		}
		b := &buffers.CapacityBuffer{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, b) == nil && len(b.Status.Conditions) > 0 {
			return b.Status.Conditions
		}
	}
	return nil
}
