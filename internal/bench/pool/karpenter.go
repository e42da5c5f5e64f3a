package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// karpenter prepares karpenter's scheduler as its own benchmark does. What it
// returns is what that benchmark measures: the preparation is left out.
func karpenter(
	ctx context.Context,
	types []*cloudprovider.InstanceType,
	pods []*corev1.Pod,
) (solve func() (machines, placed int, err error), err error) {
	ctx = options.ToContext(injection.WithControllerName(ctx, "provisioner"), &options.Options{
		CPURequests: 5000, PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict,
		IgnoreDRARequests: true, FeatureGates: options.FeatureGates{ReservedCapacity: true},
	})
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("10000000"), corev1.ResourceMemory: resource.MustParse("10000000Gi")}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.test.sh", Kind: "TestNodeClass", Name: "default"}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = types
	client, realtime := fakeclient.NewClientBuilder().Build(), &clock.RealClock{}
	cluster := state.NewCluster(realtime, client, provider)
	byPool := map[string][]*cloudprovider.InstanceType{pool.Name: types}
	concurrent := scheduling.NumConcurrentReconciles(5)
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, []*v1.NodePool{pool}, byPool, pods, concurrent)
	if err != nil {
		return nil, fmt.Errorf("karpenter's topology: %w", err)
	}
	scheduler := scheduling.NewScheduler(ctx, client, []*v1.NodePool{pool}, cluster, nil, topology, byPool, nil,
		events.NewRecorder(&record.FakeRecorder{}), realtime, nil, concurrent)
	return func() (int, int, error) {
		results, err := scheduler.Solve(ctx, pods)
		return len(results.NewNodeClaims), len(pods) - len(results.PodErrors), err
	}, nil
}
