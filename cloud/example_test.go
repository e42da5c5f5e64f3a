package cloud_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scope := cloud.Scope{Domain: "stratos.sh", Cluster: "c", Pool: "p", PoolUID: "uid"}
		fake := &cloudtest.Fake{}
		cluster := &cloudtest.Cluster{Fake: fake, Scope: scope}
		pool := cloud.Pool{Scope: scope, Size: 5, MinStandby: 3, Templates: []cloud.Template{{Name: "a", InstanceType: "m", Zone: "zone-a"}}}
		exec := &cloud.Executor{Provider: fake, Nodes: cluster, Journal: cluster, Config: func(string) (cloud.LaunchConfig, error) {
			return cloud.LaunchConfig{ImageID: "ami", InstanceType: "m", SubnetID: "s"}, nil
		}}
		var memory cloud.Memory
		for i := range 120 {
			if i == 20 {
				for n := range 6 {
					cluster.AddPod(fmt.Sprint("pod", n), 10*time.Minute, false)
				}
			}
			cluster.Step()
			seen := cluster.Observe(t.Context(), fake, memory)
			plan, _, err := exec.Pass(t.Context(), pool, seen, cluster.Want(pool, seen))
			memory = plan.Memory
			if len(plan.Actions) > 0 || err != nil {
				fmt.Println(i*10, plan.String(), err)
			}
			time.Sleep(10 * time.Second)
		}
		fmt.Println(fake.Invoice(), cluster.Wrong(), cluster.Pending(), fake.Calls())
	})
}
