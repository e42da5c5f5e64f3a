package regions_test

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// at returns where the log of eu-1 stands.
func (w *world) at() statesync.Position {
	w.t.Helper()
	page, err := w.database.Log.Read(w.t.Context(), "eu-1", 0, 1)
	require.NoError(w.t, err)
	return page.Position
}

func TestOneFaultyAgentDoesNotMakeAllListAgain(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		before := w.at()
		beat := func(m *ctrlv1.HeartbeatRequest) error {
			_, err := w.client("Bearer "+bearer, "eu-1", "X-Krane-Cell", "cell").Heartbeat(w.t.Context(), connect.NewRequest(m))
			return err
		}
		for sequence := range uint64(5) {
			require.NoError(
				w.t,
				beat(&ctrlv1.HeartbeatRequest{AgentEpoch: 2, Sequence: 10 + sequence, Epoch: before.Epoch, ObservedVersion: 1 << 50}),
			)
		}
		require.NoError(
			w.t,
			beat(&ctrlv1.HeartbeatRequest{AgentEpoch: 1, Sequence: 99, Epoch: before.Epoch, ObservedVersion: 1 << 51}),
			"too old to be stored",
		)
		require.NoError(
			w.t,
			beat(&ctrlv1.HeartbeatRequest{AgentEpoch: 3, Sequence: 1, Epoch: before.Epoch, ObservedVersion: 9, Mark: "9-invented"}),
		)
		require.Equal(w.t, before, w.at())
		// A mark that the log gave and has lost is a proof.
		_, err := w.database.Log.DB.ExecContext(w.t.Context(), `UPDATE trueup_marks SET mark = 7 WHERE scope = 'eu-1'`)
		require.NoError(w.t, err)
		require.NoError(
			w.t,
			beat(
				&ctrlv1.HeartbeatRequest{AgentEpoch: 3, Sequence: 2, Epoch: before.Epoch, ObservedVersion: before.Head, Mark: before.Mark.String()},
			),
		)
		require.NotEqual(w.t, before.Epoch, w.at().Epoch)
	})
}

func TestAStreamIsResumedInItsOwnHistoryOnly(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		var synced *ctrlv1.Synced
		require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true}, func(m *ctrlv1.DeploymentState) bool {
			synced = m.GetSynced()
			return synced != nil
		}))
		require.Equal(w.t, w.at().Mark.String(), synced.GetMark())
		resume := &ctrlv1.WatchDeploymentsRequest{
			Markers:         true,
			VersionLastSeen: synced.GetVersion(),
			Epoch:           synced.GetEpoch(),
			Mark:            synced.GetMark(),
		}
		var beat *ctrlv1.Bookmark
		require.NoError(w.t, w.watch(resume, func(m *ctrlv1.DeploymentState) bool {
			beat = m.GetBookmark()
			return beat != nil
		}))
		require.Equal(w.t, synced.GetMark(), beat.GetMark())
		resume.Mark = "1-another"
		err := w.watch(resume, func(*ctrlv1.DeploymentState) bool { return false })
		require.Equal(w.t, "resync-required", reason(err))
		resume.Mark = "no mark"
		require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(w.watch(resume, func(*ctrlv1.DeploymentState) bool { return false })))
	})
}

// TestWhatNoDatabaseStoresIsRefused has numbers past 2^63, and strings that are no
// UTF-8 or have a NUL.
func TestWhatNoDatabaseStoresIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		update := &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &ctrlv1.ReportDeploymentStatusRequest_Update{K8SName: "one"}}
		const large = math.MaxInt64 + 1
		agent := w.agent()
		for name, call := range map[string]func(ctx context.Context) error{
			"agent_epoch": func(ctx context.Context) error {
				_, err := agent.ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{Change: update, AgentEpoch: math.MaxInt64/2 + 1, Sequence: 1}))
				return err
			},
			"sequence": func(ctx context.Context) error {
				_, err := agent.ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "gate", AgentEpoch: 1, Sequence: large}))
				return err
			},
			"session": func(ctx context.Context) error {
				_, err := agent.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: large, Epoch: "e"}))
				return err
			},
			"epoch": func(ctx context.Context) error {
				_, err := agent.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: 1, Epoch: "e\x00"}))
				return err
			},
			"k8s_name": func(ctx context.Context) error {
				_, err := agent.ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "gate\x00"}))
				return err
			},
			"address": func(ctx context.Context) error {
				_, err := agent.ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{
					Update: &ctrlv1.ReportDeploymentStatusRequest_Update{K8SName: "one", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{{K8SName: "a", Address: "\x00"}}},
				}}))
				return err
			},
			"deployment_id": func(ctx context.Context) error {
				_, err := agent.GetDesiredDeploymentState(ctx, connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "d\x00"}))
				return err
			},
		} {
			err := call(ctx)
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s: %v", name, err)
			require.ErrorContains(w.t, err, name)
		}
		for header, value := range map[string]string{"X-Krane-Region": "eu-\xff", "X-Krane-Cell": "cell-\xff"} {
			headers := []string{"X-Krane-Region", "eu-1", "X-Krane-Cell", ""}
			for n, name := range headers {
				if name == header {
					headers[n+1] = value
				}
			}
			_, err := w.client("Bearer "+bearer, headers[1], headers[2:]...).Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s: %v", header, err)
			require.ErrorContains(w.t, err, header)
		}
		_, err := agent.ReportDeploymentStatus(
			ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{Change: update, AgentEpoch: math.MaxInt64 / 2, Sequence: 1}),
		)
		require.NoError(w.t, err, "no epoch was given yet")
		claimed, err := agent.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
		require.NoError(w.t, err)
		require.Equal(w.t, uint64(math.MaxInt64/2+1), claimed.Msg.GetAgentEpoch())
		claimed, err = agent.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
		require.NoError(w.t, err)
		require.Equal(w.t, uint64(math.MaxInt64/2+2), claimed.Msg.GetAgentEpoch())
		_, err = w.store.PutDeployment(ctx, eu, "d_2", regions.Wanted{State: "running", Spec: deployment("two\u0000", "two:1")})
		require.ErrorIs(w.t, err, regions.ErrInvalid)
	})
}

func TestATokenDoesNotTellWhichRegionsThereAre(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		answer := func(region string) string {
			_, err := w.client("Bearer "+w.tokens[us], region).Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
			return err.Error()
		}
		require.Equal(w.t, answer("mars-1"), answer("eu-1"))
		require.True(w.t, strings.HasPrefix(answer("eu-1"), "permission_denied"), answer("eu-1"))
	})
}

func TestARegisteredNameIsNotReplaced(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		_, _, err := w.store.PutRegion(w.t.Context(), regions.Region{ID: "reg_eu_2", Name: "eu-1", Platform: "aws"}, true)
		require.ErrorIs(w.t, err, regions.ErrRegistered)
		status, _ := w.send(http.MethodPost, service+"Heartbeat", "application/json", []byte(`{}`))
		require.Equal(w.t, http.StatusOK, status, "the region stays what it was")
	})
}

// TestAStreamEndsAsOneThatMayBeResumedWhileTheDatabaseCannotBeRead has a stream asked for
// while a table is away: unavailable, and never internal.
func TestAStreamEndsAsOneThatMayBeResumedWhileTheDatabaseCannotBeRead(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		code := func() connect.Code {
			stream, err := w.agent().WatchDeployments(ctx, connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
			require.NoError(w.t, err)
			defer stream.Close()
			for stream.Receive() {
			}
			return connect.CodeOf(stream.Err())
		}
		for _, table := range []string{"regions", "region_log"} {
			w.sql(`ALTER TABLE ` + table + ` RENAME TO away`)
			require.Equal(w.t, connect.CodeUnavailable, code(), table)
			_, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
			require.Equal(w.t, connect.CodeInternal, connect.CodeOf(err))
			w.sql(`ALTER TABLE away RENAME TO ` + table)
		}
	})
}
