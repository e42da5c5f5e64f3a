package stream_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const region = "eu"

func source(t *testing.T, server *controltest.Server, tokenFile string) *stream.Source {
	t.Helper()
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	c := config.Config{Cluster: config.Cluster{Region: region}, Control: config.Control{URL: base, Token: "secret"}}
	if tokenFile != "" {
		c.Control.Token, c.TokenFile = "", tokenFile
	}
	return &stream.Source{Client: control.New(c, nil, nil), Collection: stream.Sentinels}
}

// follower is a Replica that remembers what it was given.
type follower struct {
	*statesync.Replica
	mu    sync.Mutex
	last  map[string]statesync.Item
	ended []statesync.Stream
}

func follow(t *testing.T, s *stream.Source) *follower {
	t.Helper()
	f := &follower{last: map[string]statesync.Item{}}
	f.Replica = &statesync.Replica{
		Source: s, Scope: region, Collections: []string{string(s.Collection)},
		Handle: func(_ context.Context, i statesync.Item) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.last[i.ID] = i
			return nil
		},
		OnStream: func(s statesync.Stream) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ended = append(f.ended, s)
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return f
}

func (f *follower) has(id string, version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[id].Version == version
}

// endedWith waits for a stream that ended so.
func (f *follower) endedWith(t *testing.T, want error) {
	t.Helper()
	await.Eventually(t, "a stream ended with "+want.Error(), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.ended {
			if errors.Is(s.Err, want) {
				return true
			}
		}
		return false
	})
}

func (f *follower) complete() bool {
	_, ok := f.Complete()
	return ok
}

func sentinel(name string) *ctrlv1.ApplySentinel {
	return &ctrlv1.ApplySentinel{K8SNamespace: "ws", K8SName: name, SentinelId: "s_" + name}
}

func gone(name string) *ctrlv1.DeleteSentinel {
	return &ctrlv1.DeleteSentinel{K8SNamespace: "ws", K8SName: name}
}

func TestAListIsProvenAndThenFollowed(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, region)
	server.Want(t, sentinel("a"), gone("b"), &ctrlv1.ApplyDeployment{K8SNamespace: "ws", K8SName: "other"})
	f := follow(t, source(t, server, ""))
	await.Eventually(t, "the list is complete", f.complete)
	snapshot, _ := f.Complete()
	require.Len(t, snapshot.Items, 2)
	require.Equal(t, uint64(3), snapshot.Cursor.Version, "past what is not of the collection")
	var read ctrlv1.ApplySentinel
	require.NoError(t, stream.Decode(snapshot.Items[stream.Sentinels.Key("ws", "a")], &read))
	require.Equal(t, "s_a", read.GetSentinelId())
	namespace, name := stream.Split(stream.Sentinels.Key("ws", "a"))
	require.Equal(t, []string{"ws", "a"}, []string{namespace, name})

	server.Want(t, gone("a"))
	server.Want(t, sentinel("c"))
	await.Eventually(t, "changes arrive", func() bool { return f.has("ws/a", 4) && f.has("ws/c", 5) })

	// What is missed while there is no stream comes with the next, and only that.
	before := server.Counts()
	server.Cut()
	f.endedWith(t, io.ErrUnexpectedEOF)
	server.Want(t, sentinel("d"), sentinel("e"))
	await.Eventually(t, "what was missed arrives", func() bool { return f.has("ws/d", 6) && f.has("ws/e", 7) && f.complete() })
	after := server.Counts()
	require.Equal(t, before.Lists, after.Lists)
	require.Equal(t, before.Sent["sentinels"]+2, after.Sent["sentinels"])
	await.Eventually(t, "all of it is acknowledged", func() bool { return f.Status().Applied.Version == 7 })
}

func TestAListThatIsNotWhatItSaysIsNeverComplete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults controltest.Faults
		want   error
	}{
		"cut":                {controltest.Faults{CutAfter: 2}, io.ErrUnexpectedEOF},
		"another count":      {controltest.Faults{Lie: true}, stream.ErrBroken},
		"another digest":     {controltest.Faults{WrongDigest: true}, stream.ErrBroken},
		"unknown region":     {controltest.Faults{UnknownRegion: true}, statesync.ErrUnknownScope},
		"another cell's":     {controltest.Faults{Cell: "other"}, stream.ErrClaimed},
		"another credential": {controltest.Faults{Token: "other"}, statesync.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := controltest.Start(t, region)
			server.Want(t, sentinel("a"), sentinel("b"), sentinel("c"))
			server.Set(c.faults)
			f := follow(t, source(t, server, ""))
			f.endedWith(t, c.want)
			require.False(t, f.complete())
			require.Zero(t, f.Status().Applied)
		})
	}
}

func TestAStreamThatWasCompleteIsNotOnceItsServerFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults controltest.Faults
		want   error
	}{
		"unknown region": {controltest.Faults{UnknownRegion: true}, statesync.ErrUnknownScope},
		"token":          {controltest.Faults{Token: "other"}, statesync.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := controltest.Start(t, region)
			server.Want(t, sentinel("a"))
			f := follow(t, source(t, server, ""))
			await.Eventually(t, "the list is complete", f.complete)
			server.Set(c.faults)
			f.endedWith(t, c.want)
			require.False(t, f.complete())
		})
	}
}

func TestARestoredServerIsListedAnew(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, region)
	server.Want(t, sentinel("a"), sentinel("b"))
	f := follow(t, source(t, server, ""))
	await.Eventually(t, "the list is complete", f.complete)
	server.Forget(t, sentinel("b"))
	f.endedWith(t, statesync.ErrResync)
	await.Eventually(t, "another list is complete", func() bool {
		snapshot, ok := f.Complete()
		return ok && snapshot.Lists == 2 && len(snapshot.Items) == 1
	})
}

func TestASilentStreamIsDead(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, region)
	server.Want(t, sentinel("a"))
	s := source(t, server, "")
	s.Silence = 50 * time.Millisecond // the server's bookmarks come every 5 s
	f := follow(t, s)
	f.endedWith(t, stream.ErrSilent)
}

func TestAServerWithoutMarkersIsFollowedAndNeverComplete(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, region)
	server.Set(controltest.Faults{NoMarkers: true})
	server.Want(t, sentinel("a"), gone("b"))
	s := source(t, server, "")
	s.Patience = 10 * time.Millisecond
	f := follow(t, s)
	await.Eventually(t, "the list arrives", func() bool { return f.has("ws/a", 1) && f.has("ws/b", 2) })
	server.Want(t, sentinel("c"))
	await.Eventually(t, "a change arrives", func() bool { return f.has("ws/c", 3) })
	server.Cut()
	server.Want(t, sentinel("d"))
	await.Eventually(t, "the next stream goes on", func() bool { return f.has("ws/d", 4) })
	require.Equal(t, 1, server.Counts().Lists["sentinels"], "it went on where it was")
	require.False(t, f.complete())
	server.Set(controltest.Faults{})
	await.Eventually(t, "markers are seen once they come", f.complete)
	snapshot, _ := f.Complete()
	require.Len(t, snapshot.Items, 4)
}

func TestANewTokenFileIsUsed(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, region)
	server.Want(t, sentinel("a"))
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
	s := source(t, server, file)
	w := statesync.Watch{Scope: region}
	none := func(statesync.Frame) error { return nil }
	require.ErrorIs(t, s.Watch(t.Context(), w, none), statesync.ErrUnauthenticated)
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	stop := errors.New("stop")
	require.ErrorIs(t, s.Watch(t.Context(), w, func(f statesync.Frame) error {
		if f.Type == statesync.FrameSynced {
			return stop
		}
		return nil
	}), stop)
}

func TestAServerThatHasShownMarkersIsOnlySlow(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, region)
	server.Want(t, sentinel("a"))
	s := source(t, server, "")
	s.Patience = time.Nanosecond // every answer is too late
	f := follow(t, s)
	await.Eventually(t, "it is complete nevertheless", f.complete)
	server.Renew(t)
	f.endedWith(t, statesync.ErrResync)
	await.Eventually(t, "and complete again", func() bool {
		snapshot, ok := f.Complete()
		return ok && len(snapshot.Items) == 1
	})
}
