package pools_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// The pool batch has no machine, and a pod waits. The loop finds that a machine has to be launched
// for it, and asks for a pass, which does. A standby machine the loop would start itself.
//
// The cloud and the API server are in memory. A program has watches that show Nodes and pods to the
// Cluster, a controller that does the passes, and a journal that outlives it: [nodes.Journal].
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: &simtest.Server{
		Kinds: []simtest.Kind{{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	domain, scope := nodes.Domain("example.com"), cloud.Scope{Domain: "example.com", Cluster: "production", Pool: "batch", PoolUID: "0b6f"}
	fake, journal, memory := &cloudtest.Fake{}, &launches{}, &cloud.SharedMemory{}
	var current atomic.Pointer[pools.Pool]
	passes := make(chan string, 10)
	scaleUp := &pools.ScaleUp{
		Pools: func() map[string]*pools.Pool { return map[string]*pools.Pool{scope.Pool: current.Load()} },
		Look:  func(pool string) { passes <- pool },
	}
	scaleUp.Cluster = nodes.New(domain, nodes.Zoned("fake", nil), func(_ []string, demand bool) {
		if demand {
			scaleUp.Wake()
		}
	})
	marks := &nodes.Marks{
		Client: client, Cluster: scaleUp.Cluster, Pool: nodes.Pool{Domain: domain, Name: scope.Pool, UID: scope.PoolUID},
	}
	pass := func() {
		pool := &pools.Pool{
			Spec:  cloud.Pool{Scope: scope, Size: 3, Templates: []cloud.Template{{Name: "subnet-a", InstanceType: "large", Zone: "zone-a"}}},
			Nodes: marks.Pool, Memory: memory, Weight: 10,
			Machine: func(t cloud.Template) demand.Node {
				return demand.Node{Labels: map[string]string{corev1.LabelTopologyZone: t.Zone}}
			},
			Capacity: func(int) demand.Resources { return demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 50} },
			Executor: &cloud.Executor{
				Provider: fake, Nodes: marks, Journal: journal,
				Check: nodes.Guard{Marks: marks, Scope: scope, Instance: memory.Instance}.Check,
				Config: func(template string) (cloud.LaunchConfig, error) {
					return cloud.LaunchConfig{ImageID: "image", InstanceType: "large", SubnetID: template}, nil
				},
			},
		}
		p := pools.Pass{Pool: pool, ScaleUp: scaleUp, Marks: marks, Launches: journal.intents, Publish: func() {
			state := *pool
			current.Store(&state)
		}}
		begun := time.Now()
		instances, err := fake.ListInstances(ctx, scope.Tags())
		seen := p.Observe(ctx, instances, begun, err)
		err = p.Run(ctx, seen, func() cloud.Want { return cloud.Want{Launch: scaleUp.Launches(scope.Pool)} })
		fmt.Println("pass:", pool.Plan.Actions, err)
		for _, r := range p.Results {
			for _, e := range pools.Events(r.Action) {
				fmt.Println(e.Type, e.Reason)
			}
		}
		after, _ := p.Next(30*time.Second, seen.ListError)
		fmt.Println("next pass in", after)
	}

	pass()
	scaleUp.Cluster.SawPod(types.NamespacedName{Name: "job"}, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "1"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
		}}},
	})
	done := make(chan error, 1)
	go func() { done <- scaleUp.Start(ctx) }()
	fmt.Println("look at", <-passes)
	pass()
	stop()
	fmt.Println("end:", <-done)
	// Output:
	// pass: [] <nil>
	// next pass in 30s
	// look at batch
	// pass: [launch 1 x subnet-a as 6da281faefea30765361c909d7b4000a: standby 0 of 0, pods need 1 more] <nil>
	// Normal Replenishing
	// Normal WarmupStarted
	// next pass in 5s
	// end: <nil>
}

// launches is a journal that ends with the process.
type launches struct {
	all     []cloud.LaunchIntent
	ordinal int64
}

func (l *launches) intents() ([]cloud.LaunchIntent, int64) { return l.all, l.ordinal }

func (l *launches) Record(ctx context.Context, i cloud.LaunchIntent) error {
	l.ordinal = max(l.ordinal, i.Ordinal)
	l.all = append(slices.DeleteFunc(l.all, func(o cloud.LaunchIntent) bool { return o.Ordinal == i.Ordinal }), i)
	return ctx.Err()
}

func (l *launches) Erase(ctx context.Context, operation string) error {
	l.all = slices.DeleteFunc(l.all, func(i cloud.LaunchIntent) bool { return i.Operation == operation })
	return ctx.Err()
}
