package operator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/crds"
	nodepool "github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/internal/parallel"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// BenchmarkRest is N8: what a pool of 1,000 machines with 10,000 pods costs while nothing
// happens. It has a real API server, and a cloud in memory.
func BenchmarkRest(b *testing.B) {
	const machines, podsEach, interval, observed = 1000, 10, 5 * time.Second, time.Minute
	ctx := b.Context()
	cluster, err := kubetest.Run(ctx, kubetest.Options{})
	must(b, err)
	defer cluster.Stop()
	definitions, err := crds.YAML()
	must(b, err)
	must(b, cluster.Apply(ctx, string(definitions)))
	_, err = cluster.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	must(b, err)
	must(b, cluster.Apply(ctx, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}"))
	must(
		b,
		cluster.Apply(
			ctx,
			fmt.Sprintf(
				`{apiVersion: stratos.sh/v1alpha1, kind: AWSNodeClass, metadata: {name: rest}, spec: {bootstrapTemplate: AL2023, instanceType: m5.xlarge, architecture: x86_64, amiSelector: {id: ami-1}, subnetIds: [subnet-a], securityGroupIds: [sg-1], iamInstanceProfile: p}}
---
{apiVersion: stratos.sh/v1alpha1, kind: NodePool, metadata: {name: rest}, spec: {poolSize: %d, minStandby: 0, reconciliationInterval: %s, template: {nodeClassRef: {kind: AWSNodeClass, name: rest}}}}`,
				machines,
				interval,
			),
		),
	)
	uid, err := cluster.Kubectl(ctx, "get", "nodepool", "rest", "-o", "jsonpath={.metadata.uid}")
	must(b, err)
	_, err = cluster.Kubectl(
		ctx,
		"patch",
		"nodepool",
		"rest",
		"--subresource=status",
		"--type=merge",
		"-p",
		`{"status":{"regions":["us-east-1"]}}`,
	)
	must(b, err)

	var lists, calls atomic.Int64
	fake := &cloudtest.Fake{}
	scope := cloud.Scope{Domain: v1alpha1.Group, Cluster: "test", Pool: "rest", PoolUID: uid}
	instances, err := fake.LaunchInstances(
		ctx,
		cloud.LaunchConfig{Token: "t", ImageID: "ami-1", InstanceType: "m5.xlarge", SubnetID: "subnet-a", Tags: scope.LaunchTags("op", nil)},
		machines,
	)
	must(b, err)
	client := kubernetes.NewForConfigOrDie(cluster.Config)
	each(b, len(instances), func(n int) error {
		id := instances[n].ID
		named := fake.UpdateInstanceTags(ctx, id, scope.StateTags(cloud.StateRunning, "node-"+id))
		return errors.Join(named, furnish(ctx, client, id, podsEach, uid))
	})
	fake.Fault = func(c cloudtest.Call) cloudtest.Fault {
		calls.Add(1)
		if c.Operation == "ListInstances" {
			lists.Add(1)
		}
		return cloudtest.Fault{}
	}

	for range b.N {
		net := &applytest.Transport{}
		access := rest.CopyConfig(cluster.Config)
		access.Wrap(net.Wrap)
		o := &nodepool.Operator{
			Kubernetes:      access,
			Alone:           true,
			ClusterName:     "test",
			ClusterEndpoint: "https://example.com",
			ClusterCA:       "Yw==",
			ClusterCIDR:     "10.0.0.0/16",
			Region:          "us-east-1",
			Address:         "127.0.0.1:0",
			MetricsAddress:  "127.0.0.1:0",
			Instance:        "bench",
			Logger:          slog.New(slog.DiscardHandler),
			OpenRegion: func(context.Context, string, nodepool.Called) (nodepool.Region, error) {
				return nodepool.Region{Provider: fake, Resolver: inMemory{}}, nil
			},
		}
		running, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- o.Start(running) }()
		quiet(ctx, net)
		writes, before, other := len(net.Writes()), lists.Load(), calls.Load()-lists.Load()
		pause.For(ctx, observed)
		written, called, listed := len(net.Writes())-writes, calls.Load()-lists.Load()-other, lists.Load()-before
		fmt.Printf("figure nodepool_rest_api_writes %d writes\n", written)
		fmt.Printf("figure nodepool_rest_cloud_writes %d calls\n", called)
		fmt.Printf("figure nodepool_rest_lists_per_period %.2f lists\n", float64(listed)/(float64(observed)/float64(interval)))
		if written != 0 || called != 0 || listed == 0 {
			b.Errorf("%d writes and %d calls beside %d lists, must be none beside some", written, called, listed)
		}
		cancel()
		must(b, <-done)
	}
}

// furnish makes the Node of a running machine, and the pods on it.
func furnish(ctx context.Context, client *kubernetes.Clientset, id string, pods int, uid string) error {
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-" + id,
			Labels: map[string]string{
				v1alpha1.LabelPool:       "rest",
				v1alpha1.LabelState:      "running",
				v1alpha1.LabelInstanceID: id,
				v1alpha1.LabelStateSince: fmt.Sprint(now.Unix()),
			},
			Annotations: map[string]string{v1alpha1.AnnotationPoolUID: uid},
		},
		Spec: corev1.NodeSpec{ProviderID: "aws:///zone-a/" + id},
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	node.Status.Allocatable = corev1.ResourceList{
		"cpu":    resource.MustParse("4"),
		"memory": resource.MustParse("16Gi"),
		"pods":   resource.MustParse("110"),
	}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now},
	}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for n := range pods {
		_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%s-%d", id, n)},
			Spec: corev1.PodSpec{NodeName: node.Name, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{
				Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
			}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls do some times at a time.
func each(b *testing.B, n int, do func(int) error) {
	b.Helper()
	parallel.Each(n, 16, func(i int) {
		if err := do(i); err != nil {
			b.Error(err)
		}
	})
}

// quiet waits until nothing was written for a while.
func quiet(ctx context.Context, net *applytest.Transport) {
	for before, since := -1, time.Now(); time.Since(since) < 15*time.Second && ctx.Err() == nil; pause.For(ctx, 100*time.Millisecond) {
		if now := len(net.Writes()); now != before {
			before, since = now, time.Now()
		}
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
