package controltest_test

import (
	"context"
	"net/http"
	"os"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
)

func TestALiarTellsWhatItIsToldAndItsFaults(t *testing.T) {
	t.Parallel()
	planes := controlplanetest.NewSimulation(t, nil, func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, _, err := p.Regions.PutRegion(ctx, controlplanetest.Region{ID: "r1", Name: "eu", Platform: "test"}, false)
		require.NoError(t, err)
		for _, name := range []string{"web", "api"} {
			_, err := p.Regions.PutSentinel(ctx, "r1", "s_"+name, controlplanetest.Want{State: "archived", Spec: []byte(
				`{"k8sNamespace":"ws","k8sName":"` + name + `","workspaceId":"w","projectId":"p","appId":"a","environmentId":"e",
				"image":"example.com/a","cpuMillicores":"1","memoryMib":"1"}`,
			)})
			require.NoError(t, err)
		}
		return token
	})
	planes.Streams = true
	synctest.Test(t, func(t *testing.T) {
		plane := planes.Next()
		plane.Start()
		defer plane.Close()
		synctest.Wait() // until the log has both: a list of one of them is whole, too
		token, err := os.ReadFile(plane.TokenFile())
		require.NoError(t, err)
		var liar controltest.Liar
		client := ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: liar.Before(plane.Direct())}, "http://control")
		list := func() (names []string, count uint64, err error) {
			request := connect.NewRequest(&ctrlv1.WatchSentinelsRequest{Markers: true})
			request.Header().Set("Authorization", "Bearer "+string(token))
			request.Header().Set("X-Krane-Region", "eu")
			stream, err := client.WatchSentinels(t.Context(), request)
			require.NoError(t, err)
			defer stream.Close()
			for stream.Receive() {
				if synced := stream.Msg().GetSynced(); synced != nil {
					return names, synced.GetCount(), nil
				}
				names = append(names, stream.Msg().GetDelete().GetK8SName())
			}
			return names, 0, stream.Err()
		}
		names, count, err := list()
		require.NoError(t, err)
		require.Equal(t, []string{"web", "api"}, names)
		require.Equal(t, uint64(2), count)
		require.Equal(t, []int{1, 1, 2}, []int{liar.Calls("WatchSentinels"), liar.Lists("WatchSentinels"), liar.Sent("WatchSentinels")})

		liar.Set(controltest.Faults{Lie: controltest.WrongCount()})
		_, count, err = list()
		require.NoError(t, err)
		require.Equal(t, uint64(3), count)

		liar.Set(controltest.Faults{Lie: controltest.CutAfter(1)})
		names, _, err = list()
		require.NoError(t, err)
		require.Equal(t, []string{"web"}, names)

		liar.Set(controltest.Faults{Lie: controltest.Hide()})
		names, count, err = list()
		require.NoError(t, err)
		require.Empty(t, names)
		require.Zero(t, count)

		liar.Set(controltest.Faults{Refuse: []controltest.Refusal{{Methods: "Watch", Code: connect.CodeUnauthenticated}}})
		_, _, err = list()
		require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err))
	})
}
