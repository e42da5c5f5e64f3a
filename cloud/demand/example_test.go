package demand_test

import (
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// Four pods wait, and one of them fits nowhere. One machine of the pool stands
// by, more can be launched.
func ExamplePlace() {
	var waiting []*demand.Pod
	for _, name := range []string{"a", "b", "c"} {
		waiting = append(waiting, &demand.Pod{Name: name, UID: name, Requests: demand.Resources{CPU: 2100, Memory: 1 << 30}})
	}
	waiting = append(waiting, &demand.Pod{Name: "huge", UID: "huge", Requests: demand.Resources{CPU: 100_000}})
	large := demand.Node{
		Name:        "standby-1",
		Labels:      map[string]string{"zone": "a"},
		Allocatable: demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 110},
	}

	result := demand.Place(demand.Input{
		Pods: waiting,
		Supplies: []demand.Supply{{
			Pool: "general", Standby: []*demand.Node{&large},
			Templates: []demand.NodeTemplate{{Name: "zone-a", Node: large}}, MaxLaunches: 10,
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
