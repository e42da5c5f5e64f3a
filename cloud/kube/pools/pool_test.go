package pools //nolint:testpackage // with the helpers of the tests that see the loop from inside

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

func TestMachinesThatComeAreSupplyBesideTheRoom(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := web()
	p.Spec.Size, p.Plan.Counts = 5, cloud.Counts{Coming: 2, Total: 3}
	supply := p.Supply(nil, now)
	require.Equal(t, 2, supply.Coming)
	require.Equal(t, 2, supply.MaxLaunches)
	p.Memory.Learn([]cloud.Result{{Err: &cloud.RateLimitError{RetryAfter: time.Minute}}}, now) // since the plan was made
	supply = p.Supply(nil, now)
	require.Equal(t, 2, supply.Coming)
	require.Zero(t, supply.MaxLaunches)
	require.Contains(t, supply.Limit, "Throttled")
}

func TestAMachineWithoutANodeMayBeAboutToJoin(t *testing.T) {
	t.Parallel()
	p := web()
	p.Spec.Scope = cloud.Scope{Domain: string(domain), Cluster: "c", PoolUID: "u"}
	require.False(t, p.Joining())
	joined := cloud.Instance{ID: "i-1", Tags: p.Spec.Scope.StateTags(cloud.StateRunning, "node")}
	p.Memory.Take([]cloud.Instance{joined}, started)
	require.False(t, p.Joining())
	p.Memory.Take([]cloud.Instance{joined, {ID: "i-2"}}, started)
	require.True(t, p.Joining())
}

// TestAttestedMachinesAreTheFirstChoice also where others are on standby for longer.
func TestAttestedMachinesAreTheFirstChoice(t *testing.T) {
	t.Parallel()
	p := web()
	var standby []nodes.View
	for name, attestation := range map[string]cloud.Attestation{"none": "", "partly": cloud.AttestedPartly, "all": cloud.AttestedReady} {
		standby = append(standby, nodes.View{
			Status: cloud.NodeStatus{Name: name, Attestation: attestation, Since: started},
			Site:   demand.Node{Name: name, Labels: map[string]string{}},
		})
	}
	standby[0].Status.Since, standby[1].Status.Since = started.Add(-time.Hour), started.Add(time.Hour)
	var order []string
	for _, n := range p.Supply(standby, time.Now()).Standby {
		order = append(order, n.Name)
	}
	require.Equal(t, []string{"all", "partly", "none"}, order)
}
