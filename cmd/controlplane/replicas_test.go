package main_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

const agentToken = "the-agent-token-of-the-tests"

// agent follows the deployments of a region, from one replica to another.
type agent struct {
	replicas []string
	client   *http.Client

	mu     sync.Mutex
	images map[string]string
	// epoch and version are the cursor.
	epoch   string
	version uint64
	wrong   []string
}

func (a *agent) follow(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		_ = a.stream(ctx, a.replicas[n%len(a.replicas)])
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a *agent) stream(ctx context.Context, address string) error {
	request := connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true, VersionLastSeen: a.version, Epoch: a.epoch})
	request.Header().Set("Authorization", "Bearer "+agentToken)
	request.Header().Set("X-Krane-Region", "eu-1")
	stream, err := ctrlv1connect.NewClusterServiceClient(a.client, "http://"+address).WatchDeployments(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		a.take(stream.Msg())
	}
	return stream.Err()
}

func (a *agent) take(m *ctrlv1.DeploymentState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch state := m.GetState().(type) {
	case *ctrlv1.DeploymentState_Apply:
		if m.GetVersion() <= a.version {
			a.wrong = append(a.wrong, fmt.Sprintf("version %d comes after %d", m.GetVersion(), a.version))
		}
		a.version = m.GetVersion()
		a.images[state.Apply.GetDeploymentId()] = state.Apply.GetImage()
	case *ctrlv1.DeploymentState_Synced:
		if a.epoch != "" && a.epoch != state.Synced.GetEpoch() {
			a.wrong = append(a.wrong, "another epoch without a restore")
		}
		a.epoch = state.Synced.GetEpoch()
		a.version = max(a.version, state.Synced.GetVersion())
	case *ctrlv1.DeploymentState_Bookmark:
		a.version = max(a.version, state.Bookmark.GetVersion())
	}
}

// TestNothingIsLostWhenAReplicaAndTheDatabaseAreKilled writes through two
// replicas on one PostgreSQL while an agent follows; in the middle one replica,
// then the database is killed as by kill -9.
func TestNothingIsLostWhenAReplicaAndTheDatabaseAreKilled(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{})
	program, token, agents := binary(t), writeFile(t, adminToken), writeFile(t, agentToken)
	url := server.Database(t)
	var replicas []*process
	for range 2 {
		replicas = append(replicas, serveProcess(t, program, "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
			"--database", url, "--admin-token-file", token, "--agent-token-file", agents))
	}
	status, body := request(
		t,
		http.DefaultClient,
		http.MethodPut,
		"http://"+replicas[0].address+"/api/v1/admin/regions/reg_eu",
		adminToken,
		`{"name":"eu-1","platform":"aws"}`,
	)
	require.Equal(t, http.StatusCreated, status, body)

	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	follower := &agent{
		client: &http.Client{Transport: transport}, images: map[string]string{},
		replicas: []string{replicas[0].address, replicas[1].address},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { follower.follow(ctx) })

	const deployments, changes = 20, 240
	alive := replicas
	want := map[string]string{}
	for n := range changes {
		switch n {
		case changes / 3:
			require.NoError(t, replicas[0].command.Process.Kill())
			alive = replicas[1:]
		case 2 * changes / 3:
			server.Kill()
			require.NoError(t, server.Start(t.Context()))
		}
		id, image := fmt.Sprintf("d_%d", n%deployments), fmt.Sprintf("web:%d", n)
		put(t, alive[n%len(alive)].address, id, image)
		want[id] = image
	}
	await.Eventually(t, "what it waits for, at ./cmd/controlplane/replicas_test.go", func() bool {
		follower.mu.Lock()
		defer follower.mu.Unlock()
		for id, image := range want {
			if follower.images[id] != image {
				return false
			}
		}
		return true
	})
	cancel()
	parts.Wait()
	require.Empty(t, follower.wrong)
}

// put sets a deployment, again until the replica could.
func put(t *testing.T, address, id, image string) {
	t.Helper()
	spec := fmt.Sprintf(
		`{"k8s_namespace":"ws","k8s_name":%q,"workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":%q,"cpu_millicores":"250","memory_mib":"256","port":8080}`,
		strings.ReplaceAll(id, "_", "-"),
		image,
	)
	await.Eventually(t, "status == http.StatusOK", func() bool {
		status, _ := request(
			t,
			http.DefaultClient,
			http.MethodPut,
			"http://"+address+"/api/v1/admin/regions/reg_eu/deployments/"+id,
			adminToken,
			`{"desired_state":"running","spec":`+spec+`}`,
		)
		return status == http.StatusOK
	})
}
