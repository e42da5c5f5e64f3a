package demand_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

func TestReservationsKeepMachinesToTheirPods(t *testing.T) {
	pod := func(uid string) *demand.Pod { return &demand.Pod{UID: uid} }
	node := func(id string) *demand.Node { return &demand.Node{Machine: id} }
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	deadline := noon.Add(time.Minute)
	held := demand.Reserve(nil, demand.Result{Placements: []demand.PlacedPod{
		{Pod: pod("a"), On: demand.OnStandby, Node: node("i-1")},
		{Pod: pod("b"), On: demand.OnStandby, Node: node("i-1")},
		{Pod: pod("c"), On: demand.OnStandby, Node: node("i-2")},
		{Pod: pod("d"), On: demand.OnNode, Node: node("i-3")},
		{Pod: pod("e"), On: demand.OnLaunch},
	}}, deadline)
	require.Equal(
		t,
		[]demand.Reservation{
			{Machine: "i-1", Pods: []string{"a", "b"}, Deadline: deadline},
			{Machine: "i-2", Pods: []string{"c"}, Deadline: deadline},
		},
		held,
	)

	more := demand.Reserve(
		held,
		demand.Result{Placements: []demand.PlacedPod{{Pod: pod("f"), On: demand.OnStandby, Node: node("i-1")}}},
		deadline.Add(time.Hour),
	)
	require.Equal(t, []string{"a", "b", "f"}, more[0].Pods)
	require.Equal(t, deadline, more[0].Deadline, "a later pod does not make the first wait longer")
	require.Equal(t, []string{"a", "b"}, held[0].Pods, "the argument is not changed")

	all := func(string) bool { return true }
	not := func(id string) func(string) bool { return func(s string) bool { return s != id } }
	require.Equal(
		t,
		[]demand.Reservation{{Machine: "i-1", Pods: []string{"b"}, Deadline: deadline}, held[1]},
		demand.Settle(held, not("a"), all, noon),
		"a pod that is bound or gone",
	)
	require.Equal(t, held[:1], demand.Settle(held, not("c"), all, noon), "nothing is left to wait for")
	require.Equal(t, held[1:], demand.Settle(held, all, not("i-1"), noon), "a machine that failed to start")
	require.Empty(t, demand.Settle(held, all, all, deadline), "the pods look for another machine")
}
