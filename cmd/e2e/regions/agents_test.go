package regions_test

import (
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// secondCell is C15: the agent of a second cell is refused in everything, and the first
// goes on.
func secondCell(b *bench, _ database) {
	t := b.t
	first, second := b.worker(), b.worker()
	first.agent.Config.Cluster.CellID, second.agent.Config.Cluster.CellID = "a", "b"
	b.want("1", "web")
	first.start()
	b.running("1", "web")
	second.start()
	await.Eventually(
		t,
		"the second reports why it holds",
		func() bool { return second.metric(`deletions_held{reason="region_claimed"}`) == 1 },
	)

	client := control.New(second.agent.Config, nil, nil)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"heartbeat": func() error {
			_, err := client.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
			return err
		},
		"deployment": func() error {
			_, err := client.GetDesiredDeploymentState(ctx, connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "d_web"}))
			return err
		},
		"sentinel": func() error {
			_, err := client.GetDesiredSentinelState(ctx, connect.NewRequest(&ctrlv1.GetDesiredSentinelStateRequest{SentinelId: "s"}))
			return err
		},
		"policy": func() error {
			_, err := client.GetDesiredCiliumNetworkPolicyState(ctx, connect.NewRequest(&ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest{CiliumNetworkPolicyId: "p"}))
			return err
		},
		"report": func() error {
			_, err := client.ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
				Change: &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: "web"}},
			}))
			return err
		},
		"sentinel report": func() error {
			_, err := client.ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "s"}))
			return err
		},
		"stream": func() error {
			watch, err := client.WatchDeployments(ctx, connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
			if err != nil {
				return err
			}
			defer watch.Close()
			require.False(t, watch.Receive())
			return watch.Err()
		},
	} {
		err := call()
		require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err), name)
		require.Equal(t, "region-claimed", stream.Reason(err), name)
	}

	b.want("1", "api")
	b.running("1", "web", "api")
	b.archive("web")
	await.Eventually(t, "the first goes on", func() bool { return b.gone("web") })
	status, _ := second.ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Empty(t, second.net.Writes())
	require.Zero(t, first.metric(`deletions_held{reason="region_claimed"}`))
	b.running("1", "api")
}

// restarted is C24 and C30 after a restart: the agent claims an epoch again, its reports
// count, and nothing is written again.
func restarted(b *bench, _ database) {
	t := b.t
	w := b.worker()
	b.want("1", "web", "api")
	w.start()
	b.running("1", "web", "api")
	w.quiet()
	for range 2 {
		region, err := b.desired().Region(t.Context(), b.id)
		require.NoError(t, err)
		before := reported(b, "web")
		w.start()
		await.Eventually(t, "an epoch is claimed", func() bool {
			now, err := b.desired().Region(t.Context(), b.id)
			require.NoError(t, err)
			return now.AgentEpoch == region.AgentEpoch+1
		})
		await.Eventually(t, "it reports", func() bool { return reported(b, "web").After(before) && reported(b, "api").After(before) })
		await.Eventually(t, "it is ready", func() bool {
			status, _ := w.ask("/readyz")
			return status == http.StatusOK
		})
		w.quiet()
		w.net.NoWrites(t)
		require.True(t, b.runs("1", "web", "api"))
	}
	b.want("2", "web")
	b.archive("api")
	b.running("2", "web")
	await.Eventually(t, "api goes", func() bool { return b.gone("api") })
}

// reported returns when the instance of a deployment was reported last.
func reported(b *bench, name string) (at time.Time) {
	for _, instance := range b.stored(name).Instances {
		at = instance.ReportedAt
	}
	return at
}

// rotated is D17 on the control plane as it is: without an overlap the streams end, and
// with the new token the agent goes on.
func rotated(b *bench, _ database) {
	t := b.t
	w := b.worker()
	b.want("1", "web", "api")
	w.start()
	b.running("1", "web", "api")
	w.quiet()
	writes := len(w.net.Writes())
	var token string
	w.refused("unauthenticated", func() {
		token = b.admin(http.MethodPost, b.region+"/rotate-token", map[string]any{"overlap_seconds": 0}).Token
		await.Eventually(t, "the streams end", func() bool { return b.streams() == 0 })
	})
	require.Len(t, w.net.Writes(), writes)
	b.want("2", "web")
	b.archive("api")
	require.NotNil(t, b.replicaSet("api"))
	b.useToken(token)
	b.running("2", "web")
	await.Eventually(t, "api goes", func() bool { return b.gone("api") })
	await.Eventually(t, "the streams are back", func() bool { return b.streams() == len(collections()) })
}
