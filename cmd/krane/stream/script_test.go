package stream_test

import (
	"bytes"
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
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// script is a control plane that answers each stream with the next of these.
type script struct {
	ctrlv1connect.UnimplementedClusterServiceHandler

	streams []scripted
	asked   []*ctrlv1.WatchSentinelsRequest
	log     bytes.Buffer
}

// scripted is a stream that is silent at first, and ends after its messages, with the error.
type scripted struct {
	silent time.Duration
	send   []*ctrlv1.SentinelState
	end    error
}

func (s *script) WatchSentinels(
	_ context.Context,
	request *connect.Request[ctrlv1.WatchSentinelsRequest],
	out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	s.asked = append(s.asked, request.Msg)
	next := s.streams[0]
	s.streams = s.streams[1:]
	time.Sleep(next.silent)
	for _, m := range next.send {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return next.end
}

// play runs a test in virtual time, with a source of what the control plane answers.
func play(t *testing.T, run func(t *testing.T, control *script, s *stream.Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		control := &script{}
		mux := http.NewServeMux()
		mux.Handle(ctrlv1connect.NewClusterServiceHandler(control))
		direct := httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
			recorder := httptest.NewRecorder()
			mux.ServeHTTP(recorder, r)
			return recorder.Result(), nil
		})
		run(t, control, &stream.Source{
			Client:     ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: direct}, "http://control.test"),
			Collection: stream.Sentinels, Logger: slog.New(slog.NewTextHandler(&control.log, nil)),
		})
	})
}

// frames reads one stream to its end.
func frames(t *testing.T, s *stream.Source, from statesync.Cursor) (all []statesync.Frame, err error) {
	t.Helper()
	err = s.Watch(t.Context(), statesync.Watch{Scope: region, Cursor: from}, func(f statesync.Frame) error {
		all = append(all, f)
		return nil
	})
	return all, err
}

// last is the type and the version of the last frame.
func last(all []statesync.Frame) (statesync.FrameType, uint64) {
	if len(all) == 0 {
		return "", 0
	}
	return all[len(all)-1].Type, all[len(all)-1].Version
}

func applied(version uint64, name string) *ctrlv1.SentinelState {
	return &ctrlv1.SentinelState{Version: version, State: &ctrlv1.SentinelState_Apply{Apply: sentinel(name)}}
}

func deleted(version uint64, name string) *ctrlv1.SentinelState {
	gone := &ctrlv1.DeleteSentinel{K8SNamespace: "ws", K8SName: name}
	return &ctrlv1.SentinelState{Version: version, State: &ctrlv1.SentinelState_Delete{Delete: gone}}
}

func bookmark(epoch string, version, head uint64) *ctrlv1.SentinelState {
	return &ctrlv1.SentinelState{
		State: &ctrlv1.SentinelState_Bookmark{Bookmark: &ctrlv1.Bookmark{Epoch: epoch, Version: version, Head: head}},
	}
}

// synced ends a list of these messages.
func synced(version uint64, mark string, messages ...*ctrlv1.SentinelState) *ctrlv1.SentinelState {
	hash := sha256.New()
	for _, m := range messages {
		if gone := m.GetDelete(); gone != nil {
			_, _ = fmt.Fprintf(hash, "ws/%s %d delete\n", gone.GetK8SName(), m.GetVersion())
		} else {
			_, _ = fmt.Fprintf(hash, "ws/%s %d apply\n", m.GetApply().GetK8SName(), m.GetVersion())
		}
	}
	return &ctrlv1.SentinelState{State: &ctrlv1.SentinelState_Synced{Synced: &ctrlv1.Synced{
		Epoch: "e", Version: version, Count: uint64(len(messages)), Digest: hash.Sum(nil), Mark: mark,
	}}}
}

// whole is a list that is proven.
func whole(version uint64, messages ...*ctrlv1.SentinelState) scripted {
	return scripted{send: append(messages, synced(version, "", messages...))}
}

func TestADeletionIsReadAsOne(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{whole(3, applied(1, "a"), deleted(2, "b"))}
		all, _ := frames(t, s, statesync.Cursor{})
		require.Equal(t, statesync.FrameItems, all[1].Type)
		items := all[1].Items
		require.Len(t, items, 2)
		require.False(t, items[0].Deleted)
		require.True(t, items[1].Deleted)
		require.Equal(t, stream.Sentinels.Key("ws", "b"), items[1].Key)
		require.Empty(t, items[1].Value)
		end := all[len(all)-1]
		require.Equal(t, statesync.FrameSynced, end.Type)
		require.Equal(t, 1, end.Count, "of what is there")
	})
}

// TestAStreamThatContradictsItselfIsBroken, and never proves its list.
func TestAStreamThatContradictsItselfIsBroken(t *testing.T) {
	t.Parallel()
	none := synced(3, "")
	none.GetSynced().Epoch = ""
	for name, send := range map[string][]*ctrlv1.SentinelState{
		"a version twice":           {applied(3, "a"), applied(3, "b"), bookmark("e", 3, 3)},
		"a version back":            {applied(3, "a"), applied(2, "b"), bookmark("e", 3, 3)},
		"no epoch":                  {bookmark("", 0, 3)},
		"no epoch at the end":       {none},
		"a message behind a marker": {bookmark("e", 5, 5), applied(4, "a")},
		"a marker behind a marker":  {bookmark("e", 5, 5), bookmark("e", 4, 5)},
	} {
		play(t, func(t *testing.T, control *script, s *stream.Source) {
			control.streams = []scripted{{send: send}}
			all, err := frames(t, s, statesync.Cursor{})
			require.ErrorIs(t, err, stream.ErrBroken, name)
			for _, f := range all {
				require.NotEqual(t, statesync.FrameSynced, f.Type, name)
			}
		})
	}
}

// TestAResumedStreamThatGoesBackIsBroken: what its reader has would be undone.
func TestAResumedStreamThatGoesBackIsBroken(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]*ctrlv1.SentinelState{
		"the same version": deleted(2, "b"), "an older one": applied(1, "b"), "a marker": bookmark("e", 1, 2),
	} {
		play(t, func(t *testing.T, control *script, s *stream.Source) {
			control.streams = []scripted{whole(2, applied(1, "a"), applied(2, "b")), {send: []*ctrlv1.SentinelState{back}}}
			_, _ = frames(t, s, statesync.Cursor{})
			all, err := frames(t, s, statesync.Cursor{Epoch: "e", Version: 2})
			require.ErrorIs(t, err, stream.ErrBroken, name)
			require.Len(t, all, 1, "the header")
		})
	}
}

// TestAMarkerStatesWhatIsThereAfterTheChanges: with another count or digest the reader would list again.
func TestAMarkerStatesWhatIsThereAfterTheChanges(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{whole(1, applied(1, "a")), {send: []*ctrlv1.SentinelState{
			applied(2, "a"), applied(3, "b"), deleted(4, "b"), deleted(5, "c"), applied(6, "d"), applied(7, "d"), bookmark("e", 7, 7),
		}}}
		_, _ = frames(t, s, statesync.Cursor{})
		all, _ := frames(t, s, statesync.Cursor{Epoch: "e", Version: 1})
		end := all[len(all)-1]
		want, count := statesync.DigestOf([]statesync.Item{
			{Version: 2, Key: stream.Sentinels.Key("ws", "a")}, {Version: 7, Key: stream.Sentinels.Key("ws", "d")},
		})
		require.Equal(t, statesync.FrameBookmark, end.Type)
		require.Equal(t, count, end.Count)
		require.Equal(t, want, end.Digest)
	})
}

// TestABookmarkProvesNoList: only what states the count and the digest of all does.
func TestABookmarkProvesNoList(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{{send: []*ctrlv1.SentinelState{applied(1, "a"), bookmark("e", 2, 7)}}}
		all, err := frames(t, s, statesync.Cursor{})
		require.Error(t, err)
		kind, version := last(all)
		require.Equal(t, statesync.FrameItems, kind)
		require.EqualValues(t, 2, version)
		require.EqualValues(t, 7, all[len(all)-1].Head)
		_, err = frames(t, s, statesync.Cursor{Epoch: "e", Version: 2})
		require.ErrorIs(t, err, statesync.ErrResync, "nothing is held that could be resumed")
	})
}

func TestAnotherEpochWithinAStreamIsListed(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{{send: []*ctrlv1.SentinelState{bookmark("e", 1, 1), bookmark("f", 2, 2)}}}
		all, err := frames(t, s, statesync.Cursor{})
		resync, ok := errors.AsType[*statesync.ResyncError](err)
		require.True(t, ok, err)
		require.Equal(t, statesync.OtherEpoch, resync.Reason)
		for _, f := range all {
			require.Equal(t, "e", f.Epoch)
		}
	})
}

// TestTheHeadIsTheGreatestVersionThatIsKnownOf, whatever came last.
func TestTheHeadIsTheGreatestVersionThatIsKnownOf(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{whole(1, applied(1, "a")), {send: []*ctrlv1.SentinelState{
			bookmark("e", 1, 9), applied(2, "b"), bookmark("e", 3, 3), applied(12, "c"), bookmark("e", 12, 12), applied(13, "d"),
		}}}
		all, _ := frames(t, s, statesync.Cursor{})
		_, version := last(all)
		all, _ = frames(t, s, statesync.Cursor{Epoch: "e", Version: version})
		require.EqualValues(t, 1, control.asked[1].GetVersionLastSeen())
		require.Equal(t, "e", control.asked[1].GetEpoch())
		var heads []uint64
		for _, f := range all {
			heads = append(heads, f.Head)
		}
		require.Equal(t, []uint64{1, 9, 9, 9, 12, 12, 13}, heads)
	})
}

// TestMoreThanAFrameOfItemsArrivesInOrder.
func TestMoreThanAFrameOfItemsArrivesInOrder(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		var messages []*ctrlv1.SentinelState
		for n := range uint64(1001) {
			messages = append(messages, applied(n+1, fmt.Sprint("s", n)))
		}
		control.streams = []scripted{whole(1001, messages...)}
		all, _ := frames(t, s, statesync.Cursor{})
		var next uint64
		for _, f := range all {
			require.LessOrEqual(t, len(f.Items), 500)
			for _, i := range f.Items {
				next++
				require.Equal(t, next, i.Version)
			}
		}
		require.EqualValues(t, 1001, next)
		kind, _ := last(all)
		require.Equal(t, statesync.FrameSynced, kind)
	})
}

// resync is how the control plane refuses to resume.
func resync(t *testing.T) error {
	t.Helper()
	refusal := connect.NewError(connect.CodeFailedPrecondition, errors.New("no"))
	detail, err := connect.NewErrorDetail(&ctrlv1.ErrorDetail{Reason: "resync-required"})
	require.NoError(t, err)
	refusal.AddDetail(detail)
	return refusal
}

// TestAHistoryThatGrowsPastTheRefusedMarkIsTheOneThatWasListed, once its shorter list was proven. Without a mark
// none is another one under the same epoch.
func TestAHistoryThatGrowsPastTheRefusedMarkIsTheOneThatWasListed(t *testing.T) {
	t.Parallel()
	a, b, c := applied(1, "a"), applied(2, "b"), applied(3, "c")
	for mark, next := range map[statesync.Mark][]scripted{
		{Version: 2, ID: "lost"}: {
			{send: []*ctrlv1.SentinelState{a, synced(1, "1-kept", a)}},
			{send: []*ctrlv1.SentinelState{a, b, c, synced(3, "3-kept", a, b, c)}},
		},
		{}: {whole(2, a, b), whole(3, a, b, c)},
	} {
		play(t, func(t *testing.T, control *script, s *stream.Source) {
			given, err := mark.MarshalText()
			require.NoError(t, err)
			control.streams = append(
				[]scripted{{send: []*ctrlv1.SentinelState{a, b, synced(2, string(given), a, b)}}, {end: resync(t)}}, next...,
			)
			_, _ = frames(t, s, statesync.Cursor{})
			_, err = frames(t, s, statesync.Cursor{Epoch: "e", Version: 2, Mark: mark})
			require.ErrorIs(t, err, statesync.ErrResync)
			for range next {
				all, err := frames(t, s, statesync.Cursor{})
				require.NotErrorIs(t, err, statesync.ErrResync)
				kind, _ := last(all)
				require.Equal(t, statesync.FrameSynced, kind)
			}
		})
	}
}

// unknown is silent for longer than the patience lasts.
func unknown(send ...*ctrlv1.SentinelState) scripted {
	return scripted{silent: 11 * time.Second, send: send}
}

// TestOneWithoutMarkersIsWarnedOfOnceAndNeverMistakenForAnother: each stream has an epoch of its own.
func TestOneWithoutMarkersIsWarnedOfOnceAndNeverMistakenForAnother(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{unknown(applied(1, "a"), applied(2, "b")), unknown(applied(3, "c"))}
		first, _ := frames(t, s, statesync.Cursor{})
		second, _ := frames(t, s, statesync.Cursor{})
		require.True(t, stream.Unmarked(first[0].Epoch))
		require.EqualValues(t, 2, second[0].Head)
		require.True(t, stream.Unmarked(second[0].Epoch))
		require.NotEqual(t, first[0].Epoch, second[0].Epoch)
		require.EqualValues(t, 2, control.asked[1].GetVersionLastSeen())
		require.Empty(t, control.asked[1].GetEpoch())
		for _, f := range append(first, second...) {
			require.NotEqual(t, statesync.FrameSynced, f.Type)
		}
		require.Equal(t, 1, strings.Count(control.log.String(), "server sends no markers"))
	})
}

// TestWhatWasNeverDeliveredIsListedAgain: a list that ended before it was known whether its server has markers.
func TestWhatWasNeverDeliveredIsListedAgain(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		control.streams = []scripted{{send: []*ctrlv1.SentinelState{applied(1, "a"), applied(2, "b")}}, unknown(), unknown(applied(1, "a"))}
		all, err := frames(t, s, statesync.Cursor{})
		require.Error(t, err)
		require.Empty(t, all)
		_, err = frames(t, s, statesync.Cursor{})
		require.Error(t, err)
		all, _ = frames(t, s, statesync.Cursor{})
		require.Zero(t, control.asked[2].GetVersionLastSeen())
		_, version := last(all)
		require.EqualValues(t, 1, version)
	})
}

// TestAMarkerOfOneThatSeemedToHaveNoneListsAgain, and its next silence is only slow.
func TestAMarkerOfOneThatSeemedToHaveNoneListsAgain(t *testing.T) {
	t.Parallel()
	slow := whole(2, applied(1, "a"))
	slow.silent = time.Minute / 2
	for name, second := range map[string]scripted{
		"within a stream": unknown(applied(3, "b"), bookmark("e", 3, 3)),
		"by its refusal":  {end: connect.NewError(connect.CodeInvalidArgument, errors.New("a version needs an epoch"))},
	} {
		play(t, func(t *testing.T, control *script, s *stream.Source) {
			control.streams = []scripted{unknown(applied(1, "a")), second, slow, slow}
			_, _ = frames(t, s, statesync.Cursor{})
			all, err := frames(t, s, statesync.Cursor{})
			require.Error(t, err)
			require.True(t, stream.Unmarked(all[0].Epoch))
			for n := range 2 {
				all, _ = frames(t, s, statesync.Cursor{})
				require.Zero(t, control.asked[n+2].GetVersionLastSeen(), name)
				require.Equal(t, "e", all[0].Epoch, name)
				kind, _ := last(all)
				require.Equal(t, statesync.FrameSynced, kind, name)
			}
		})
	}
}

func TestARefusalIsToldByItsCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[connect.Code]error{
		connect.CodeUnauthenticated: statesync.ErrUnauthenticated, connect.CodePermissionDenied: statesync.ErrUnauthenticated,
		connect.CodeInvalidArgument: statesync.ErrInvalid,
	} {
		play(t, func(t *testing.T, control *script, s *stream.Source) {
			control.streams = []scripted{{end: connect.NewError(code, errors.New("no"))}}
			_, err := frames(t, s, statesync.Cursor{})
			require.ErrorIs(t, err, want)
		})
	}
}

// asking is a control plane whose lists are empty. It refuses to resume, and keeps what it was asked.
type asking struct {
	ctrlv1connect.UnimplementedClusterServiceHandler
	asked []question
}

type question interface {
	GetVersionLastSeen() uint64
	GetEpoch() string
	GetMarkers() bool
	GetMark() string
}

func (a *asking) answer(q question) (*ctrlv1.Synced, error) {
	a.asked = append(a.asked, q)
	if len(a.asked) > 1 {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
	}
	return synced(7, "7-kept").GetSynced(), nil
}

func (a *asking) WatchDeployments(
	_ context.Context, q *connect.Request[ctrlv1.WatchDeploymentsRequest], out *connect.ServerStream[ctrlv1.DeploymentState],
) error {
	end, err := a.answer(q.Msg)
	if err != nil {
		return err
	}
	return out.Send(&ctrlv1.DeploymentState{State: &ctrlv1.DeploymentState_Synced{Synced: end}})
}

func (a *asking) WatchSentinels(
	_ context.Context, q *connect.Request[ctrlv1.WatchSentinelsRequest], out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	end, err := a.answer(q.Msg)
	if err != nil {
		return err
	}
	return out.Send(&ctrlv1.SentinelState{State: &ctrlv1.SentinelState_Synced{Synced: end}})
}

func (a *asking) WatchCiliumNetworkPolicies(
	_ context.Context,
	q *connect.Request[ctrlv1.WatchCiliumNetworkPoliciesRequest],
	out *connect.ServerStream[ctrlv1.CiliumNetworkPolicyState],
) error {
	end, err := a.answer(q.Msg)
	if err != nil {
		return err
	}
	return out.Send(&ctrlv1.CiliumNetworkPolicyState{State: &ctrlv1.CiliumNetworkPolicyState_Synced{Synced: end}})
}

// TestEachCollectionIsResumedWithAllOfItsCursor: without the mark a history that was rewritten would pass for the same.
func TestEachCollectionIsResumedWithAllOfItsCursor(t *testing.T) {
	t.Parallel()
	for _, collection := range []stream.Collection{stream.Deployments, stream.Sentinels, stream.Policies} {
		synctest.Test(t, func(t *testing.T) {
			control := &asking{}
			s := piped(t, control)
			s.Collection = collection
			all, err := frames(t, s, statesync.Cursor{})
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			kind, version := last(all)
			require.Equal(t, statesync.FrameSynced, kind)
			_, err = frames(t, s, statesync.Cursor{Epoch: "e", Version: version, Mark: statesync.Mark{Version: 7, ID: "kept"}})
			require.ErrorContains(t, err, "away")
			list, resumed := control.asked[0], control.asked[1]
			require.True(t, list.GetMarkers())
			require.Zero(t, list.GetVersionLastSeen())
			require.True(t, resumed.GetMarkers())
			require.EqualValues(t, 7, resumed.GetVersionLastSeen())
			require.Equal(t, "e", resumed.GetEpoch())
			require.Equal(t, "7-kept", resumed.GetMark())
		})
	}
}

// TestOnlyACollectionThatExistsIsAsked, and only for a region.
func TestOnlyACollectionThatExistsIsAsked(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, control *script, s *stream.Source) {
		require.ErrorIs(t, s.Watch(t.Context(), statesync.Watch{}, nil), statesync.ErrInvalid)
		s.Collection = "others"
		_, err := frames(t, s, statesync.Cursor{})
		require.ErrorIs(t, err, statesync.ErrInvalid)
		require.Empty(t, control.asked)
	})
}
