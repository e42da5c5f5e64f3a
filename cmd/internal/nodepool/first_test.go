package nodepool_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/nodepool"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/nodepool/crds"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

type res struct{ nodepool.Resolver }

func (res) Image(context.Context, aws.Class) (id, name string, err error) { return "ami-1", "i", nil }
func (res) Subnets(context.Context, aws.Class) ([]aws.Subnet, error) {
	return []aws.Subnet{{ID: "subnet-a", Zone: "us-east-1a"}}, nil
}
func (res) SecurityGroups(context.Context, aws.Class) ([]string, error) { return []string{"sg-1"}, nil }
func (res) InstanceProfile(context.Context, aws.Class) (string, error)  { return "p", nil }

func TestFirst(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true})
	definitions, err := crds.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definitions)))
	_, err = cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	require.NoError(t, err)
	k := kubernetes.NewForConfigOrDie(cluster.Config)
	fake := &cloudtest.Fake{Zones: map[string]string{"subnet-a": "us-east-1a"}}
	warmed := map[string]bool{}
	fake.OnState = func(ctx context.Context, i cloud.Instance) {
		name := "node-" + i.ID
		set := func(status corev1.ConditionStatus) {
			now := metav1.Now()
			n, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return
			}
			n.Status.NodeInfo.BootID = "b"
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
			n.Status.Capacity = n.Status.Allocatable
			network := corev1.ConditionFalse
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: now, LastTransitionTime: now}, {Type: corev1.NodeNetworkUnavailable, Status: network, LastHeartbeatTime: now, LastTransitionTime: now}}
			if _, err := k.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
				t.Log(err)
			}
		}
		go func() {
			switch i.State {
			case cloud.InstanceRunning:
				time.Sleep(time.Second)
				_, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					_, err = k.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "us-east-1a"}}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + i.ID,
						Taints: []corev1.Taint{{Key: "stratos.sh/not-ready", Value: "true", Effect: "NoSchedule"}}}}, metav1.CreateOptions{})
					if err != nil {
						t.Log(err)
					}
				}
				set(corev1.ConditionTrue)
				if !warmed[i.ID] {
					warmed[i.ID] = true
					time.Sleep(time.Second)
					_, err = k.CoreV1().Nodes().Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"stratos.sh/warmup-attested":"{\"bootID\":\"b\"}"}}}`), metav1.PatchOptions{})
					if err != nil {
						t.Log(err)
					}
					_ = fake.Shutdown(i.ID)
				}
			case cloud.InstanceStopping, cloud.InstanceStopped:
				set(corev1.ConditionUnknown)
			}
		}()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = fake.Start(ctx) }()
	o := &nodepool.Operator{Kubernetes: cluster.Config, Alone: true, ClusterName: "c", ClusterEndpoint: "https://x", ClusterCA: "eA==", ClusterCIDR: "10.0.0.0/16", Region: "us-east-1", Transition: 500 * time.Millisecond, Instance: "t",
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
		OpenRegion: func(context.Context, string, nodepool.Called) (nodepool.Region, error) {
			return nodepool.Region{Provider: fake, Resolver: res{}}, nil
		}}
	done := make(chan error, 1)
	go func() { done <- o.Start(ctx) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	require.NoError(t, cluster.Apply(t.Context(), `{apiVersion: stratos.sh/v1alpha1, kind: AWSNodeClass, metadata: {name: c}, spec: {bootstrapTemplate: AL2023, instanceType: m5.xlarge, architecture: x86_64, subnetIds: [subnet-a], securityGroupIds: [sg-1], iamInstanceProfile: p}}
---
{apiVersion: stratos.sh/v1alpha1, kind: NodePool, metadata: {name: web}, spec: {poolSize: 5, minStandby: 3, reconciliationInterval: 5s, scaleDown: {emptyNodeTTL: 3s}, template: {nodeClassRef: {kind: AWSNodeClass, name: c}}}}
`))
	wait := func(what string, check func() bool) {
		began := time.Now()
		for !check() {
			if time.Since(began) > 60*time.Second {
				out, _ := cluster.Kubectl(t.Context(), "get", "np,awsnc,nodes,pods,events", "-A", "-o", "wide")
				y, _ := cluster.Kubectl(t.Context(), "get", "np,awsnc", "-o", "yaml")
				t.Fatal("not ", what, "\n", out, y)
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Log(what, "after", time.Since(began))
	}
	wait("standby", func() bool {
		out, _ := cluster.Kubectl(t.Context(), "get", "np", "web", "-o", "jsonpath={.status.standby}{.status.conditions[?(@.type=='Ready')].status}")
		return out == "3True"
	})
	for i := range 10 {
		require.NoError(t, cluster.Apply(t.Context(), fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: default}, spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 500m, memory: 2Gi}}}]}}`, i)))
	}
	wait("bound", func() bool {
		out, _ := cluster.Kubectl(t.Context(), "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
		return len(out) > 10 && len(splitWords(out)) == 10
	})
	wait("replenished", func() bool {
		out, _ := cluster.Kubectl(t.Context(), "get", "np", "web", "-o", "jsonpath={.status.standby},{.status.running}")
		t.Log(out)
		return out == "3,2"
	})
	_, err = cluster.Kubectl(t.Context(), "delete", "pods", "--all", "--force", "--grace-period=0")
	require.NoError(t, err)
	wait("down", func() bool {
		out, _ := cluster.Kubectl(t.Context(), "get", "np", "web", "-o", "jsonpath={.status.standby},{.status.running}")
		t.Log(out)
		return out == "5,0"
	})
	_, err = cluster.Kubectl(t.Context(), "delete", "np", "web", "--timeout=60s")
	out, _ := cluster.Kubectl(t.Context(), "get", "np,awsnc,nodes,pods,events", "-A", "-o", "wide")
	t.Log(out)
	require.NoError(t, err)
}

func splitWords(s string) []string {
	var out []string
	w := ""
	for _, r := range s + " " {
		if r == ' ' {
			if w != "" {
				out = append(out, w)
			}
			w = ""
			continue
		}
		w += string(r)
	}
	return out
}
