package control_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
)

func TestEachCallSaysWhoMakesItWithTheTokenOfThatMoment(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, "eu")
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	token := filepath.Join(t.TempDir(), "token")
	client := control.New(config.Config{Cluster: config.Cluster{Region: "eu"}, Control: config.Control{URL: base}, TokenFile: token}, nil, nil)
	beat := func() error {
		_, err := client.Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		return err
	}
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(beat()), "no file")
	require.NoError(t, os.WriteFile(token, []byte("another\n"), 0o600))
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(beat()))
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	require.NoError(t, beat())

	stream, err := client.WatchDeployments(t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
	require.NoError(t, err)
	require.True(t, stream.Receive(), stream.Err())
	require.NotNil(t, stream.Msg().GetSynced())
	require.NoError(t, stream.Close())
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var asked atomic.Int64
		other := plain(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Content-Type", "application/proto") // an empty heartbeat
		})
		server := plain(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.String()+r.URL.Path)
			w.WriteHeader(status)
		})
		token := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
		client := control.New(config.Config{Cluster: config.Cluster{Region: "eu"}, Control: config.Control{URL: server}, TokenFile: token}, nil, nil)
		_, err := client.Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.Error(t, err, status)
		stream, err := client.WatchDeployments(t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
		require.NoError(t, err)
		require.False(t, stream.Receive())
		require.Error(t, stream.Err(), status)
		require.Zero(t, asked.Load(), "the other server has seen a request, and may have the token")
	}
}

// plain serves HTTP/2 without TLS.
func plain(t *testing.T, handle http.HandlerFunc) *url.URL {
	t.Helper()
	server := httptest.NewUnstartedServer(handle)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	return base
}
