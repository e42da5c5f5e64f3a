package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// damage is one change behind the agent's back.
type damage struct {
	what     string
	resource schema.GroupVersionResource
	// patch is a merge patch; empty deletes the object.
	patch string
	// repaired reports whether the object is as it was.
	repaired func(before, now *unstructured.Unstructured) bool
}

func same(fields ...string) func(before, now *unstructured.Unstructured) bool {
	return func(before, now *unstructured.Unstructured) bool {
		a, _, errA := unstructured.NestedFieldNoCopy(before.Object, fields...)
		b, found, errB := unstructured.NestedFieldNoCopy(now.Object, fields...)
		return errA == nil && errB == nil && found && fmt.Sprint(a) == fmt.Sprint(b)
	}
}

func damages() []damage {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	again := func(before, now *unstructured.Unstructured) bool { return now.GetUID() != before.GetUID() }
	return []damage{
		{"scaled a Deployment", deployments, `{"spec":{"replicas":0}}`, same("spec", "replicas")},
		{"deleted a Deployment", deployments, "", again},
		{
			"edited a ConfigMap",
			schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			`{"data":{"GREETING":"goodbye"}}`,
			same("data", "GREETING"),
		},
		{"deleted a Service", schema.GroupVersionResource{Version: "v1", Resource: "services"}, "", again},
		{
			"stripped a label",
			deployments,
			`{"metadata":{"labels":{"starform.io/managed-by":null}}}`,
			same("metadata", "labels", "starform.io/managed-by"),
		},
		{
			"opened a NetworkPolicy",
			schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
			`{"spec":{"podSelector":{"matchLabels":null}}}`,
			same("spec", "podSelector", "matchLabels"),
		},
	}
}

// rounds is how often each damage is done, each time to another object.
const rounds = 5

// drift edits and deletes objects and measures how fast they come back.
func (d *demo) drift(ctx context.Context) error {
	d.display.step("Drift")
	var took []time.Duration
	for round := range rounds {
		for _, damage := range damages() {
			repair, err := d.suffer(ctx, damage, round)
			if err != nil {
				return fmt.Errorf("%s: %w", damage.what, err)
			}
			took = append(took, repair)
			d.display.progress("%s: back after %s", damage.what, repair.Round(100*time.Microsecond))
		}
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[(len(took)*99)/100]
	d.display.done("%d edits and deletions behind the agent's back, repaired after %s (median), %s (p99)",
		len(took), p50.Round(100*time.Microsecond), p99.Round(100*time.Microsecond))
	d.note("demo_drift_repair_ms_p50", p50.Seconds()*1000, "ms", "ms from a foreign write to its repair, median")
	d.note("demo_drift_repair_ms_p99", p99.Seconds()*1000, "ms", "ms from a foreign write to its repair, p99 of %d", len(took))
	return nil
}

// suffer does a damage to the n-th object of its kind, and returns how long
// after it the object was whole again, as a watch saw it.
func (d *demo) suffer(ctx context.Context, damage damage, n int) (time.Duration, error) {
	objects, err := d.kube.client.Resource(damage.resource).List(ctx, metav1.ListOptions{LabelSelector: d.selector()})
	if err != nil {
		return 0, err
	}
	if len(objects.Items) == 0 {
		return 0, fmt.Errorf("there are no %s", damage.resource.Resource)
	}
	before := &objects.Items[n%len(objects.Items)]
	resource := d.kube.in(damage.resource, before.GetNamespace())
	watcher, err := resource.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + before.GetName(), ResourceVersion: objects.GetResourceVersion(),
	})
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	damaged, err := damage.do(ctx, resource, before)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s %s was not repaired: %w", damage.resource.Resource, before.GetName(), context.Cause(ctx))
		case event, open := <-watcher.ResultChan():
			if !open {
				return 0, fmt.Errorf("the watch of %s ended", before.GetName())
			}
			now, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return 0, fmt.Errorf("the watch of %s delivered %v", before.GetName(), event.Object)
			}
			if event.Type == watch.Deleted || now.GetResourceVersion() == damaged || now.GetResourceVersion() == before.GetResourceVersion() {
				continue
			}
			if damage.repaired(before, now) {
				return time.Since(start), nil
			}
		}
	}
}

// do does the damage and returns the resourceVersion that it left.
func (d damage) do(ctx context.Context, resource dynamic.ResourceInterface, target *unstructured.Unstructured) (string, error) {
	if d.patch == "" {
		return "", resource.Delete(ctx, target.GetName(), metav1.DeleteOptions{})
	}
	damaged, err := resource.Patch(
		ctx,
		target.GetName(),
		types.MergePatchType,
		[]byte(d.patch),
		metav1.PatchOptions{FieldManager: "somebody-else"},
	)
	if err != nil {
		return "", err
	}
	return damaged.GetResourceVersion(), nil
}

// settled waits until exactly the pods that are wanted run.
func (d *demo) settled(ctx context.Context, want int) error {
	running, all := 0, 0
	err := until(ctx, func() (bool, error) {
		var err error
		running, all, err = d.kube.running(ctx, d.selector())
		d.display.progress("%d of %d pods running", running, want)
		return running == want && all == want, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d pods run, %d wanted: %w", running, all, want, err)
	}
	return nil
}

// remove takes one service out of the desired state and waits until its pods
// are deleted and the others run as before.
func (d *demo) remove(ctx context.Context) error {
	d.display.step("Removal")
	if err := d.settled(ctx, len(d.services)*replicas); err != nil {
		return err
	}
	start := time.Now()
	gone := d.services[len(d.services)-1]
	if err := d.admin.do(ctx, http.MethodDelete, "projects/"+gone.project+"/services/"+gone.id+"/"+gone.environment, nil, nil); err != nil {
		return err
	}
	if err := d.settled(ctx, (len(d.services)-1)*replicas); err != nil {
		return err
	}
	d.display.done("service %s/%s and its pods are gone %s after the call, %d pods run",
		gone.name, gone.environment, time.Since(start).Round(10*time.Millisecond), (len(d.services)-1)*replicas)
	return nil
}
