package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// refusal is how the control plane refuses an epoch.
func refusal(reason string) error {
	err := connect.NewError(connect.CodeFailedPrecondition, errors.New("no"))
	if detail, wrong := connect.NewErrorDetail(&ctrlv1.ErrorDetail{Reason: reason}); wrong == nil {
		err.AddDetail(detail)
	}
	return err
}

func logged(log *logtest.Log) []string { return strings.Split(strings.TrimSpace(log.String()), "\n") }

// epochs is a control plane that answers heartbeats: with the error, or with the epoch.
type epochs struct {
	ctrlv1connect.UnimplementedClusterServiceHandler

	err   error
	epoch uint64
	last  *ctrlv1.HeartbeatRequest
}

func (e *epochs) Heartbeat(
	_ context.Context,
	r *connect.Request[ctrlv1.HeartbeatRequest],
) (*connect.Response[ctrlv1.HeartbeatResponse], error) {
	e.last = r.Msg
	if e.err != nil {
		return nil, e.err
	}
	return connect.NewResponse(&ctrlv1.HeartbeatResponse{AgentEpoch: e.epoch}), nil
}

func TestAnAgentThatIsSupersededYieldsUntilTheOtherIsSilent(t *testing.T) {
	t.Parallel()
	control := &epochs{epoch: 1}
	mux := http.NewServeMux()
	mux.Handle(ctrlv1connect.NewClusterServiceHandler(control))
	server := httptest.NewServer(mux)
	defer server.Close()
	var log logtest.Log
	reports := agent.NewReports(
		ctrlv1connect.NewClusterServiceClient(server.Client(), server.URL),
		slog.New(slog.NewTextHandler(&log, nil)),
		time.Hour,
	)
	superseded := func() float64 {
		families, err := reports.Registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "unkey_krane_superseded" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	key := statesync.Key{Collection: "deployments", ID: "d"}
	asked := func() bool {
		asked, err := reports.Send(t.Context(), key, "runs", nil)
		require.NoError(t, err)
		return asked
	}

	require.NoError(t, reports.Heartbeat(t.Context()))
	require.True(t, control.last.GetClaim())
	require.False(t, control.last.GetYield(), "a start after a crash reports at once")
	require.True(t, asked())
	require.NoError(t, reports.Heartbeat(t.Context()))
	require.False(t, control.last.GetClaim())
	require.Equal(t, uint64(1), control.last.GetAgentEpoch())

	control.err = refusal("superseded")
	require.Error(t, reports.Heartbeat(t.Context()))
	require.Equal(t, float64(1), superseded())
	require.Zero(t, reports.Renewed, "it leaves the epoch to the other")

	control.err = refusal("epoch-held")
	for range 3 {
		require.NoError(t, reports.Heartbeat(t.Context()), "it waits")
		require.True(t, control.last.GetClaim())
		require.True(t, control.last.GetYield())
		require.Zero(t, control.last.GetAgentEpoch())
		require.False(t, asked(), "nothing is to be reported again")
	}
	require.NotContains(t, log.String(), "no contact", "it was answered")

	control.err, control.epoch = nil, 3
	require.NoError(t, reports.Heartbeat(t.Context()))
	require.True(t, control.last.GetYield())
	require.Zero(t, superseded())
	require.True(t, asked(), "the other may have reported something else")
	require.Len(t, logged(&log), 2, "one line for the begin, one for the end")
	require.Contains(t, logged(&log)[0], "agent_epoch=1", "the one that it had")
	require.Contains(t, logged(&log)[1], "agent_epoch=3")

	// A restored database is another matter.
	control.err = refusal("stale-epoch")
	require.Error(t, reports.Heartbeat(t.Context()))
	require.Equal(t, 1, reports.Renewed)
	require.Error(t, reports.Heartbeat(t.Context()))
	require.Equal(t, 1, reports.Renewed, "a claim that is refused, too, waits for the next one")
	control.err = nil
	require.NoError(t, reports.Heartbeat(t.Context()))
	require.True(t, control.last.GetClaim())
	require.False(t, control.last.GetYield())
	require.True(t, asked(), "it may have given the same number, and lack the report")
}

func TestAnAnswerWithoutAnEpochEndsNoClaim(t *testing.T) {
	t.Parallel()
	control := &epochs{}
	mux := http.NewServeMux()
	mux.Handle(ctrlv1connect.NewClusterServiceHandler(control))
	server := httptest.NewServer(mux)
	defer server.Close()
	reports := agent.NewReports(
		ctrlv1connect.NewClusterServiceClient(server.Client(), server.URL), slog.New(slog.DiscardHandler), time.Hour,
	)
	key := statesync.Key{Collection: "deployments", ID: "d"}
	asked := func() bool {
		asked, err := reports.Send(t.Context(), key, "runs", nil)
		require.NoError(t, err)
		return asked
	}
	for i := range 3 {
		require.NoError(t, reports.Heartbeat(t.Context()))
		require.True(t, control.last.GetClaim(), "it asks again")
		require.False(t, control.last.GetYield(), "no other agent is known of")
		require.Equal(t, i == 0, asked(), "a control plane without epochs gets each report once")
	}
	control.epoch = 4
	require.NoError(t, reports.Heartbeat(t.Context()))
	require.True(t, control.last.GetClaim())
	require.True(t, asked(), "those before may have been dropped")
	require.NoError(t, reports.Heartbeat(t.Context()))
	require.False(t, control.last.GetClaim())
	require.Equal(t, uint64(4), control.last.GetAgentEpoch())
	require.False(t, asked())
}

// beats is a client without a network.
type beats struct {
	ctrlv1connect.ClusterServiceClient

	to *epochs
}

func (b beats) Heartbeat(
	ctx context.Context,
	r *connect.Request[ctrlv1.HeartbeatRequest],
) (*connect.Response[ctrlv1.HeartbeatResponse], error) {
	return b.to.Heartbeat(ctx, r)
}

func TestAllIsReportedAgainAfterASilenceOfThreeHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Hour // of the heartbeats
		control := &epochs{epoch: 1}
		reports := agent.NewReports(beats{to: control}, slog.New(slog.DiscardHandler), 1000*interval)
		asked := func(collection string) bool {
			asked, err := reports.Send(t.Context(), statesync.Key{Collection: collection, ID: "a"}, "runs", nil)
			require.NoError(t, err)
			return asked
		}
		collections := []string{"deployments", "sentinels"}
		require.NoError(t, reports.Heartbeat(t.Context()))
		for _, collection := range collections {
			reports.Want(statesync.Key{Collection: collection, ID: "a"}, 1)
			require.True(t, asked(collection))
		}
		time.Sleep(3 * interval)
		require.NoError(t, reports.Heartbeat(t.Context()))
		for _, collection := range collections {
			require.False(t, asked(collection), "it was not silent for longer")
		}
		time.Sleep(2 * interval)
		control.err = connect.NewError(connect.CodeUnavailable, errors.New("away"))
		require.Error(t, reports.Heartbeat(t.Context()))
		time.Sleep(interval + 1)
		control.err = nil
		require.NoError(t, reports.Heartbeat(t.Context()))
		for _, collection := range collections {
			require.True(t, asked(collection), "the reports of the region may be void")
		}
	})
}

// attempts are streams that fail at once, with an error after which the pause is half a minute at least.
type attempts struct{ count atomic.Int32 }

func (a *attempts) Watch(context.Context, statesync.Watch, func(statesync.Frame) error) error {
	a.count.Add(1)
	return statesync.ErrUnauthenticated
}

// TestAHeartbeatThatIsAnsweredAgainEndsThePausesOfTheStreams: the control plane is back.
func TestAHeartbeatThatIsAnsweredAgainEndsThePausesOfTheStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		control := &epochs{epoch: 1}
		mux := http.NewServeMux()
		mux.Handle(ctrlv1connect.NewClusterServiceHandler(control))
		direct := httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
			recorder := httptest.NewRecorder()
			mux.ServeHTTP(recorder, r)
			return recorder.Result(), nil
		})
		reports := agent.NewReports(
			ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: direct}, "http://control"), slog.New(slog.DiscardHandler), time.Hour,
		)
		source := &attempts{}
		replica := &statesync.Replica{Source: source, Scope: "eu", Handle: func(context.Context, statesync.Item) error { return nil }}
		reports.Follows(map[stream.Collection]*statesync.Replica{stream.Deployments: replica})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = replica.Start(ctx) }()
		attempted := func() int32 {
			before := source.count.Load()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			return source.count.Load() - before
		}
		quiet := func() { // until just after an attempt
			before := source.count.Load()
			for source.count.Load() == before {
				time.Sleep(time.Second)
			}
		}
		quiet()
		require.NoError(t, reports.Heartbeat(t.Context()))
		require.Zero(t, attempted(), "nothing was wrong with the one before")
		control.err = errors.New("away")
		quiet()
		require.Error(t, reports.Heartbeat(t.Context()))
		require.Zero(t, attempted())
		control.err = nil
		quiet()
		require.NoError(t, reports.Heartbeat(t.Context()))
		require.Equal(t, int32(1), attempted())
		quiet()
		require.NoError(t, reports.Heartbeat(t.Context()))
		require.Zero(t, attempted())
		cancel()
		synctest.Wait()
	})
}

func TestAReportOfAnUnknownKeyIsRepeatedMoreAndMoreSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const inventory = 10 * time.Second
		reports := agent.NewReports(nil, slog.New(slog.DiscardHandler), inventory)
		key := statesync.Key{Collection: "deployments", ID: "d"}
		unknown := connect.NewError(connect.CodeNotFound, errors.New("unknown"))
		asked := func(content string, answer error) bool {
			asked, err := reports.Send(t.Context(), key, content, answer)
			require.NoError(t, err)
			return asked
		}
		require.True(t, asked("runs", unknown))
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, inventory, inventory} {
			time.Sleep(pause - time.Millisecond)
			require.False(t, asked("runs", unknown), pause)
			time.Sleep(time.Millisecond)
			require.True(t, asked("runs", unknown), pause)
		}
		reports.Want(key, 7)
		require.True(t, asked("runs", unknown), "it is desired again")
		time.Sleep(time.Second)
		require.True(t, asked("runs", unknown), "and repeated soon")
		require.True(t, asked("fails", unknown), "it is another one")
		time.Sleep(time.Second)
		require.True(t, asked("fails", nil))
		reports.Want(key, 8)
		time.Sleep(inventory - time.Millisecond)
		require.False(t, asked("fails", nil), "what was accepted holds, whatever is desired")
		time.Sleep(time.Millisecond)
		require.True(t, asked("fails", nil))
	})
}
