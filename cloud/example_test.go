package cloud_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// A pool of at most four machines keeps two on standby. After ten minutes six
// pods come, of which four fit on one machine, and stay for ten minutes. Each plan
// that does something is printed, and in the end what the machines have used.
//
// The cloud is in memory, and so is the cluster, whose machines boot within 15
// seconds and stop themselves at the end of their warm-up. A program puts its own
// cloud.Nodes and cloud.Journal in the place of the Cluster.
func Example() {
	virtually(func(ctx context.Context, out *strings.Builder) {
		scope := cloud.Scope{Domain: "example.com", Cluster: "production", Pool: "batch", PoolUID: "0b6f"}
		fake := &cloudtest.Fake{Transition: 2 * time.Second}
		cluster := &cloudtest.Cluster{Fake: fake, Scope: scope}
		pool := cloud.Pool{
			Scope: scope, Size: 4, MinStandby: 2,
			Templates: []cloud.Template{{Name: "subnet-a", InstanceType: "m5.large", Zone: "zone-a"}},
		}
		executor := &cloud.Executor{
			Provider: fake, Nodes: cluster, Journal: cluster,
			Config: func(template string) (cloud.LaunchConfig, error) {
				return cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.large", SubnetID: template}, nil
			},
		}

		begin := time.Now()
		var memory cloud.Memory
		for time.Since(begin) < 40*time.Minute {
			if time.Since(begin) == 10*time.Minute {
				for n := range 6 {
					cluster.AddPod(demand.Pod{Name: fmt.Sprint("pod-", n)}, 10*time.Minute, false)
				}
			}
			cluster.Step()
			seen := cluster.Observe(ctx, fake, memory)
			plan, _, err := executor.Pass(ctx, pool, seen, cluster.Want(pool, seen))
			memory = plan.Memory
			for _, action := range plan.Actions {
				fmt.Fprintln(out, time.Since(begin), action)
			}
			if err != nil {
				fmt.Fprintln(out, err)
			}
			time.Sleep(30 * time.Second)
		}
		fmt.Fprintln(out, "invoice:")
		fmt.Fprint(out, fake.Invoice())
	})

	// Output:
	// 0s launch 2 x subnet-a as 6da281faefea30765361c909d7b4000a: standby 0 of 2
	// 1m0s abandon 6da281faefea30765361c909d7b4000a: each of its machines has a Node or has ended
	// 1m0s adopt i-fake-000001 ( -> warmup): its Node has no state yet
	// 1m0s adopt i-fake-000002 ( -> warmup): its Node has no state yet
	// 2m30s shelve i-fake-000001 (warmup -> standby): warm-up is complete
	// 2m30s shelve i-fake-000002 (warmup -> standby): warm-up is complete
	// 10m0s start i-fake-000001 (standby -> running): pods need it
	// 10m0s start i-fake-000002 (standby -> running): pods need it
	// 10m0s launch 2 x subnet-a as cb6e6a085a0575c1b0c7ba2685a60014: standby 2 of 2
	// 11m0s abandon cb6e6a085a0575c1b0c7ba2685a60014: each of its machines has a Node or has ended
	// 11m0s adopt i-fake-000003 ( -> warmup): its Node has no state yet
	// 11m0s adopt i-fake-000004 ( -> warmup): its Node has no state yet
	// 12m30s shelve i-fake-000003 (warmup -> standby): warm-up is complete
	// 12m30s shelve i-fake-000004 (warmup -> standby): warm-up is complete
	// 20m0s mark-empty i-fake-000001: no pod is left on it
	// 20m0s mark-empty i-fake-000002: no pod is left on it
	// 25m0s drain i-fake-000001 (running -> terminating): it was empty for its time
	// 25m0s drain i-fake-000002 (running -> terminating): it was empty for its time
	// 25m30s stop i-fake-000001: it is drained
	// 25m30s stop i-fake-000002: it is drained
	// 26m0s shelve i-fake-000001 (terminating -> standby): it is stopped
	// 26m0s shelve i-fake-000002 (terminating -> standby): it is stopped
	// invoice:
	// m5.large     pending                12 machine-seconds
	// m5.large     running              2328 machine-seconds
	// m5.large     stopped              6048 machine-seconds
	// m5.large     stopping               12 machine-seconds
}
