package agent_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// breakers is C27 and D28: five failed reports open the breaker of that RPC, and
// of no other; NotFound does not; probes close it.
func breakers(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	const rpc = `breaker_state{rpc="ReportDeploymentStatus"}`
	var all []proto.Message
	for n := range 8 {
		all = append(all, b.deployment(fmt.Sprintf("web-%d", n)))
	}
	b.want(append(all, b.sentinel("guard"))...)
	var calls atomic.Int64
	refuse := func(code connect.Code) {
		b.server.Set(controltest.Faults{Report: func(m proto.Message) error {
			if _, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); !ok {
				return nil
			}
			calls.Add(1)
			return connect.NewError(code, errors.New("no"))
		}})
	}
	refuse(connect.CodeNotFound)
	b.start()
	await.Eventually(b.t, "every report is answered", func() bool { return calls.Load() >= 8 })
	b.beats()
	require.Equal(b.t, "", b.metric(rpc), "it has never changed")
	require.Empty(b.t, b.server.Instances())

	refuse(connect.CodeUnavailable)
	b.agent.Periods.Pause = time.Hour
	b.start()
	await.Eventually(b.t, "it opens", func() bool { return b.metric(rpc) == "2" })
	before := int64(0)
	await.Eventually(b.t, "none is tried", func() bool {
		before = calls.Load()
		b.beats()
		return calls.Load() == before
	})
	require.Equal(b.t, "", b.metric(`breaker_state{rpc="Heartbeat"}`))
	await.Eventually(b.t, "other reports come through", func() bool {
		for _, m := range b.server.Reports() {
			if r, ok := m.(*ctrlv1.ReportSentinelStatusRequest); ok && r.GetHealth() == ctrlv1.Health_HEALTH_HEALTHY {
				return true
			}
		}
		return false
	})

	b.agent.Periods.Pause = 100 * time.Millisecond
	b.start()
	await.Eventually(b.t, "it opens again", func() bool { return b.metric(rpc) == "2" })
	b.server.Set(controltest.Faults{})
	await.Eventually(b.t, "it closes", func() bool { return b.metric(rpc) == "0" })
	for n := range 8 {
		await.Eventually(b.t, "everything is reported", func() bool { return b.running(fmt.Sprintf("web-%d", n)) })
	}
}

// queriesFail is C27 for point queries: while none is answered, the stream has the
// desired state.
func queriesFail(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	var all []proto.Message
	for n := range 6 {
		all = append(all, b.deployment(fmt.Sprintf("web-%d", n)))
	}
	b.want(all...)
	b.agent.Periods.Pause = time.Hour
	b.server.Set(controltest.Faults{Query: connect.CodeInternal})
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web-0") })
	b.beats()
	const rpc = `breaker_state{rpc="GetDesiredDeploymentState"}`
	require.Equal(b.t, "", b.metric(rpc), "Internal is about one row")
	b.server.Set(controltest.Faults{Query: connect.CodeUnavailable})
	await.Eventually(b.t, "it opens", func() bool { return b.metric(rpc) == "2" })
	queries := 0
	await.Eventually(b.t, "none is tried", func() bool {
		queries = b.server.Counts().Queries
		b.beats()
		return b.server.Counts().Queries == queries
	})
	b.kubectl("delete", "secret", "deploy-d-web-0", "-n", b.name)
	await.Eventually(b.t, "what is deleted comes back", func() bool { return b.exists("secret", "deploy-d-web-0") })
	require.Empty(b.t, b.deletes())
}

// crashLoop is C26: what crashes again and again is FAILED until it runs.
func crashLoop(b *bench) {
	b.want(b.deployment("web"), b.deployment("api"))
	b.start()
	await.Eventually(b.t, "both run", func() bool { return b.running("web") && b.running("api") })
	pod := b.server.Instances()["web"][0].GetK8SName()
	status := func(restarts int, ready bool, state string) {
		b.kubectl("patch", "pod", pod, "-n", b.name, "--subresource=status", "-p", fmt.Sprintf(`{"status":{
			"conditions":[{"type":"Ready","status":%[2]q},{"type":"ContainersReady","status":%[2]q}],
			"containerStatuses":[{"name":"deployment","image":"i","imageID":"","ready":%[3]t,"restartCount":%[1]d,"state":%[4]s}]}}`,
			restarts, map[bool]string{true: "True", false: "False"}[ready], ready, state))
	}
	is := func(want ctrlv1.ReportDeploymentStatusRequest_Update_Instance_Status) func() bool {
		return func() bool {
			instances := b.server.Instances()["web"]
			return len(instances) == 1 && instances[0].GetStatus() == want
		}
	}
	status(1, false, `{"waiting":{"reason":"CrashLoopBackOff"}}`)
	await.Eventually(b.t, "one restart is none", is(ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_PENDING))
	status(3, false, `{"waiting":{"reason":"CrashLoopBackOff"}}`)
	await.Eventually(b.t, "three are a failure", is(ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_FAILED))
	failed := b.server.Instances()["web"][0]
	require.EqualValues(b.t, 3, failed.GetRestarts())
	require.Contains(b.t, failed.GetReason(), "container deployment was restarted 3 times")
	status(3, true, `{"running":{"startedAt":`+strconv.Quote(time.Now().UTC().Format(time.RFC3339))+`}}`)
	await.Eventually(b.t, "it runs again", is(ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING))
	require.True(b.t, b.running("api"))
}
