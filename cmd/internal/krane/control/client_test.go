package control_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/controltest"
)

func TestEachCallSaysWhoMakesItWithTheTokenOfThatMoment(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, "eu")
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	token := filepath.Join(t.TempDir(), "token")
	client := control.New(config.Config{Cluster: config.Cluster{Region: "eu"}, Control: config.Control{URL: base}, TokenFile: token})
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
