package agent_test

import (
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// many returns the names of eight deployments.
func many() (names []string) {
	for n := range 8 {
		names = append(names, fmt.Sprintf("web-%d", n))
	}
	return names
}

// breakers is C27 and D28: five failed reports open the breaker of that RPC, and
// of no other; NotFound does not; probes close it.
func breakers(b *bench) {
	const rpc, method = `breaker_state{rpc="ReportDeploymentStatus"}`, "ReportDeploymentStatus"
	b.want(all(many()...)...)
	b.liar.Set(controltest.Faults{Refuse: refuse{no(method, connect.CodeNotFound)}})
	b.start()
	b.eventually("every report is answered", func() bool { return b.liar.Calls(method) >= 9 })
	b.pause(5 * time.Minute)
	require.Empty(b, b.metric(rpc), "it has never changed")
	require.Empty(b, b.instances("web-0"))

	b.liar.Set(controltest.Faults{Refuse: refuse{no(method, connect.CodeUnavailable)}})
	b.agent.Periods.Pause = time.Hour
	b.start()
	b.eventually("it opens", func() bool { return b.metric(rpc) == "2" })
	b.pause(time.Minute)
	before := b.liar.Calls(method)
	b.pause(30 * time.Minute)
	require.Equal(b, before, b.liar.Calls(method), "none is tried")
	require.Empty(b, b.metric(`breaker_state{rpc="Heartbeat"}`))
	_, stored := b.stored()
	for _, each := range stored {
		if each.Collection == "sentinels" {
			require.Equal(b, "healthy", each.Health, "other reports come through")
		}
	}

	b.agent.Periods.Pause = 0
	b.start()
	b.eventually("it opens again", func() bool { return b.metric(rpc) == "2" })
	b.liar.Set(controltest.Faults{})
	b.eventually("it closes", func() bool { return b.metric(rpc) == "0" })
	b.eventually("everything is reported", func() bool { return b.running(many()...) })
}

// queriesFail is C27 for point queries: while none is answered, the stream has the
// desired state.
func queriesFail(b *bench) {
	const rpc, method = `breaker_state{rpc="GetDesiredDeploymentState"}`, "GetDesiredDeploymentState"
	b.want(all(many()...)...)
	b.agent.Periods.Pause = 10 * time.Hour
	b.liar.Set(controltest.Faults{Refuse: refuse{no("Get", connect.CodeInternal)}})
	b.start()
	b.eventually("it runs", func() bool { return b.running("web-0") })
	b.pause(5 * time.Minute)
	require.Empty(b, b.metric(rpc), "Internal is about one row")
	b.liar.Set(controltest.Faults{Refuse: refuse{no("Get", connect.CodeUnavailable)}})
	b.eventually("it opens", func() bool { return b.metric(rpc) == "2" })
	b.pause(time.Minute)
	queries := b.liar.Calls(method)
	b.pause(20 * time.Minute)
	require.Equal(b, queries, b.liar.Calls(method), "none is tried")
	b.person(func(c simtest.Client) error { return c.Delete("secrets", namespace, "deploy-d-web-0") })
	b.eventually("what is deleted comes back", func() bool { return b.exists("secrets", "deploy-d-web-0") })
	require.Empty(b, b.deletes())
	b.liar.Set(controltest.Faults{})
}

// crashLoop is C26: what crashes again and again is FAILED until it runs.
func crashLoop(b *bench) {
	b.want(all("api")...)
	b.start()
	b.eventually("both run", func() bool { return b.running("web", "api") })
	pod := b.instances("web")[0].Name
	status := func(restarts int, ready bool, state map[string]any) {
		b.person(func(c simtest.Client) error {
			return c.Update("pods", namespace, pod, func(o simtest.Object) {
				is := map[bool]string{true: "True", false: "False"}[ready]
				o.Set([]any{
					map[string]any{"type": "Ready", "status": is}, map[string]any{"type": "ContainersReady", "status": is},
				}, "status", "conditions")
				o.Set([]any{map[string]any{
					"name": "deployment", "image": "i", "imageID": "", "ready": ready, "restartCount": restarts, "state": state,
				}}, "status", "containerStatuses")
			})
		})
	}
	is := func(want string) func() bool {
		return func() bool {
			all := b.instances("web")
			return len(all) == 1 && all[0].Status == want
		}
	}
	running := map[string]any{"running": map[string]any{"startedAt": time.Now().UTC().Format(time.RFC3339)}}
	waiting := map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}}
	status(0, true, running)
	b.pause(time.Minute)
	status(1, false, waiting)
	b.eventually("one restart is none", is("pending"))
	status(3, false, waiting)
	b.eventually("three are a failure", is("failed"))
	failed := b.instances("web")[0]
	require.EqualValues(b, 3, failed.Restarts)
	require.Contains(b, failed.Reason, "container deployment was restarted 3 times")
	status(3, true, running)
	b.within(15*time.Minute, "it runs again", is("running"))
	require.True(b, b.running("api"))
}
