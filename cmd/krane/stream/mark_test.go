package stream_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// rewritable is a control plane of one epoch whose database can be restored: then
// its versions are given again, and only the mark at the head shows that.
type rewritable struct {
	ctrlv1connect.UnimplementedClusterServiceHandler

	mu       sync.Mutex
	names    []string // by version, from 1
	mark     string   // at the head
	changed  chan struct{}
	requests []*ctrlv1.WatchSentinelsRequest
}

// rewrite makes names the whole history, and ends the streams.
func (r *rewritable) rewrite(mark string, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names, r.mark = names, mark
	if r.changed != nil {
		close(r.changed)
	}
	r.changed = make(chan struct{})
}

// asked returns the requests with a version.
func (r *rewritable) asked() []*ctrlv1.WatchSentinelsRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*ctrlv1.WatchSentinelsRequest
	for _, m := range r.requests {
		if m.GetVersionLastSeen() > 0 {
			found = append(found, m)
		}
	}
	return found
}

func (r *rewritable) WatchSentinels(
	ctx context.Context,
	request *connect.Request[ctrlv1.WatchSentinelsRequest],
	out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	r.mu.Lock()
	r.requests = append(r.requests, request.Msg)
	names, mark, changed := r.names, r.mark, r.changed
	r.mu.Unlock()
	head, after := uint64(len(names)), request.Msg.GetVersionLastSeen()
	if after > 0 && (after > head || request.Msg.GetMark() != "" && request.Msg.GetMark() != mark) {
		err := connect.NewError(connect.CodeFailedPrecondition, errors.New("resync"))
		detail, _ := connect.NewErrorDetail(&ctrlv1.ErrorDetail{Reason: "resync-required"})
		err.AddDetail(detail)
		return err
	}
	hash := sha256.New()
	for n, name := range names[after:] {
		version := after + uint64(n) + 1 //nolint:gosec // small
		_, _ = fmt.Fprintf(hash, "ws/%s %d apply\n", name, version)
		if err := out.Send(&ctrlv1.SentinelState{Version: version, State: &ctrlv1.SentinelState_Apply{Apply: sentinel(name)}}); err != nil {
			return err
		}
	}
	last := &ctrlv1.SentinelState{
		State: &ctrlv1.SentinelState_Bookmark{Bookmark: &ctrlv1.Bookmark{Epoch: "e", Version: head, Head: head, Mark: mark}},
	}
	if after == 0 {
		last.State = &ctrlv1.SentinelState_Synced{
			Synced: &ctrlv1.Synced{Epoch: "e", Version: head, Count: head, Digest: hash.Sum(nil), Mark: mark},
		}
	}
	if err := out.Send(last); err != nil {
		return err
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func startRewritable(t *testing.T) (*rewritable, *stream.Source) {
	t.Helper()
	r := &rewritable{}
	_, handler := ctrlv1connect.NewClusterServiceHandler(r)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		r.rewrite("")
		server.Close()
	})
	return r, &stream.Source{Client: ctrlv1connect.NewClusterServiceClient(server.Client(), server.URL), Collection: stream.Sentinels}
}

func (f *follower) hasAll(names ...string) func() bool {
	return func() bool {
		snapshot, ok := f.Complete()
		if !ok || len(snapshot.Items) != len(names) {
			return false
		}
		for n, name := range names {
			if snapshot.Items[stream.Sentinels.Key("ws", name)].Version != uint64(n+1) || !f.has("ws/"+name, uint64(n+1)) { //nolint:gosec // small
				return false
			}
		}
		return true
	}
}

func TestAHistoryThatWasRewrittenUnderItsEpochIsListedAnew(t *testing.T) {
	t.Parallel()
	server, s := startRewritable(t)
	server.rewrite("2-lost", "a", "b")
	f := follow(t, s)
	await.Eventually(t, "the list is complete", f.hasAll("a", "b"))
	server.rewrite("2-lost", "a", "b")
	await.Eventually(t, "it is resumed with its mark", func() bool { return len(server.asked()) > 0 })
	require.Equal(t, "2-lost", server.asked()[0].GetMark())
	await.Eventually(t, "and goes on", f.hasAll("a", "b"))
	f.endedWith(t, io.ErrUnexpectedEOF)

	// The head has passed the cursor: only the mark shows the loss.
	server.rewrite("3-kept", "a", "c", "d")
	f.endedWith(t, statesync.ErrResync)
	await.Eventually(t, "the other history is complete, and handled", f.hasAll("a", "c", "d"))
}

func TestAMarkThatIsNoneBreaksTheStream(t *testing.T) {
	t.Parallel()
	server, s := startRewritable(t)
	server.rewrite("no mark", "a")
	f := follow(t, s)
	f.endedWith(t, stream.ErrBroken)
	require.False(t, f.complete())
}

func TestAServerWithoutMarksIsResumed(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.liar.Set(controltest.Faults{Lie: controltest.NoMarks()})
		s.want(t, "a")
		f := follow(t, s.source(t))
		eventually(t, "the list is complete", f.complete)
		snapshot, _ := f.Complete()
		require.Zero(t, snapshot.Cursor.Mark)
		s.liar.Cut(0)
		f.endedWith(t, io.ErrUnexpectedEOF)
		s.want(t, "b")
		eventually(t, "what was missed arrives", func() bool { return f.has("ws/b", 2) && f.complete() })
		require.Equal(t, 1, s.liar.Lists(watch))

		s.liar.Set(controltest.Faults{}) // it was upgraded
		eventually(t, "marks are taken once they come", func() bool {
			snapshot, ok := f.Complete()
			return ok && snapshot.Cursor.Mark.Version == 2
		})
		require.Equal(t, 1, s.liar.Lists(watch))
		eventually(t, "and are acknowledged", func() bool { return f.Status().Applied.Mark.Version == 2 })
	})
}

// errEnd is where a list is followed no further.
var errEnd = errors.New("the list is complete")

// list reads a list to its end, and returns the cursor there.
func list(t *testing.T, s *stream.Source) (at statesync.Cursor, err error) {
	t.Helper()
	err = s.Watch(t.Context(), statesync.Watch{Scope: region}, func(f statesync.Frame) error {
		if f.Type != statesync.FrameSynced {
			return nil
		}
		at = statesync.Cursor{Epoch: f.Epoch, Version: f.Version, Mark: f.Mark}
		return errEnd
	})
	return at, err
}

// TestAStreamIsResumedOnlyWhereItsReaderIs: what the reader has elsewhere is not known, and could prove no list.
func TestAStreamIsResumedOnlyWhereItsReaderIs(t *testing.T) {
	t.Parallel()
	server, s := startRewritable(t)
	server.rewrite("2-kept", "a", "b")
	none := func(statesync.Frame) error { return nil }
	at, err := list(t, s)
	require.ErrorIs(t, err, errEnd)
	for _, other := range []statesync.Cursor{{Epoch: "e", Version: 1}, {Epoch: "e", Version: 3}, {Epoch: "f", Version: 2}} {
		require.ErrorIs(t, s.Watch(t.Context(), statesync.Watch{Scope: region, Cursor: other}, none), statesync.ErrResync)
	}
	require.Empty(t, server.asked(), "the control plane is not asked")
	require.ErrorIs(t, s.Watch(t.Context(), statesync.Watch{Scope: region, Cursor: at}, func(f statesync.Frame) error {
		require.Equal(t, at.Version, f.Version)
		return errEnd
	}), errEnd)
}

// TestAHistoryIsAnotherOneOnceItReachesTheMark that was refused: one that is shorter shows it by its versions.
func TestAHistoryIsAnotherOneOnceItReachesTheMark(t *testing.T) {
	t.Parallel()
	for mark, test := range map[string]struct {
		names []string
		want  error
	}{
		"1-kept": {[]string{"a"}, errEnd},
		"2-kept": {[]string{"a", "c"}, statesync.ErrResync},
		"3-kept": {[]string{"a", "c", "d"}, statesync.ErrResync},
	} {
		server, s := startRewritable(t)
		server.rewrite("2-lost", "a", "b")
		at, err := list(t, s)
		require.ErrorIs(t, err, errEnd)
		server.rewrite(mark, test.names...)
		resumed := s.Watch(t.Context(), statesync.Watch{Scope: region, Cursor: at}, func(statesync.Frame) error { return nil })
		require.ErrorIs(t, resumed, statesync.ErrResync)
		_, err = list(t, s)
		require.ErrorIs(t, err, test.want, mark)
		_, err = list(t, s)
		require.ErrorIs(t, err, errEnd, mark)
	}
}

// backward is a control plane whose marker goes back behind a message of a kind that no agent of now knows.
type backward struct {
	ctrlv1connect.UnimplementedClusterServiceHandler
}

func (backward) WatchSentinels(
	_ context.Context,
	_ *connect.Request[ctrlv1.WatchSentinelsRequest],
	out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	synced := &ctrlv1.Synced{Epoch: "e", Version: 6, Digest: sha256.New().Sum(nil)}
	return errors.Join(
		out.Send(&ctrlv1.SentinelState{Version: 7}),
		out.Send(&ctrlv1.SentinelState{State: &ctrlv1.SentinelState_Synced{Synced: synced}}),
	)
}

func TestAMarkerNeverGoesBackBehindWhatIsSkipped(t *testing.T) {
	t.Parallel()
	_, handler := ctrlv1connect.NewClusterServiceHandler(backward{})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s := &stream.Source{Client: ctrlv1connect.NewClusterServiceClient(server.Client(), server.URL), Collection: stream.Sentinels}
	_, err := list(t, s)
	require.ErrorIs(t, err, stream.ErrBroken)
	require.ErrorContains(t, err, "a marker at version 6 after 7")
}
