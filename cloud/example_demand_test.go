package cloud_test

import (
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// Four pods wait, and one of them fits nowhere. One machine of the pool stands
// by, more can be launched.
func ExampleDemand() {
	var waiting []*cloud.Pod
	for _, name := range []string{"a", "b", "c"} {
		waiting = append(waiting, &cloud.Pod{Name: name, UID: name, Requests: cloud.Resources{CPU: 2100, Memory: 1 << 30}})
	}
	waiting = append(waiting, &cloud.Pod{Name: "huge", UID: "huge", Requests: cloud.Resources{CPU: 100_000}})
	large := cloud.Node{
		Name:        "standby-1",
		Labels:      map[string]string{"zone": "a"},
		Allocatable: cloud.Resources{CPU: 4000, Memory: 16 << 30, Pods: 110},
	}

	result := cloud.Demand(cloud.DemandInput{
		Pods: waiting,
		Supplies: []cloud.Supply{{
			Pool: "general", Standby: []*cloud.Node{&large},
			Templates: []cloud.NodeTemplate{{Name: "zone-a", Node: large}}, MaxLaunches: 10,
		}},
	})
	for _, pool := range result.Pools {
		fmt.Println(pool.Pool, "starts", len(pool.Start), "and launches", pool.Launch)
	}
	for _, p := range result.Placements {
		fmt.Println(p.Pod.Name, p.On)
	}
	for _, u := range result.Unplaced {
		fmt.Println(u.Pod.Name, u.Reasons)
	}
	// Output:
	// general starts 1 and launches [{zone-a 2}]
	// a standby
	// b launch
	// c launch
	// huge [{general needs 100 cpu, the largest machine has 4 cpu}]
}
