package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

func resourceOf(group, version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

func agents(plural string) schema.GroupVersionResource {
	return resourceOf(groupVersion().Group, groupVersion().Version, plural)
}

// observer sees a namespace as any client does: through watches.
type observer struct {
	mu     sync.Mutex
	jobs   map[string]seenJob
	images map[string]string    // of CronJobs
	ended  map[string]time.Time // when a Job was first seen complete, by its AgentJob
}

// seenJob is what the status of an AgentJob says.
type seenJob struct {
	phase, config, template string
	ready                   bool
	since                   time.Time // when the phase was first seen
}

// watch observes a namespace until ctx ends.
func watch(ctx context.Context, client dynamic.Interface, namespace string) (*observer, error) {
	o := &observer{jobs: map[string]seenJob{}, images: map[string]string{}, ended: map[string]time.Time{}}
	informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	for _, kind := range []schema.GroupVersionResource{agents("agentjobs"), resourceOf("batch", "v1", "cronjobs"), resourceOf("batch", "v1", "jobs")} {
		_, err := informers.ForResource(kind).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { o.see(kind.Resource, object) }, UpdateFunc: func(_, object any) { o.see(kind.Resource, object) },
		})
		if err != nil {
			return nil, err
		}
	}
	informers.Start(ctx.Done())
	for kind, ok := range informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("%s is not watched", kind.Resource)
		}
	}
	return o, nil
}

func (o *observer) see(plural string, object any) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch plural {
	case "agentjobs":
		field := func(name string) string {
			text, _, _ := unstructured.NestedString(u.Object, "status", name) // absent: not reported yet
			return text
		}
		seen := seenJob{
			phase:    field("phase"),
			config:   field("configHash"),
			template: field("templateHash"),
			ready:    condition(u, "Ready"),
			since:    time.Now(),
		}
		if before := o.jobs[u.GetName()]; before.phase == seen.phase {
			seen.since = before.since
		}
		o.jobs[u.GetName()] = seen
	case "cronjobs":
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "jobTemplate", "spec", "template", "spec", "containers")
		if len(containers) == 1 {
			o.images[u.GetName()], _ = containers[0].(map[string]any)["image"].(string)
		}
	case "jobs":
		owner := metav1.GetControllerOf(u)
		if owner == nil || !condition(u, "Complete") {
			return
		}
		if _, ok := o.ended[owner.Name]; !ok {
			o.ended[owner.Name] = time.Now()
		}
	}
}

func condition(u *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c["status"] == "True"
		}
	}
	return false
}

// await waits until what it sees fulfils a condition, which is called with the lock held.
func (o *observer) await(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(10 * time.Minute); time.Now().Before(limit); {
		o.mu.Lock()
		ok := holds()
		o.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return errors.New(what + ": not in ten minutes")
}
