package operator_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

const (
	poolsKind   = "nodepools.stratos.sh"
	classesKind = "awsnodeclasses.stratos.sh"
)

// own makes an object of a kind of this program.
func own(kind, name string, spec map[string]any) simtest.Object {
	return simtest.Object{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}
}

// zones resolves every class to a subnet in each of two zones.
type zones struct{ inMemory }

func (zones) Subnets(context.Context, aws.Class) ([]aws.Subnet, error) {
	return []aws.Subnet{{ID: "subnet-a", Zone: "home-1a", FreeAddresses: -1}, {ID: "subnet-b", Zone: "home-1b", FreeAddresses: -1}}, nil
}

// pooled is a world of machines, and what the test notes of it.
type pooled struct {
	*virtualCloud

	alone   bool   // without a Lease
	cluster string // --cluster-name of the next start, "c" if empty
	// sizes has the size of each pool by UID, each from a time on.
	sizes map[string][]sizeFrom
	// counted is how many machines each pool had at the call before.
	counted map[string]int
	// opened is when a person has last changed the cordon of each Node.
	opened map[string]time.Time
	// removed is since when each pool is being deleted.
	removed map[string]time.Time
}

type sizeFrom struct {
	at   time.Time
	size int
}

// Each world has the same definitions, which are read once.
var definedKinds = sync.OnceValue(func() []simtest.Kind {
	kinds, err := upstream.Definitions("../internal/crds/*.yaml")
	if err != nil {
		panic(err)
	}
	return kinds
})

// Each world has the rights that the program ships with.
var shippedRights = sync.OnceValue(func() func(applytest.Request) error {
	text, err := operator.Manifests{Image: "i", ClusterName: "c", Region: "home-1"}.YAML()
	if err != nil {
		panic(err)
	}
	rights, err := upstream.Rights(text, "team")
	if err != nil {
		panic(err)
	}
	return rights
})

// newPooled makes a world without objects of a user.
func newPooled() (*pooled, simtest.Scenario) {
	p := &pooled{
		virtualCloud: &virtualCloud{},
		sizes:        map[string][]sizeFrom{}, removed: map[string]time.Time{}, opened: map[string]time.Time{},
	}
	p.Cloud.Zones = map[string]string{"subnet-a": "home-1a", "subnet-b": "home-1b"}
	p.OnCall = p.judge
	s := simtest.Scenario{
		Kinds: slices.Concat(bufferKinds(), []simtest.Kind{
			{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
			{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
			{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true},
			{Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Status: true},
			{Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume", Cluster: true, Status: true},
			{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Kind: "StorageClass", Cluster: true},
			{Group: "storage.k8s.io", Version: "v1", Resource: "csinodes", Kind: "CSINode", Cluster: true},
			{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet", Status: true},
			{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
			{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true},
			{
				Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition",
				Cluster: true, Status: true,
			},
		}, definedKinds()),
		Rights: shippedRights(),
		Program: func(ctx context.Context, net http.RoundTripper) error {
			o := &operator.Operator{
				Kubernetes: &rest.Config{Host: "http://simtest", Transport: net}, Namespace: "team", Instance: "one",
				ClusterName:     cmp.Or(p.cluster, "c"),
				ClusterEndpoint: "https://c.example", ClusterCA: "Y2E=", ClusterCIDR: "10.0.0.0/16", Region: "home-1",
				OpenRegion: func(_ context.Context, _ string, called operator.Called) (operator.Region, error) {
					return operator.Region{Provider: p.Provider(net, called), Resolver: zones{}}, nil
				},
				Notices: &p.Announced, Alone: p.alone, Address: "0", MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
			}
			return o.Start(ctx)
		},
		Actors: []func(*simtest.World, simtest.Change){
			simtest.Kubelet{Up: p.Up}.Act, simtest.NodeController{}.Act, simtest.ReplicaSets, establish, p.note,
		},
		Habits: append(p.Habits(), deleteStandbyNode()),
		// A backup from before a pool leaves machines without a pool, and one from before a
		// launch has its token used again.
		Without: append(replacedHabits(), simtest.RestoreStore),
		// Why a pod waits is announced once by each process.
		Reannounces: true,
		// Which machine runs which pod is of its history.
		State: func(*simtest.World) string { return "" },
	}
	return p, s
}

// simulated is the whole program on machines of a cloud in memory, and a user who edits two
// pools and what runs on them.
func simulated() simtest.Scenario {
	p, s := newPooled()
	// A list that lacks more machines than a pool may lose at once is believed an hour later or two.
	s.Edits, s.Pause, s.Settle, s.Rest = 12, 5*time.Minute, 135*time.Minute, 10*time.Minute
	switch s.Histories = 8; {
	case os.Getenv("TRUEUP_SWEEP") == "all":
		s.Histories = 25
	case testing.Short():
		s.Histories = 2
	}
	s.Start = func(w *simtest.World) {
		p.foreign(w)
		for _, o := range []simtest.Object{
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}},
			class("c0"), class("c1"),
		} {
			if err := w.Create(o); err != nil {
				panic(err)
			}
		}
		defineBuffers(w)
	}
	s.Edit, s.Converged = editPools, p.converged
	return s
}

func class(name string) simtest.Object {
	return own("AWSNodeClass", name, map[string]any{
		"bootstrapTemplate": "AL2023", "instanceType": "m5.xlarge", "architecture": "x86_64", "amiSelector": map[string]any{"id": "ami-1"},
		"subnetIds": []any{"subnet-a", "subnet-b"}, "securityGroupIds": []any{"sg-1"}, "iamInstanceProfile": "nodes",
	})
}

// replicas are pods for the machines of a pool.
func replicas(name, pool string, n int, cpu string) simtest.Object {
	labels := map[string]any{"app": name}
	return simtest.Object{
		"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{"namespace": "team", "name": name},
		"spec": map[string]any{
			"replicas": n, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
				"nodeSelector": map[string]any{v1alpha1.LabelPool: pool}, "restartPolicy": "Always",
				"containers": []any{map[string]any{
					"name": "c", "image": "x", "resources": map[string]any{"requests": map[string]any{"cpu": cpu, "memory": "1Gi"}},
				}},
			}},
		},
	}
}

func editPools(w *simtest.World) {
	dice := w.Random
	pool, className := fmt.Sprint("p", dice.IntN(2)), fmt.Sprint("c", dice.IntN(2))
	set := fmt.Sprint("r", dice.IntN(3))
	size := 2 + dice.IntN(5)
	spec := map[string]any{
		"poolSize": size, "minStandby": dice.IntN(min(size, 3) + 1),
		"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": className}},
		"preWarm": map[string]any{
			"completionMode": []any{"SelfStop", "ControllerStop"}[dice.IntN(2)], "timeoutAction": []any{"stop", "terminate"}[dice.IntN(2)],
		},
		"scaleDown": map[string]any{"emptyNodeTTL": []any{"1s", "1m", "5m"}[dice.IntN(3)]},
	}
	if dice.IntN(3) == 0 {
		spec["scaleDown"].(map[string]any)["surplusStandbyTTL"] = "1m" //nolint:forcetypeassert // made above
	}
	if dice.IntN(2) == 0 {
		spec["weight"] = dice.IntN(3)
		spec["disruption"] = []any{
			map[string]any{"consolidateAfter": "1m"},
			map[string]any{"consolidateAfter": "30s", "budgets": []any{map[string]any{"nodes": "50%"}}},
			map[string]any{"consolidateAfter": "2m", "budgets": []any{map[string]any{"nodes": "0", "schedule": "0 * * * *", "duration": "10m"}}},
		}[dice.IntN(3)]
	}
	n, cpu := dice.IntN(5), []string{"500m", "2100m", "3"}[dice.IntN(3)]
	switch act := dice.IntN(12); {
	case act < 4:
		if w.Object(poolsKind, "", pool) == nil {
			_ = w.Create(own("NodePool", pool, spec)) // it does not exist
			return
		}
		_ = w.Update(poolsKind, "", pool, func(o simtest.Object) { o["spec"] = spec }) // it exists
	case act < 8:
		if w.Delete("replicasets.apps", "team", set) != nil || dice.IntN(3) > 0 {
			_ = w.Create(replicas(set, pool, n, cpu)) // its name may still be going
		}
	case act < 10:
		editBuffers(w, dice, pool)
	case act == 10:
		_ = w.Delete(poolsKind, "", pool) // it may not exist
	default:
		_ = w.Update(classesKind, "", className, func(o simtest.Object) { // it exists
			o.Set([]any{"subnet-a", "subnet-b"}[:1+dice.IntN(2)], "spec", "subnetIds")
		})
	}
}

// foreign launches a machine of another cluster, and one without tags of a pool.
func (p *pooled) foreign(w *simtest.World) {
	for i, tags := range []map[string]string{
		cloud.Scope{Domain: v1alpha1.Group, Cluster: "other", Pool: "p0", PoolUID: "other"}.LaunchTags("o", nil), {"Name": "p0"},
	} {
		if _, err := p.Cloud.LaunchInstance(context.Background(), cloud.LaunchConfig{
			Token: fmt.Sprint("foreign ", i), ImageID: "ami-1", InstanceType: "m5.xlarge", SubnetID: "subnet-a", Tags: tags,
		}); err != nil {
			panic(err)
		}
	}
	w.Log("two machines of others run")
}

// TestTheOperatorInASimulatedWorld is not parallel: its loops, which one event wakes together, go
// on in the same order each time, so that a wrong history repeats.
func TestTheOperatorInASimulatedWorld(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	simtest.Histories(t, simulated)
}

// TestTheOperatorMayBeKilledAnywhere kills it before and after each request to the API server and
// each call to the cloud, while a pool is filled, used and deleted.
func TestTheOperatorMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, lifeOfAPool, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_nodepool_boundaries %d count\n", c.Boundaries)
}

// lifeOfAPool fills a pool, starts a machine for a pod, takes the pod away, and deletes a second
// pool.
func lifeOfAPool() simtest.Scenario {
	p, s := newPooled()
	p.alone = true // a boundary at each of its renewals says nothing of machines
	pool := func(name string, size, standby int) simtest.Object {
		return own("NodePool", name, map[string]any{
			"poolSize": size, "minStandby": standby, "scaleDown": map[string]any{"emptyNodeTTL": "1s"},
			"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
		})
	}
	s.Start = func(w *simtest.World) {
		for _, o := range []simtest.Object{
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}, class("c0"), pool("p0", 2, 1), pool("p1", 1, 1),
		} {
			if err := w.Create(o); err != nil {
				panic(err)
			}
		}
	}
	edits := []func(w *simtest.World) error{
		func(*simtest.World) error { return nil },
		func(w *simtest.World) error { return w.Create(replicas("r0", "p0", 1, "1")) },
		func(w *simtest.World) error {
			return w.Update("replicasets.apps", "team", "r0", func(o simtest.Object) { o.Set(0, "spec", "replicas") })
		},
		func(w *simtest.World) error { return w.Delete(poolsKind, "", "p1") },
	}
	s.Edits, s.Pause, s.Settle = len(edits), 4*time.Minute, 6*time.Minute
	s.Edit = func(w *simtest.World) {
		if err := edits[0](w); err != nil {
			panic(err)
		}
		edits = edits[1:]
	}
	s.Converged = p.converged
	return s
}
