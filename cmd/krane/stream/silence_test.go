package stream_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// quiet is a control plane that sends the sentinel a at once and b after an hour. With
// marked it sends a bookmark before a. With dead it sends nothing.
type quiet struct {
	ctrlv1connect.UnimplementedClusterServiceHandler
	marked, dead bool
}

func (q quiet) WatchSentinels(
	ctx context.Context,
	_ *connect.Request[ctrlv1.WatchSentinelsRequest],
	out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	if q.dead {
		<-ctx.Done()
		return nil
	}
	if q.marked {
		bookmark := &ctrlv1.SentinelState_Bookmark{Bookmark: &ctrlv1.Bookmark{Epoch: "e", Head: 2}}
		if err := out.Send(&ctrlv1.SentinelState{State: bookmark}); err != nil {
			return err
		}
	}
	for n, name := range []string{"a", "b"} {
		if err := out.Send(
			&ctrlv1.SentinelState{Version: uint64(n) + 1, State: &ctrlv1.SentinelState_Apply{Apply: sentinel(name)}},
		); err != nil { //nolint:gosec // small
			return err
		}
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// pipes are both ends of connections in memory.
type pipes struct {
	conns chan net.Conn
	done  context.Context //nolint:containedctx // a listener has no other way to end
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done.Done():
		return nil, net.ErrClosed
	}
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// piped returns a source of that control plane, over connections in memory.
func piped(t *testing.T, control ctrlv1connect.ClusterServiceHandler) *stream.Source {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	wire := pipes{conns: make(chan net.Conn), done: ctx}
	mux := http.NewServeMux()
	mux.Handle(ctrlv1connect.NewClusterServiceHandler(control))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(wire) }) // ends with the listener
	transport := &http.Transport{DialContext: wire.dial}
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		transport.CloseIdleConnections()
		serving.Wait()
	})
	return &stream.Source{
		Client:     ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: transport}, "http://control.test"),
		Collection: stream.Sentinels,
	}
}

// slowly is a control plane that sends a list of five in half a minute, and then a bookmark each half minute.
type slowly struct {
	ctrlv1connect.UnimplementedClusterServiceHandler
}

func (slowly) WatchSentinels(
	_ context.Context,
	_ *connect.Request[ctrlv1.WatchSentinelsRequest],
	out *connect.ServerStream[ctrlv1.SentinelState],
) error {
	var all []*ctrlv1.SentinelState
	for version := uint64(1); version <= 5; version++ {
		all = append(all, applied(version, "a"))
		if err := out.Send(all[version-1]); err != nil {
			return err
		}
		time.Sleep(6 * time.Second)
	}
	for _, m := range []*ctrlv1.SentinelState{synced(5, "", all...), bookmark("e", 5, 5), bookmark("e", 5, 5), bookmark("e", 5, 5)} {
		if err := out.Send(m); err != nil {
			return err
		}
		time.Sleep(30 * time.Second)
	}
	return nil
}

// TestAStreamThatIsSlowIsNotSilent, nor one without markers: each message has the whole time.
func TestAStreamThatIsSlowIsNotSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, slowly{})
		began := time.Now()
		all, err := frames(t, s, statesync.Cursor{})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, 150*time.Second, time.Since(began))
		require.Equal(t, "e", all[0].Epoch)
		kind, _ := last(all)
		require.Equal(t, statesync.FrameBookmark, kind)
	})
}

// TestSilenceIsTheEndOfAStreamOnlyWithMarkers follows one stream with the default
// limits, in virtual time. A stream that brings nothing at all ends in any case.
func TestSilenceIsTheEndOfAStreamOnlyWithMarkers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server quiet
		after  time.Duration // until the stream ends
		want   error
		ids    []string
	}{
		"without markers":  {quiet{}, 2 * time.Hour, nil, []string{"ws/a", "ws/b"}},
		"with markers":     {quiet{marked: true}, 45 * time.Second, stream.ErrSilent, []string{"ws/a"}},
		"without anything": {quiet{dead: true}, 90 * time.Second, stream.ErrSilent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := piped(t, c.server)
				var ids []string
				began := time.Now()
				err := s.Watch(t.Context(), statesync.Watch{Scope: region, Collections: []string{"sentinels"}}, func(f statesync.Frame) error {
					for _, i := range f.Items {
						ids = append(ids, i.ID)
					}
					return nil
				})
				require.Equal(t, c.after, time.Since(began))
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				} else {
					require.NotErrorIs(t, err, stream.ErrSilent)
				}
				require.Equal(t, c.ids, ids)
			})
		})
	}
}
