package agents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

func TestOnlyTheReportedDigestCanBeApproved(t *testing.T) {
	t.Parallel()
	held := &starbase.HeldDeletions{Digest: "now", Count: 1}
	change, err := agents.Approval{Digest: "now"}.Check(held, "")
	require.NoError(t, err)
	require.True(t, change)
	_, err = agents.Approval{Digest: "before"}.Check(held, "")
	require.ErrorContains(t, err, `other_deletions: digest is "before": what is held has the digest "now"; read held_deletions`)
	_, err = agents.Approval{Digest: "now"}.Check(nil, "")
	require.ErrorContains(t, err, "other_deletions: nothing is held that can be approved; ")
	change, err = agents.Approval{Digest: "now"}.Check(nil, "now")
	require.NoError(t, err, "it was approved, and is carried out")
	require.False(t, change)
}

func TestAnApprovalNamesADigest(t *testing.T) {
	t.Parallel()
	require.Empty(t, agents.Approval{Digest: "now"}.Wrong())
	wrong := agents.Approval{}.Wrong()
	require.Len(t, wrong, 1)
	require.EqualError(t, wrong[0], `digest is "": want the digest of held_deletions`)
}

func TestWhatIsHeldIsStored(t *testing.T) {
	t.Parallel()
	for _, held := range []*starbase.HeldDeletions{nil, {Digest: "now", Count: 1, Units: []starbase.HeldUnit{{Unit: "project x", Objects: 6, Reason: "absent"}}}} {
		text, err := agents.HeldText(held)
		require.NoError(t, err)
		again, err := agents.ParseHeld(text)
		require.NoError(t, err)
		require.Equal(t, held, again)
	}
	_, err := agents.ParseHeld("{")
	require.Error(t, err)
}
