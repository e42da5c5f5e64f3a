package stream_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const region = "eu"

const bearer = "the-shared-bearer-of-the-regions"

// server is a control plane in a bubble, with what no right one answers before it.
type server struct {
	*controlplanetest.Simulated
	liar controltest.Liar
}

// servers returns control planes with a region and the token of its agent.
func servers(t *testing.T) *controlplanetest.Simulation {
	t.Helper()
	all := controlplanetest.NewSimulation(t, nil, func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, _, err := p.Regions.PutRegion(ctx, controlplanetest.Region{ID: region, Name: region, Platform: "test"}, false)
		require.NoError(t, err)
		return token
	})
	all.Streams, all.Bearer = true, bearer
	return all
}

// with runs a test in virtual time, with the next control plane.
func with(t *testing.T, all *controlplanetest.Simulation, run func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{Simulated: all.Next()}
		s.Start()
		t.Cleanup(s.Close)
		run(t, s)
	})
}

func (s *server) source(t *testing.T) *stream.Source {
	t.Helper()
	c := config.Config{
		Cluster: config.Cluster{Region: region, Platform: "test"}, TokenFile: s.TokenFile(),
		Control: config.Control{URL: &url.URL{Scheme: "https", Host: "control.example.com"}},
	}
	return &stream.Source{Client: control.New(c, nil, s.liar.Before(s.Direct())), Collection: stream.Sentinels}
}

// put has sentinels in a state, and waits until the log has them: a list of some of them is whole, too.
func (s *server) put(t *testing.T, state string, names ...string) {
	t.Helper()
	for _, name := range names {
		m := sentinel(name)
		spec, err := protojson.Marshal(m)
		require.NoError(t, err)
		_, err = s.Regions.PutSentinel(t.Context(), region, m.GetSentinelId(), controlplanetest.Want{State: state, Spec: spec})
		require.NoError(t, err)
	}
	synctest.Wait()
}

func (s *server) want(t *testing.T, names ...string) {
	t.Helper()
	s.put(t, "running", names...)
}

// byHand changes the database past the control plane.
func (s *server) byHand(t *testing.T, statement string) {
	t.Helper()
	require.NoError(t, s.Regions.Database.Write(t.Context(), func(tx *controlplanetest.Tx) error {
		_, err := tx.ExecContext(t.Context(), statement)
		return err
	}))
}

// lose renames the row of the region, beside a token that is good for all.
func (s *server) lose(t *testing.T) {
	t.Helper()
	s.SetToken(bearer)
	s.byHand(t, "UPDATE regions SET name = 'lost'")
}

// eventually waits for what may need some attempts, with their pauses.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.Until(t, 10*time.Minute, what, holds)
}

const watch = "WatchSentinels"

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
	eventually(t, "a stream ended with "+want.Error(), func() bool {
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
	return &ctrlv1.ApplySentinel{
		K8SNamespace: "ws", K8SName: name, SentinelId: "s_" + name, WorkspaceId: "ws_1", ProjectId: "prj_1", EnvironmentId: "env_1",
		AppId: "app_1", Image: "registry.example.com/sentinel:1", Replicas: 1, CpuMillicores: 100, MemoryMib: 64,
	}
}

func TestAListIsProvenAndThenFollowed(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.want(t, "a")
		s.put(t, "archived", "b")
		spec, err := protojson.Marshal(&ctrlv1.ApplyCiliumNetworkPolicy{
			K8SNamespace: "ws", K8SName: "other",
			Policy: []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{}}}`),
		})
		require.NoError(t, err)
		_, err = s.Regions.PutPolicy(t.Context(), region, "p", controlplanetest.Want{State: "running", Spec: spec})
		require.NoError(t, err)
		synctest.Wait()
		f := follow(t, s.source(t))
		eventually(t, "the list is complete", f.complete)
		snapshot, _ := f.Complete()
		require.Len(t, snapshot.Items, 2)
		require.Equal(t, uint64(3), snapshot.Cursor.Version, "past what is not of the collection")
		var read ctrlv1.ApplySentinel
		require.NoError(t, stream.Decode(snapshot.Items[stream.Sentinels.Key("ws", "a")], &read))
		require.Equal(t, "s_a", read.GetSentinelId())
		namespace, name := stream.Split(stream.Sentinels.Key("ws", "a"))
		require.Equal(t, []string{"ws", "a"}, []string{namespace, name})

		s.put(t, "archived", "a")
		s.want(t, "c")
		eventually(t, "changes arrive", func() bool { return f.has("ws/a", 4) && f.has("ws/c", 5) })

		// What is missed while there is no stream comes with the next, and only that.
		lists, sent := s.liar.Lists(watch), s.liar.Sent(watch)
		s.liar.Cut(0)
		f.endedWith(t, io.ErrUnexpectedEOF)
		s.want(t, "d", "e")
		eventually(t, "what was missed arrives", func() bool { return f.has("ws/d", 6) && f.has("ws/e", 7) && f.complete() })
		require.Equal(t, lists, s.liar.Lists(watch))
		require.Equal(t, sent+2, s.liar.Sent(watch))
		eventually(t, "all of it is acknowledged", func() bool { return f.Status().Applied.Version == 7 })
	})
}

func TestAListThatIsNotWhatItSaysIsNeverComplete(t *testing.T) {
	t.Parallel()
	all := servers(t)
	lie := func(lie controltest.Lie) func(*testing.T, *server) {
		return func(_ *testing.T, s *server) { s.liar.Set(controltest.Faults{Lie: lie}) }
	}
	for name, c := range map[string]struct {
		begin func(*testing.T, *server)
		want  error
	}{
		"cut":            {lie(controltest.CutAfter(2)), io.ErrUnexpectedEOF},
		"another count":  {lie(controltest.WrongCount()), stream.ErrBroken},
		"another digest": {lie(controltest.WrongDigest()), stream.ErrBroken},
		"unknown region": {func(t *testing.T, s *server) { s.lose(t) }, statesync.ErrUnknownScope},
		"another cell's": {func(t *testing.T, s *server) {
			require.NoError(t, s.Regions.Heartbeat(t.Context(), region, "other", 0))
		}, stream.ErrClaimed},
		"another credential": {func(_ *testing.T, s *server) { s.SetToken("other") }, statesync.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, all, func(t *testing.T, s *server) {
				s.want(t, "a", "b", "c")
				c.begin(t, s)
				f := follow(t, s.source(t))
				f.endedWith(t, c.want)
				require.False(t, f.complete())
				require.Zero(t, f.Status().Applied)
			})
		})
	}
}

func TestAStreamThatWasCompleteIsNotOnceItsServerFails(t *testing.T) {
	t.Parallel()
	all := servers(t)
	for name, c := range map[string]struct {
		begin func(*testing.T, *server)
		want  error
	}{
		"unknown region": {func(t *testing.T, s *server) { s.lose(t) }, statesync.ErrUnknownScope},
		"token": {func(t *testing.T, s *server) {
			_, err := s.Regions.Agents().Rotate(t.Context(), region, 0)
			require.NoError(t, err)
		}, statesync.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, all, func(t *testing.T, s *server) {
				s.want(t, "a")
				f := follow(t, s.source(t))
				eventually(t, "the list is complete", f.complete)
				c.begin(t, s)
				f.endedWith(t, c.want)
				require.False(t, f.complete())
			})
		})
	}
}

func TestARestoredServerIsListedAnew(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.want(t, "a", "b")
		f := follow(t, s.source(t))
		eventually(t, "the list is complete", f.complete)
		lists := s.liar.Lists(watch)
		s.byHand(t, "DELETE FROM sentinels WHERE id = 's_b'") // which a backup did not have
		require.NoError(t, s.Regions.StartLogEpoch(t.Context()))
		f.endedWith(t, statesync.ErrResync)
		eventually(t, "it lists", func() bool { return s.liar.Lists(watch) > lists })
		await.Until(t, time.Hour, "another list is complete, without what is lost", func() bool {
			snapshot, ok := f.Complete()
			return ok && snapshot.Lists >= 2 && len(snapshot.Items) == 1
		})
	})
}

func TestASilentStreamIsDead(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.want(t, "a")
		f := follow(t, s.source(t))
		eventually(t, "the list is complete", f.complete)
		s.Silence()
		f.endedWith(t, stream.ErrSilent)
	})
}

func TestAServerWithoutMarkersIsFollowedAndNeverComplete(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.liar.Set(controltest.Faults{Plain: true})
		s.want(t, "a")
		s.put(t, "archived", "b")
		f := follow(t, s.source(t))
		eventually(t, "the list arrives", func() bool { return f.has("ws/a", 1) && f.has("ws/b", 2) })
		s.want(t, "c")
		eventually(t, "a change arrives", func() bool { return f.has("ws/c", 3) })
		s.liar.Cut(0)
		s.want(t, "d")
		eventually(t, "the next stream goes on", func() bool { return f.has("ws/d", 4) })
		require.Equal(t, 1, s.liar.Lists(watch), "it went on where it was")
		require.False(t, f.complete())
		s.liar.Set(controltest.Faults{})
		s.liar.Cut(0)
		eventually(t, "markers are seen once they come", f.complete)
		snapshot, _ := f.Complete()
		require.Len(t, snapshot.Items, 4)
	})
}

func TestANewTokenFileIsUsed(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.want(t, "a")
		source := s.source(t)
		w := statesync.Watch{Scope: region}
		none := func(statesync.Frame) error { return nil }
		s.SetToken("old\n")
		require.ErrorIs(t, source.Watch(t.Context(), w, none), statesync.ErrUnauthenticated)
		s.SetToken(bearer + "\n")
		stop := errors.New("stop")
		require.ErrorIs(t, source.Watch(t.Context(), w, func(f statesync.Frame) error {
			if f.Type == statesync.FrameSynced {
				return stop
			}
			return nil
		}), stop)
	})
}

func TestAServerThatHasShownMarkersIsOnlySlow(t *testing.T) {
	t.Parallel()
	with(t, servers(t), func(t *testing.T, s *server) {
		s.want(t, "a")
		source := s.source(t)
		source.Patience = time.Nanosecond // every answer is too late
		f := follow(t, source)
		eventually(t, "it is complete nevertheless", f.complete)
		require.NoError(t, s.Regions.StartLogEpoch(t.Context()))
		f.endedWith(t, statesync.ErrResync)
		eventually(t, "and complete again", func() bool {
			snapshot, ok := f.Complete()
			return ok && len(snapshot.Items) == 1
		})
	})
}

// TestAnItemThatCannotBeReadIsNotShown: it may hold what is secret. What a newer control plane adds is skipped.
func TestAnItemThatCannotBeReadIsNotShown(t *testing.T) {
	t.Parallel()
	item := statesync.Item{
		Key:     stream.Deployments.Key("shop", "web"),
		Version: 7,
		Value:   []byte(`{"image":"sesame","cpuMillicores":"sesame"}`),
	}
	err := stream.Decode(item, &ctrlv1.ApplyDeployment{})
	require.EqualError(t, err, item.String()+" at version 7 is not ApplyDeployment")
	item.Value = []byte(`{"image":"web","later":1}`)
	require.NoError(t, stream.Decode(item, &ctrlv1.ApplyDeployment{}))
}
