package regions_test

import (
	"runtime"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// heap returns how many bytes are in use after a collection.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestMessagesAreKeptForRegionsWithStreamsAlone streams many deployments, twice, with
// another epoch between.
func TestMessagesAreKeptForRegionsWithStreamsAlone(t *testing.T) {
	eachAlone(t, func(w *world) {
		w.deployments("running")
		read := func() (n int) {
			require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true}, func(m *ctrlv1.DeploymentState) bool {
				if m.GetApply() != nil {
					n++
				}
				return m.GetSynced() != nil
			}))
			return n
		}
		gone := func() {
			await.Eventually(w.t, `w.service.Streams("eu-1") == 0`, func() bool { return w.service.Streams("eu-1") == 0 })
		}
		require.Equal(w.t, many, read())
		require.Equal(w.t, many, regions.Marshalled(w.service))
		full := heap()
		gone()
		regions.Tidy(w.t.Context(), w.service, time.Now())
		require.Equal(w.t, many, regions.Marshalled(w.service), "an agent that reconnects needs them")
		count, err := testutil.GatherAndCount(w.registry, "trueup_controlplane_messages_kept")
		require.NoError(w.t, err)
		require.Equal(w.t, 1, count)

		// With an open stream they stay, however long it is.
		stream, err := w.agent().WatchDeployments(w.t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
		require.NoError(w.t, err)
		for stream.Receive() && stream.Msg().GetSynced() == nil {
		}
		regions.Tidy(w.t.Context(), w.service, time.Now().Add(time.Hour))
		require.Equal(w.t, many, regions.Marshalled(w.service))

		// Those of another epoch are others, and the old ones go.
		require.NoError(w.t, w.database.Log.NewEpoch(w.t.Context()))
		for stream.Receive() {
		}
		require.NoError(w.t, stream.Close())
		gone()
		require.Equal(w.t, many, read())
		gone()
		regions.Tidy(w.t.Context(), w.service, time.Now().Add(time.Hour))
		require.Zero(w.t, regions.Marshalled(w.service))
		empty := heap()
		w.t.Logf("%d bytes in use with the messages, %d without", full, empty)
		require.Greater(w.t, full, empty+many*100)
	})
}
