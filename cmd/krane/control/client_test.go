package control_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/control"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestEachCallSaysWhoMakesItWithTheTokenOfThatMoment(t *testing.T) {
	t.Parallel()
	const bearer = "the-shared-bearer-of-the-regions"
	source := filepath.Join(t.TempDir(), "trueup.db")
	base := &url.URL{Scheme: "http", Host: controlplanetest.Start(t, controlplanetest.Options{Source: source, Bearer: bearer}).Address}
	database := controlplanetest.Open(t, source)
	defer database.Close()
	store := controlplanetest.Regions{Database: database}
	_, _, err := store.PutRegion(t.Context(), controlplanetest.Region{ID: "r1", Name: "eu", Platform: "test"}, false)
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
	require.NoError(t, os.WriteFile(token, []byte(bearer+"\n"), 0o600))
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
		of := config.Config{Cluster: config.Cluster{Region: "eu"}, Control: config.Control{URL: server}, TokenFile: token}
		client := control.New(of, nil, nil)
		_, err := client.Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.Error(t, err, status)
		stream, err := client.WatchDeployments(t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
		require.NoError(t, err)
		require.False(t, stream.Receive())
		require.Error(t, stream.Err(), status)
		require.Zero(t, asked.Load(), "the other server has seen a request, and may have the token")
	}
}

func TestTheControlPlaneAsksForARenewalOrRefusesTheToken(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var used, reason string
	header := http.Header{}
	server := plain(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == agenttoken.Path {
			_, _ = io.WriteString(w, `{"token":"own","expires_in_seconds":3600}`)
			return
		}
		used = r.Header.Get("Authorization")
		connect.NewUnaryHandler("/", func(context.Context, *connect.Request[ctrlv1.HeartbeatRequest]) (
			*connect.Response[ctrlv1.HeartbeatResponse], error,
		) {
			switch reason {
			case "":
				answer := connect.NewResponse(&ctrlv1.HeartbeatResponse{})
				maps.Copy(answer.Header(), header)
				return answer, nil
			case "unauthenticated":
				return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("not valid"))
			}
			refused := connect.NewError(connect.CodeResourceExhausted, errors.New("wait"))
			detail, err := connect.NewErrorDetail(&ctrlv1.ErrorDetail{Reason: reason})
			if err == nil {
				refused.AddDetail(detail)
			}
			return nil, refused
		}).ServeHTTP(w, r)
	})
	tokens := owntoken.New(owntoken.Config{
		Given:      func() (string, error) { return "given", nil },
		Kubernetes: fake.NewSimpleDynamicClient(runtime.NewScheme()), Secret: types.NamespacedName{Namespace: "system", Name: "renewed"},
		ControlPlane: server, Logger: slog.New(slog.DiscardHandler),
	})
	client := control.New(config.Config{Cluster: config.Cluster{Region: "eu"}, Control: config.Control{URL: server}}, tokens, nil)
	beat := func(answer, token string) {
		t.Helper()
		mu.Lock()
		reason = answer
		mu.Unlock()
		_, err := client.Heartbeat(t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.Equal(t, answer == "", err == nil, err)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, "Bearer "+token, used)
	}
	renewal, ok := tokens.Loop().(*reconcile.Loop)
	require.True(t, ok)
	for _, asks := range []bool{false, true} {
		if asks {
			header.Set(agenttoken.Header, agenttoken.Renew)
		}
		beat("", "given")
		_, err := renewal.Reconciler.Reconcile(t.Context())
		require.NoError(t, err)
	}
	beat("another", "own")
	beat("unauthenticated", "own")
	beat("too-many-attempts", "given")
	beat("", "own")
}

// plain serves HTTP/1 and HTTP/2 without TLS.
func plain(t *testing.T, handle http.HandlerFunc) *url.URL {
	t.Helper()
	server := httptest.NewUnstartedServer(handle)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	return base
}
