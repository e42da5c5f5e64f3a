package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// wire is the way to the API server. Cut, it is what a stopped server is: open
// connections end, and new ones are refused.
type wire struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, conn := range w.conns {
		_ = conn.Close() // it may be closed already
	}
	w.conns = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = false
}

// lag returns by how many versions each collection is behind the last committed version:
// deployments, sentinels, policies.
func (b *bench) lag() string {
	b.t.Helper()
	var all []string
	for _, collection := range []string{"deployments", "sentinels", "policies"} {
		all = append(all, b.metric(fmt.Sprintf("stream_lag_versions{resource_type=%q}", collection)))
	}
	return strings.Join(all, " ")
}

// fails waits until the operation has failed for each collection.
func (b *bench) fails(operation string, collections ...string) {
	b.t.Helper()
	for _, collection := range collections {
		prefix := fmt.Sprintf("reconcile_operations_total{operation=%q,resource_type=%q,result=\"error\"}", operation, collection)
		before := b.metric(prefix)
		await.Eventually(b.t, operation+" of "+collection+" fails", func() bool { return b.metric(prefix) != before })
	}
}

// kubernetesOutage is D19: an object that the API server does not accept is not
// acknowledged, and an object that cannot be read does not count as deleted.
func kubernetesOutage(b *bench) {
	b.agent.Periods.Retry.Retries = 0 // a short outage here is many of its retries
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	acknowledged := func(below uint64) func() bool {
		return func() bool {
			page, err := b.server.Log.Read(b.t.Context(), b.name, 0, 1)
			require.NoError(b.t, err)
			at := b.server.Acknowledged()
			return at.Epoch == page.Epoch && at.Mark.Version > 0 && at.Version+below == page.Head
		}
	}
	b.want(b.deployment("web"), b.deployment("api"), b.sentinel("guard"), b.policy("egress"), b.policy("ingress"))
	b.start()
	await.Eventually(
		b.t,
		"all of it runs",
		func() bool { return b.running("web") && b.running("api") && b.count("ciliumnetworkpolicies") == 5 },
	)
	await.Eventually(b.t, "all of it is acknowledged", func() bool { return b.lag() == "0 0 0" && b.ready() })
	await.Eventually(b.t, "heartbeats report it", acknowledged(0))

	b.wire.cut()
	web, guard := b.deployment("web"), b.sentinel("guard")
	web.Image, guard.Image = "registry.example.com/web:2", "registry.example.com/sentinel:2"
	changes := []proto.Message{b.stopped("api"), web, guard, b.deployment("late"), b.gonePolicy("ingress")}
	b.want(changes...)
	// Up to five versions are not applied, from the first of each collection on.
	await.Eventually(b.t, "they are received", func() bool { return b.lag() == "5 3 1" })
	b.fails("apply", "deployments", "sentinels")
	b.fails("delete", "deployments", "policies")
	require.Equal(b.t, "5 3 1", b.lag())
	await.Eventually(b.t, "heartbeats report it", acknowledged(5))
	require.False(b.t, b.gone("api"))

	// The next process has not observed the cluster.
	b.agent.Periods.Settle = time.Millisecond
	b.start()
	b.synced(1)
	b.fails("apply", "deployments", "sentinels", "policies")
	b.fails("delete", "deployments", "policies")
	await.Eventually(b.t, "no version is acknowledged", func() bool { return b.lag() == "5 3 7" })
	await.Eventually(b.t, "watches give way to lists", func() bool { return b.net.Count("list") > 0 })
	require.False(b.t, b.ready())
	require.False(b.t, b.gone("api"))
	require.Len(b.t, b.server.Instances()["web"], 1)

	b.wire.mend()
	await.Eventually(b.t, "all is acknowledged", func() bool { return b.lag() == "0 0 0" && b.ready() })
	await.Eventually(b.t, "heartbeats report it", acknowledged(0))
	await.Eventually(b.t, "the new one runs", func() bool { return b.running("late") && b.running("web") })
	await.Eventually(b.t, "the other is gone, and reported so", func() bool { return b.server.Instances()["api"] == nil && b.gone("api") })
	require.Equal(
		b.t,
		web.GetImage(),
		b.kubectl("get", "replicaset", "web", "-n", b.name, "-o", "jsonpath={.spec.template.spec.containers[0].image}"),
	)
	require.Equal(
		b.t,
		guard.GetImage(),
		b.kubectl("get", "deployment", "guard", "-n", b.name, "-o", "jsonpath={.spec.template.spec.containers[0].image}"),
	)
	require.False(b.t, b.exists("replicaset", "api"))
	require.False(b.t, b.exists("ciliumnetworkpolicy", "ingress"))
	for _, deletion := range b.deletes() {
		require.Regexp(b.t, "api|ingress$", deletion, "of what was to go")
	}
}

// controlOutage is D18: every change that is committed or happens while the control
// plane has no database is applied and reported afterwards.
func controlOutage(b *bench) {
	b.want(b.deployment("web"), b.deployment("api"), b.policy("egress"))
	b.start()
	await.Eventually(
		b.t,
		"all of it runs",
		func() bool { return b.running("web") && b.running("api") && b.exists("ciliumnetworkpolicy", "egress") },
	)
	before := b.server.Instances()["web"][0].GetK8SName()
	b.server.Set(
		controltest.Faults{
			Internal: true,
			NotFound: true,
			Report:   func(proto.Message) error { return connect.NewError(connect.CodeInternal, errors.New("database")) },
		},
	)
	b.want(b.stopped("api"), b.deployment("late"), b.gonePolicy("egress"))
	b.kubectl("delete", "pod", before, "-n", b.name)
	await.Eventually(b.t, "it is tried", func() bool {
		return b.metric(`report_status_duration_seconds_count{resource_type="deployments",result="error"}`) != "" &&
			b.metric(`stream_connections_total{resource_type="deployments",status="failed"}`) != "" &&
			b.metric(`stream_connections_total{resource_type="policies",status="failed"}`) != ""
	})
	require.True(b.t, b.exists("replicaset", "api"))
	require.Empty(b.t, b.deletes())
	b.server.Set(controltest.Faults{})
	await.Eventually(b.t, "what was committed is applied", func() bool {
		return b.running("late") && b.server.Instances()["api"] == nil && !b.exists("ciliumnetworkpolicy", "egress")
	})
	await.Eventually(
		b.t,
		"what happened is reported",
		func() bool { return b.running("web") && b.server.Instances()["web"][0].GetK8SName() != before },
	)
}
