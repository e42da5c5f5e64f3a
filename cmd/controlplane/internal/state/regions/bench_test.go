//go:build unix

package regions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// BenchmarkStream sends a region's 2,000 deployments of a kilobyte each over one
// stream to a client in another process, and prints the processor time of the
// server for each.
func BenchmarkStream(b *testing.B) {
	const many = 2000
	database, err := db.SQLite{Path: filepath.Join(b.TempDir(), "trueup.db")}.Open(b.Context())
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	log := &statesync.Memory{}
	feed := &statesync.Server{Log: log}
	service, err := regions.New(regions.Config{Database: database, Feed: feed, Bearer: bearer})
	require.NoError(b, err)
	ended := make(chan error, 2)
	go func() { ended <- database.Log.Start(ctx) }()
	go func() { ended <- feed.Start(ctx) }()
	_, _, err = (&regions.Store{Database: database}).PutRegion(b.Context(), regions.Region{ID: eu, Name: "eu-1", Platform: "aws"}, false)
	require.NoError(b, err)
	require.NoError(b, log.AddScope("eu-1"))
	for n := range many {
		apply := fmt.Sprintf(`{"k8s_namespace":"ws","k8s_name":"d-%d","image":"web:1","git_commit_message":%q}`, n, strings.Repeat("x", 900))
		require.NoError(b, log.Commit(statesync.Change{
			Scope: "eu-1", Key: statesync.Key{Collection: "deployments", ID: fmt.Sprint("d_", n)},
			Value: json.RawMessage(`{"state":"running","apply":` + apply + `}`),
		}))
	}
	handler := http.NewServeMux()
	service.Mount(handler)
	web := httptest.NewUnstartedServer(handler)
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()

	before, sent := processor(), 0
	for b.Loop() {
		// It is counted as soon as it has ended, and never for itself.
		client := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestStreamsAreRead$")
		client.Env = append(os.Environ(), streamVariable+"="+web.URL)
		out, err := client.CombinedOutput()
		require.NoError(b, err, string(out))
		sent += streamsRead * many
	}
	used := processor() - before
	b.ReportMetric(float64(used.Microseconds())/float64(sent), "us/change")
	fmt.Printf("figure S6_connect_cpu_per_change %.3g us\n", float64(used.Microseconds())/float64(sent))
	cancel()
	web.CloseClientConnections()
	web.Close()
	require.NoError(b, <-ended)
	require.NoError(b, <-ended)
	require.NoError(b, database.Close())
}

// How many streams a client reads, and where from.
const (
	streamsRead    = 10
	streamVariable = "TRUEUP_BENCH_STREAM"
)

// TestStreamsAreRead is the client of BenchmarkStream. Without one it has nothing
// to read.
func TestStreamsAreRead(t *testing.T) {
	t.Parallel()
	url := os.Getenv(streamVariable)
	if url == "" {
		return
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := ctrlv1connect.NewClusterServiceClient(
		&http.Client{Transport: headed{transport, []string{"Authorization", "Bearer " + bearer, "X-Krane-Region", "eu-1"}}},
		url,
	)
	for range streamsRead {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.WatchDeployments(ctx, connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
		require.NoError(t, err)
		for stream.Receive() && stream.Msg().GetSynced() == nil {
			continue
		}
		require.NotNil(t, stream.Msg().GetSynced(), stream.Err())
		cancel()
		_ = stream.Close()
	}
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
