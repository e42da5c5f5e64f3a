package agent //nolint:testpackage // the ends of streams are made one by one, in virtual time

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
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
	const later = time.Second
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
			"one that never began":                {timedSource{}, io.ErrUnexpectedEOF, later, "failed", "no contact with the control plane"},
			"one that was cut within its list":    {timedSource{message: true}, io.ErrUnexpectedEOF, later, "ended", "no contact with the control plane"},
			"one that breaks the contract":        {live, fmt.Errorf("%w: x", stream.ErrBroken), later, "ended", "level=WARN msg=\"stream ended\""},
			"another history":                     {live, &statesync.ResyncError{}, later, "resync", "everything is listed again"},
			"a token that is refused":             {live, statesync.ErrUnauthenticated, later, "unauthenticated", "no contact with the control plane"},
			"a region that another cell claims":   {live, claimed, later, regionClaimed, "the control plane refuses the region"},
			"one that is claimed at once":         {live, claimed, 0, regionClaimed, "the control plane refuses the region"},
			"a region that is not known":          {live, statesync.ErrUnknownScope, later, unknownRegion, "the control plane refuses the region"},
			"its own end, in order to list":       {timedSource{}, errors.New("lists again"), 0, "failed", ""},
			"one without markers that was quiet":  {unmarked(time.Minute + 1), io.ErrUnexpectedEOF, later, "ended", ""},
			"one without markers that was short":  {unmarked(time.Minute), io.ErrUnexpectedEOF, later, "ended", "no contact with the control plane"},
			"one with markers that was only slow": {timedSource{opened: time.Now().Add(-time.Hour)}, io.EOF, later, "failed", "no contact with the control plane"},
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
