package clusters_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// streaming is one process that serves streams.
type streaming struct {
	t      *testing.T
	store  *clusters.Store
	server *clusters.Server
	url    string
	stop   func()
}

// oneDatabase returns what opens the same database each time.
func oneDatabase(t *testing.T) func() *clusters.Store {
	t.Helper()
	if strings.HasPrefix(t.Name(), onPostgreSQL+"/") {
		url := postgres.Database(t)
		return func() *clusters.Store { return openPostgreSQL(t, url) }
	}
	path := filepath.Join(t.TempDir(), "trueup.db")
	return func() *clusters.Store { return openStore(t, path) }
}

// startStreaming serves a database.
func startStreaming(t *testing.T, open func() *clusters.Store) *streaming {
	t.Helper()
	shares, err := limits.New(limits.Config{})
	require.NoError(t, err)
	s := &streaming{t: t, store: open()}
	s.server, err = clusters.New(clusters.Config{
		Store: s.store, Admins: tokens.Only(adminToken), Limits: shares,
		Heartbeat: 2 * time.Second, // a client gives up after two, also on a busy machine
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.server.Start(ctx) }()
	listener := httptest.NewServer(s.server)
	s.url, s.stop = listener.URL, stop
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		listener.Close()
	})
	return s
}

// register returns the token of a cluster.
func (s *streaming) register(id string) string {
	s.t.Helper()
	token, _, err := s.store.RegisterCluster(s.t.Context(), id, "nyc3")
	require.NoError(s.t, err)
	return token
}

// version returns the one that a pull would have.
func (s *streaming) version(id string) string {
	s.t.Helper()
	version, err := s.store.Version(s.t.Context(), id)
	require.NoError(s.t, err)
	return version
}

// put changes what is wanted, by the administration.
func (s *streaming) put(path, body string) {
	s.t.Helper()
	w := world{t: s.t, url: s.url}
	w.must(http.MethodPut, path, body)
}

// watched is a stream with what it has named.
type watched struct {
	t      *testing.T
	frames chan statesync.Frame
	ended  chan error
}

// watch opens a stream with a token.
func (s *streaming) watch(id, token string, from statesync.Cursor) *watched {
	s.t.Helper()
	client := &statesync.Client{URL: s.url + "/api/v1/clusters/" + id, Authorize: func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}}
	w := &watched{t: s.t, frames: make(chan statesync.Frame, 1000), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() {
		cancel()
		client.Close()
	})
	go func() {
		w.ended <- client.Watch(ctx, statesync.Watch{Scope: starbase.VersionScope, Cursor: from}, func(f statesync.Frame) error {
			w.frames <- f
			return nil
		})
	}()
	return w
}

// names waits until the stream names a version, and returns the cursor behind it.
func (w *watched) names(version string) (at statesync.Cursor) {
	w.t.Helper()
	await.Until(w.t, time.Second, "the stream names "+version, func() bool {
		select {
		case f := <-w.frames:
			at = f.Next()
			return len(f.Items) == 1 && string(f.Items[0].Value) == `"`+version+`"`
		case err := <-w.ended:
			require.NoError(w.t, err, "the stream has ended, instead of naming %s", version)
			return false
		default:
			return false
		}
	})
	return at
}

// ends returns why the stream has ended.
func (w *watched) ends() error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(30 * time.Second):
		require.Fail(w.t, "the stream does not end")
		return nil
	}
}

// TestAStreamOpensThroughTheDoor has a door that is full, and then more open streams than open at a time.
func TestAStreamOpensThroughTheDoor(t *testing.T) {
	t.Parallel()
	s := startStreaming(t, func() *clusters.Store { return openStore(t, filepath.Join(t.TempDir(), "trueup.db")) })
	token := s.register(clusterA)
	var leaves []func()
	for range 4 {
		leave, err := clusters.Enter(t.Context(), s.server)
		require.NoError(t, err)
		t.Cleanup(leave) // a handler that waits for it keeps the server from its end
		leaves = append(leaves, leave)
	}
	first := s.watch(clusterA, token, statesync.Cursor{})
	select {
	case <-first.frames:
		require.Fail(t, "it has begun")
	case err := <-first.ended:
		require.NoError(t, err)
	case <-time.After(300 * time.Millisecond):
	}
	for _, leave := range leaves {
		leave()
	}
	first.names(s.version(clusterA))
	for range 5 {
		s.watch(clusterA, token, statesync.Cursor{}).names(s.version(clusterA))
	}
}

func TestAStreamNamesEachVersionOfThisAndOfAnotherProcess(t *testing.T) {
	t.Parallel()
	open := oneDatabase(t)
	here, there := startStreaming(t, open), startStreaming(t, open)
	token := here.register(clusterA)
	stream, second := here.watch(clusterA, token, statesync.Cursor{}), there.watch(clusterA, token, statesync.Cursor{})
	stream.names(here.version(clusterA))
	second.names(here.version(clusterA))

	here.put(projectsPath+projectX, projectBody)
	stream.names(here.version(clusterA))
	second.names(here.version(clusterA))
	there.put(servicePath, serviceBody)
	at := stream.names(here.version(clusterA))
	second.names(here.version(clusterA))

	// A stream goes on at the other process.
	resumed := there.watch(clusterA, token, at)
	require.Equal(t, statesync.FrameHeader, (<-resumed.frames).Type)
	require.Equal(t, statesync.FrameBookmark, (<-resumed.frames).Type)

	there.stop()
	end, ok := errors.AsType[*statesync.EndError](second.ends())
	require.True(t, ok)
	require.Equal(t, statesync.EndOfServer, end.Reason)
}

// TestAStreamIsForTheAgentOfItsCluster has each refusal before the first frame, and the ends of streams whose token ends.
func TestAStreamIsForTheAgentOfItsCluster(t *testing.T) {
	t.Parallel()
	s := startStreaming(t, oneDatabase(t))
	token, other := s.register(clusterA), s.register(clusterB)
	require.ErrorIs(t, s.watch(clusterA, "wrong", statesync.Cursor{}).ends(), statesync.ErrUnauthenticated)
	require.ErrorContains(t, s.watch(clusterA, other, statesync.Cursor{}).ends(), "the token belongs to another cluster")

	stream, neighbour := s.watch(clusterA, token, statesync.Cursor{}), s.watch(clusterB, other, statesync.Cursor{})
	stream.names(s.version(clusterA))
	neighbour.names(s.version(clusterB))
	renewed, err := s.store.Agents().Rotate(t.Context(), clusterA, 0)
	require.NoError(t, err)
	require.Error(t, stream.ends())
	require.ErrorIs(t, s.watch(clusterA, token, statesync.Cursor{}).ends(), statesync.ErrUnauthenticated)
	stream = s.watch(clusterA, renewed, statesync.Cursor{})
	stream.names(s.version(clusterA))

	require.NoError(t, s.store.Agents().Remove(t.Context(), clusterA, false))
	require.Error(t, stream.ends())
	require.Empty(t, neighbour.ended)
}

func TestAClusterOpensSoManyStreams(t *testing.T) {
	t.Parallel()
	s := startStreaming(t, oneDatabase(t))
	token, other := s.register(clusterA), s.register(clusterB)
	for range 32 {
		s.watch(clusterA, token, statesync.Cursor{}).names(s.version(clusterA))
	}
	require.ErrorContains(t, s.watch(clusterA, token, statesync.Cursor{}).ends(), "too many requests or streams")
	s.watch(clusterB, other, statesync.Cursor{}).names(s.version(clusterB))
	w := world{t: t, url: s.url, tokens: map[string]string{clusterA: token}}
	require.EqualValues(t, 1, w.pull(clusterA).Generation, "streams are no requests")
}

// TestAnOlderCopyOfTheDatabaseIsNamedForWhatItIs puts the row of a cluster back under a stream: with the same
// generation, which then has another nonce, with an older one, and with another epoch.
func TestAnOlderCopyOfTheDatabaseIsNamedForWhatItIs(t *testing.T) {
	t.Parallel()
	s := startStreaming(t, oneDatabase(t))
	token := s.register(clusterA)
	s.put(projectsPath+projectX, projectBody)
	restore := func(set string) {
		require.NoError(t, s.store.Database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE clusters SET `+set+` WHERE id = ?`, clusterA)
			return err
		}))
	}
	stream := s.watch(clusterA, token, statesync.Cursor{})
	stream.names(s.version(clusterA))
	at := (<-stream.frames).Next() // synced has the mark
	restore(`nonce = 'another'`)
	require.ErrorIs(t, stream.ends(), statesync.ErrResync)
	require.ErrorIs(t, s.watch(clusterA, token, at).ends(), statesync.ErrResync)
	stream = s.watch(clusterA, token, statesync.Cursor{})
	stream.names(s.version(clusterA))

	restore(`generation = 1, nonce = 'older'`)
	end, ok := errors.AsType[*statesync.EndError](stream.ends())
	require.True(t, ok)
	require.Equal(t, statesync.EndOfLog, end.Reason)

	restore(`generation = 1, epoch = 'new', nonce = 'newest'`)
	await.Eventually(t, "the new epoch is named", func() bool {
		stream = s.watch(clusterA, token, statesync.Cursor{})
		select {
		case f := <-stream.frames:
			return f.Epoch == "new"
		case <-stream.ended:
			return false
		}
	})
	stream.names(s.version(clusterA))
}
