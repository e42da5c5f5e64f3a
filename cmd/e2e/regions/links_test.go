package regions_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// twoAgents is D24: two agents of one region and cell, as while one replaces the other.
func twoAgents(b *bench, _ database) {
	t := b.t
	first, second := b.worker(), b.worker()
	b.want("1", "web", "api")
	first.start()
	second.start()
	b.running("1", "web", "api")
	quiet := func() {
		for range 3 {
			first.quiet()
			second.quiet()
		}
	}
	quiet()
	require.Empty(t, append(first.deletes(), second.deletes()...))
	b.rests()
	require.InDelta(t, 1, first.metric("superseded")+second.metric("superseded"), 0, "one reports, the other says that it does not")
	uids := b.uids("web")
	b.want("2", "web")
	b.want("1", "late")
	b.archive("api")
	b.running("2", "web")
	b.running("1", "late")
	await.Eventually(t, "what is archived goes", func() bool { return b.gone("api") })
	quiet()
	for _, name := range append(first.deletes(), second.deletes()...) {
		require.Contains(t, name, "api")
	}
	require.Equal(t, uids, b.uids("web"))
	require.True(t, b.runs("2", "web"))
	b.rests()
	holder, other := first, second
	if first.metric("superseded") == 1 {
		holder, other = second, first
	}
	holder.stop()
	// As if it were silent for as long as it takes.
	require.NoError(t, b.store.Database.Write(t.Context(), func(tx *controlplanetest.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE regions SET epoch_heard_at = 0 WHERE id = ?`, b.id)
		return err
	}))
	await.Eventually(t, "the other takes over", func() bool { return other.metric("superseded") == 0 })
	b.want("3", "web")
	b.archive("late")
	b.running("3", "web")
	await.Eventually(t, "the one that stays goes on", func() bool { return b.gone("late") })
}

// podsChange is D20: instances that a report lacks go.
func podsChange(b *bench, _ database) {
	t := b.t
	w := b.worker()
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	for range 3 {
		before := b.stored("web").Instances[0].Name
		require.NoError(t, b.kube.CoreV1().Pods(b.name).Delete(t.Context(), before, metav1.DeleteOptions{}))
		await.Eventually(t, "another pod is the only instance", func() bool {
			instances := b.stored("web").Instances
			return len(instances) == 1 && instances[0].Name != before && instances[0].Status == "running"
		})
	}
}

// authMatrix is D5: each call without a credential, with one of another kind, with a
// wrong one, without a region, and about what there is not.
func authMatrix(b *bench, _ database) {
	t := b.t
	b.useToken(bearer)
	ask := func(header, region string) map[string]error {
		client := ctrlv1connect.NewClusterServiceClient(
			http.DefaultClient,
			"http://"+b.proxy.Listen,
			connect.WithInterceptors(headers(map[string]string{"Authorization": header, "X-Krane-Region": region})),
		)
		return map[string]error{
			"deployment": second(
				client.GetDesiredDeploymentState(t.Context(), connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "none"})),
			),
			"sentinel": second(
				client.GetDesiredSentinelState(t.Context(), connect.NewRequest(&ctrlv1.GetDesiredSentinelStateRequest{SentinelId: "none"})),
			),
			"policy": second(
				client.GetDesiredCiliumNetworkPolicyState(
					t.Context(),
					connect.NewRequest(&ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest{CiliumNetworkPolicyId: "none"}),
				),
			),
			"report": second(client.ReportDeploymentStatus(t.Context(), connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
				Change: &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: "none"}},
			}))),
			"sentinel report": second(
				client.ReportSentinelStatus(t.Context(), connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "none"})),
			),
		}
	}
	for _, header := range []string{"", "Basic dXNlcjpwYXNzd29yZA==", "Bearer wrong"} {
		for call, err := range ask(header, b.name) {
			require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err), "%s with %q: %v", call, header, err)
		}
	}
	for call, err := range ask("Bearer "+bearer, "") {
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "%s without a region: %v", call, err)
	}
	for call, err := range ask("Bearer "+bearer, b.name) {
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(err), "%s about nothing: %v", call, err)
	}
}

func second[T any](_ T, err error) error { return err }

// headers sets the headers of each call, except the empty ones.
func headers(all map[string]string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			for name, value := range all {
				if value != "" {
					request.Header().Set(name, value)
				}
			}
			return next(ctx, request)
		}
	}
}

// idleProxy is D27: a proxy closes idle connections, and the connections of quiet streams
// stay open. The end of a silent connection measures the time.
func idleProxy(b *bench, _ database) {
	t := b.t
	b.balancer.CloseIdle(5 * time.Second)
	w := b.worker()
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	await.Eventually(t, "the streams are open", func() bool { return b.streams() == len(collections()) })
	for range 3 {
		silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.proxy.Listen)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, silent)
		require.NoError(t, err, "the proxy closes it")
		require.NoError(t, silent.Close())
	}
	for _, collection := range collections() {
		for _, status := range []string{"failed", "ended", "resync"} {
			require.Zero(t, w.metric(`stream_connections_total{resource_type="`+collection+`",status="`+status+`"}`), "%s, %s", collection, status)
		}
	}
	require.InDelta(t, 1, w.lists(), 0)
	b.want("2", "web")
	b.running("2", "web")
}

// breakers is D28: after five reports that failed none is sent for a while, then one
// probe, and after two that succeed all are.
func breakers(b *bench, _ database) {
	t := b.t
	const state = `breaker_state{rpc="ReportDeploymentStatus"}`
	w := b.worker()
	names := deployments(8)
	b.want("1", names...)
	var reports atomic.Int64
	fault := func(r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/ReportDeploymentStatus") {
			return false
		}
		reports.Add(1)
		return true
	}
	b.fault.Store(&fault)
	w.agent.Periods.Pause = time.Hour
	w.start()
	await.Eventually(t, "it opens", func() bool { return w.metric(state) == 2 })
	await.Eventually(t, "none is sent", func() bool {
		before := reports.Load()
		b.beats()
		return reports.Load() == before
	})
	require.GreaterOrEqual(t, reports.Load(), int64(5))
	await.Eventually(t, "the rest goes on", func() bool { return b.all(len(names)) })

	w.agent.Periods.Pause = 2 * time.Second
	w.start()
	await.Eventually(t, "it opens again", func() bool { return w.metric(state) == 2 })
	b.fault.Store(nil)
	b.running("1", names...)
	await.Eventually(t, "it is closed", func() bool { return w.metric(state) == 0 })
}

// databaseOutage is D18: the database is away for a while. Workloads stay, and afterwards
// no change is missing.
func databaseOutage(b *bench, _ database) {
	t := b.t
	server := pgtest.Start(t, pgtest.Options{})
	b.kill()
	require.NoError(t, b.desired().Database.Close())
	b.open(server.Database(t))
	b.replica()
	b.useToken(b.admin(http.MethodPut, b.region, map[string]any{"name": b.name, "platform": "test"}).Token)
	w := b.worker()
	names := deployments(7)
	b.want("1", names...)
	w.start()
	b.running("1", names...)
	w.quiet()
	writes := len(w.net.Writes())
	server.Kill()
	began := time.Now()
	await.Eventually(t, "all calls fail for some seconds", func() bool { return time.Since(began) > 5*time.Second })
	require.Len(t, w.net.Writes(), writes, "while there is no database")
	require.NoError(t, server.Start(t.Context()))
	b.want("2", names[0])
	b.want("1", "late")
	b.archive(names[1])
	b.running("2", names[0])
	b.running("1", append(names[2:], "late")...)
	await.Eventually(t, "what is archived goes", func() bool { return b.gone(names[1]) })
	w.quiet()
	for _, name := range w.deletes() {
		require.Contains(t, name, names[1])
	}
}
