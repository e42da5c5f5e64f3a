package agent //nolint:testpackage // the ends of streams are made one by one, in virtual time

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// following are streams that are not started.
type following struct {
	*streams

	log    logtest.Log
	others []bool // whether the epoch of a list was another than before
}

func newFollowing() *following {
	f := &following{}
	m, logger := newMetrics(), slog.New(slog.NewTextHandler(&f.log, nil))
	f.streams = &streams{
		contact: newContact("", m, logger), metrics: m, logger: logger, problems: newProblems(allSeen),
		synced: func(_ stream.Collection, _ statesync.Snapshot, other bool) { f.others = append(f.others, other) },
	}
	f.contact.refusedToken = func() {}
	f.open(streamConfig{region: "eu", logger: logger})
	return f
}

// counted is how many streams of deployments ended so.
func (f *following) counted(t *testing.T, status string) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, f.metrics.connections.WithLabelValues("deployments", status).Write(&m))
	return m.GetCounter().GetValue()
}

// TestAnEndOfAStreamIsSaidForWhatItIs: an outage, another history, a server that contradicts itself, or nothing.
func TestAnEndOfAStreamIsSaidForWhatItIs(t *testing.T) {
	t.Parallel()
	live := timedSource{message: true, live: true}
	unmarked := func(open time.Duration) timedSource {
		return timedSource{message: true, unmarked: true, opened: time.Now().Add(-open)}
	}
	const (
		later     = time.Second
		noContact = "no contact with the control plane"
		refuses   = "the control plane refuses the region"
	)
	claimed := fmt.Errorf("%w: no", stream.ErrClaimed)
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			source timedSource
			err    error
			retry  time.Duration
			status string
			said   string // in the log; empty for nothing
		}{
			"one that worked":                     {live, io.ErrUnexpectedEOF, later, "ended", ""},
			"one that never began":                {timedSource{}, io.ErrUnexpectedEOF, later, "failed", noContact},
			"one that was cut within its list":    {timedSource{message: true}, io.ErrUnexpectedEOF, later, "ended", noContact},
			"one that breaks the contract":        {live, fmt.Errorf("%w: x", stream.ErrBroken), later, "ended", "level=WARN msg=\"stream ended\""},
			"another history":                     {live, &statesync.ResyncError{}, later, "resync", "everything is listed again"},
			"a token that is refused":             {live, statesync.ErrUnauthenticated, later, "unauthenticated", noContact},
			"a region that another cell claims":   {live, claimed, later, regionClaimed, refuses},
			"one that is claimed at once":         {live, claimed, 0, regionClaimed, refuses},
			"a region that is not known":          {live, statesync.ErrUnknownScope, later, unknownRegion, refuses},
			"its own end, in order to list":       {timedSource{}, errors.New("lists again"), 0, "failed", ""},
			"one without markers that was quiet":  {unmarked(time.Minute + 1), io.ErrUnexpectedEOF, later, "ended", ""},
			"one without markers that was short":  {unmarked(time.Minute), io.ErrUnexpectedEOF, later, "ended", noContact},
			"one with markers that was only slow": {timedSource{opened: time.Now().Add(-time.Hour)}, io.EOF, later, "failed", noContact},
		} {
			f := newFollowing()
			f.ended("deployments", statesync.Stream{Err: test.err, Retry: test.retry}, &test.source)
			require.EqualValues(t, 1, f.counted(t, test.status), name)
			if test.said == "" {
				require.Empty(t, f.log.String(), name)
			} else {
				require.Contains(t, f.log.String(), test.said, name)
			}
		}
	})
}

// TestAStreamThatWorkedEndsAnOutage, also if it has ended since.
func TestAStreamThatWorkedEndsAnOutage(t *testing.T) {
	t.Parallel()
	f := newFollowing()
	failed := statesync.Stream{Err: io.ErrUnexpectedEOF, Retry: time.Second}
	f.ended("deployments", failed, &timedSource{})
	f.log.Reset()
	f.ended("deployments", failed, &timedSource{message: true, live: true})
	require.Contains(t, f.log.String(), "contact with the control plane again")

	f.ended("deployments", failed, &timedSource{})
	f.log.Reset()
	source, ok := f.replicas[stream.Deployments].Source.(*timedSource)
	require.True(t, ok)
	source.answered()
	require.Contains(t, f.log.String(), "contact with the control plane again")
}

// TestAFailureIsLoggedUnlessItIsNone: what waits for a list does not fail, nor does what is cut short.
func TestAFailureIsLoggedUnlessItIsNone(t *testing.T) {
	t.Parallel()
	for err, logged := range map[error]bool{
		errors.New("denied"): true, errVault: true, errUnproven: false, context.Canceled: false, nil: false,
	} {
		f := newFollowing()
		if err != nil {
			err = fmt.Errorf("deployments/ws/web: %w", err)
		}
		f.handled(reconcile.KeyPass[statesync.Key]{Key: stream.Deployments.Key("ws", "web"), Err: err})
		require.Equal(t, logged, f.log.String() != "", err)
	}
}

// TestWhatIsParkedForAnOutageIsTriedOnceAfterIt, and a person learns of what is parked.
func TestWhatIsParkedForAnOutageIsTriedOnceAfterIt(t *testing.T) {
	t.Parallel()
	for err, waits := range map[error]bool{errVault: true, errUnproven: true, errors.New("denied"): false} {
		f := newFollowing()
		outage := f.outage[stream.Deployments]
		pass := reconcile.KeyPass[statesync.Key]{Key: stream.Deployments.Key("ws", "web"), Err: fmt.Errorf("x: %w", err)}
		f.replicas[stream.Deployments].OnHandled(pass)
		require.False(t, outage.Load(), "it is tried again by itself")
		require.Empty(t, f.problems.report())
		pass.Parked = true
		f.replicas[stream.Deployments].OnHandled(pass)
		require.Equal(t, waits, outage.Load(), err)
		require.Len(t, f.problems.report(), 1)
		require.False(t, f.outage[stream.Sentinels].Load())
		f.retryParked()
		require.False(t, outage.Load(), "once")
	}
}

// TestAListIsRememberedByItsPositionAndItsEpoch: only one of another epoch than before has another history.
func TestAListIsRememberedByItsPositionAndItsEpoch(t *testing.T) {
	t.Parallel()
	f := newFollowing()
	require.False(t, f.proven(stream.Deployments))
	require.Zero(t, f.list(stream.Deployments))
	for version, epoch := range []string{"e", "e", "f", "f"} {
		at := statesync.Cursor{Epoch: epoch, Version: uint64(version) + 1} //nolint:gosec // small
		f.replicas[stream.Deployments].OnSynced(statesync.Snapshot{Cursor: at})
		require.Equal(t, at, f.list(stream.Deployments))
		require.True(t, f.proven(stream.Deployments))
	}
	require.Equal(t, []bool{false, false, true, false}, f.others)
	require.False(t, f.proven(stream.Sentinels))
	require.Zero(t, f.list(stream.Sentinels))
}

// TestNothingIsCompleteBeforeAllIsListed: one collection that is not proven casts doubt on all.
func TestNothingIsCompleteBeforeAllIsListed(t *testing.T) {
	t.Parallel()
	f := newFollowing()
	_, complete := f.complete()
	require.False(t, complete)
	require.ErrorContains(t, f.ready(), "no list of deployments yet")
	require.Zero(t, f.acknowledged())
	require.False(t, f.current(stream.Deployments))
}

// history is a source of one empty list that is proven, at a version of an epoch.
type history struct {
	epoch   string
	version uint64
	cut     chan struct{} // ends the stream, for good
}

func (h *history) Watch(ctx context.Context, _ statesync.Watch, receive func(statesync.Frame) error) error {
	select {
	case <-h.cut:
		return statesync.ErrUnauthenticated
	default:
	}
	digest, _ := statesync.DigestOf(nil)
	for _, f := range []statesync.Frame{
		{Type: statesync.FrameHeader, Heartbeat: time.Minute},
		{Type: statesync.FrameItems, Version: h.version},
		{Type: statesync.FrameSynced, After: h.version, Version: h.version, Digest: digest},
	} {
		f.Epoch, f.Head = h.epoch, h.version
		if err := receive(f); err != nil {
			return err
		}
	}
	select {
	case <-h.cut:
		return statesync.ErrUnauthenticated
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestTheRegionHasWhatItsSlowestCollectionHas, and nothing while their epochs differ.
func TestTheRegionHasWhatItsSlowestCollectionHas(t *testing.T) {
	t.Parallel()
	for policies, want := range map[string]statesync.Cursor{"e": {Epoch: "e", Version: 3}, "f": {}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFollowing()
			ctx, cancel := context.WithCancel(t.Context())
			cut := make(chan struct{})
			for collection, from := range map[stream.Collection]*history{
				stream.Deployments: {"e", 5, make(chan struct{})}, stream.Sentinels: {"e", 3, make(chan struct{})},
				stream.Policies: {policies, 9, cut},
			} {
				require.Error(t, f.ready())
				require.Zero(t, f.acknowledged(), "before each has something")
				_, complete := f.complete()
				require.False(t, complete)
				r := &statesync.Replica{
					Source: from, Scope: "eu", Collections: []string{string(collection)},
					Handle: func(context.Context, statesync.Item) error { return nil },
				}
				f.replicas[collection] = r
				go func() { _ = r.Start(ctx) }()
				synctest.Wait()
			}
			require.NoError(t, f.ready())
			require.Equal(t, want, f.acknowledged())
			require.EqualValues(t, 9, f.applied(stream.Policies))
			snapshots, complete := f.complete()
			require.True(t, complete)
			require.Len(t, snapshots, 3)

			close(cut)
			synctest.Wait()
			_, complete = f.complete()
			require.False(t, complete)
			require.False(t, f.current(stream.Policies))
			require.True(t, f.current(stream.Sentinels))
			require.NoError(t, f.ready(), "it was listed")
			cancel()
			synctest.Wait()
		})
	}
}

// scripted is a control plane that answers one stream of deployments, after a silence.
type scripted struct {
	ctrlv1connect.UnimplementedClusterServiceHandler

	silent time.Duration
	send   []*ctrlv1.DeploymentState
}

func (s scripted) WatchDeployments(
	_ context.Context, _ *connect.Request[ctrlv1.WatchDeploymentsRequest], out *connect.ServerStream[ctrlv1.DeploymentState],
) error {
	time.Sleep(s.silent)
	for _, m := range s.send {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// TestAStreamWorksOnceItsListIsProven, and one without markers with its first item.
func TestAStreamWorksOnceItsListIsProven(t *testing.T) {
	t.Parallel()
	item := &ctrlv1.DeploymentState{Version: 3, State: &ctrlv1.DeploymentState_Apply{Apply: &ctrlv1.ApplyDeployment{
		K8SNamespace: "ws", K8SName: "web", DeploymentId: "d",
	}}}
	bookmark := &ctrlv1.DeploymentState{State: &ctrlv1.DeploymentState_Bookmark{Bookmark: &ctrlv1.Bookmark{Epoch: "e", Head: 3}}}
	digest := sha256.Sum256([]byte("ws/web 3 apply\n"))
	end := &ctrlv1.DeploymentState{State: &ctrlv1.DeploymentState_Synced{
		Synced: &ctrlv1.Synced{Epoch: "e", Version: 3, Count: 1, Digest: digest[:]},
	}}
	for name, test := range map[string]struct {
		control                         scripted
		message, live, unmarked, proven bool
	}{
		"nothing came":    {scripted{}, false, false, false, false},
		"a part of it":    {scripted{send: []*ctrlv1.DeploymentState{bookmark, item}}, true, false, false, false},
		"all of it":       {scripted{send: []*ctrlv1.DeploymentState{bookmark, item, end}}, true, true, false, false},
		"without markers": {scripted{silent: time.Minute, send: []*ctrlv1.DeploymentState{item}}, true, true, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle(ctrlv1connect.NewClusterServiceHandler(test.control))
			direct := httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
				recorder := httptest.NewRecorder()
				mux.ServeHTTP(recorder, r)
				return recorder.Result(), nil
			})
			f := newFollowing()
			f.open(streamConfig{
				client: ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: direct}, "http://control.test"),
				region: "eu", logger: slog.New(slog.DiscardHandler),
			})
			f.ended("deployments", statesync.Stream{Err: io.ErrUnexpectedEOF, Retry: time.Second}, &timedSource{})
			f.log.Reset()
			source, ok := f.replicas[stream.Deployments].Source.(*timedSource)
			require.True(t, ok)
			source.message, source.live, source.unmarked = true, true, true // of the stream before
			err := source.Watch(t.Context(), statesync.Watch{Scope: "eu"}, func(statesync.Frame) error { return nil })
			require.Error(t, err)
			require.Equal(t, test.message, source.message, name)
			require.Equal(t, test.live, source.live, name)
			require.Equal(t, test.unmarked, source.unmarked, name)
			require.Equal(t, test.proven, f.proven(stream.Deployments), name)
			require.Equal(t, test.live, strings.Contains(f.log.String(), "contact with the control plane again"), name)
			var seen dto.Metric
			require.NoError(t, f.metrics.lastSeen.WithLabelValues("deployments").Write(&seen))
			require.Equal(t, test.message, seen.GetGauge().GetValue() == 3, name)
		})
	}
}
