package regions_test

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

func TestHeldDeletionsOfARegionAreApprovedByTheirDigest(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		t, ctx := w.t, w.t.Context()
		store := &regions.Store{Database: w.database}
		beat := func(held *ctrlv1.HeldDeletions) (approved string, err error) {
			answer, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{HeldDeletions: held}))
			if err != nil {
				return "", err
			}
			return answer.Msg.GetApprovedDeletions(), nil
		}
		held := func(digest string) *ctrlv1.HeldDeletions {
			units := []*ctrlv1.HeldUnit{{Unit: "deployments/d_1", Objects: 3, Reason: "absent"}}
			return &ctrlv1.HeldDeletions{Digest: digest, Count: 1, Units: units}
		}
		for _, digest := range []string{"first", "second"} {
			approved, err := beat(held(digest))
			require.NoError(t, err)
			require.Empty(t, approved)
		}
		region, _, err := store.Resources(ctx, eu)
		require.NoError(t, err)
		require.Equal(t, "second", region.HeldDeletions.Digest)
		require.Equal(t, "deployments/d_1", region.HeldDeletions.Units[0].Unit)

		_, err = store.ApproveDeletions(ctx, eu, "first")
		require.ErrorContains(t, err, `other_deletions: digest is "first": what is held has the digest "second"`)
		_, err = store.ApproveDeletions(ctx, "reg_none", "second")
		require.ErrorIs(t, err, regions.ErrUnknownRegion)
		for _, changed := range []bool{true, false} {
			got, err := store.ApproveDeletions(ctx, eu, "second")
			require.NoError(t, err)
			require.Equal(t, changed, got)
		}
		approved, err := beat(held("second"))
		require.NoError(t, err)
		require.Equal(t, "second", approved)
		_, err = beat(nil)
		require.NoError(t, err)
		region, _, err = store.Resources(ctx, eu)
		require.NoError(t, err)
		require.Nil(t, region.HeldDeletions, "they are carried out")

		for _, digest := range []string{"", "--server=http://evil"} {
			_, err = beat(held(digest))
			require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
			require.ErrorContains(t, err, "held_deletions.digest")
		}
	})
}
